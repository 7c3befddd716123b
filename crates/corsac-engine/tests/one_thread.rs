//! Programs on the thread of their caller and on those of a pool: the same results, and no threads
//! where none are wanted.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure is a failed test"
)]

mod kit;

use std::thread;

use corsac_engine::{Executable, on_threads};
use corsac_ir::{Arg, Graph, NodeId};
use corsac_ops::shape::Value;
use kit::{NoWeights, call, len, numbers, program, tensor};

/// A program over tensors of these shapes, and the elements of its inputs.
struct Case {
    executable: Executable,
    inputs: Vec<Vec<f32>>,
}

impl Case {
    fn new(shapes: &[&[i64]], make: impl FnOnce(&mut Graph, &[NodeId]) -> NodeId) -> Self {
        let mut graph = Graph::new();
        let names = (0..shapes.len()).map(|at| format!("in{at}"));
        let inputs: Vec<NodeId> = names
            .map(|name| graph.placeholder(&name).unwrap())
            .collect();
        let result = make(&mut graph, &inputs);
        graph.output(result).unwrap();
        let types: Vec<Value> = shapes.iter().map(|shape| tensor(shape)).collect();
        let program = program(&graph, &types).unwrap();
        let inputs = shapes.iter().zip(1..);
        let inputs = inputs.map(|(shape, seed)| numbers(len(shape), seed));
        Self {
            inputs: inputs.collect(),
            executable: Executable::new(program, &NoWeights).unwrap(),
        }
    }

    /// The bits of the only result.
    fn run(&self) -> Vec<u32> {
        let program = self.executable.program();
        let mut out = vec![f32::NAN; program.value(program.outputs()[0]).len()];
        let inputs: Vec<&[f32]> = self.inputs.iter().map(Vec::as_slice).collect();
        let mut context = self.executable.context();
        self.executable
            .run(&mut context, &inputs, &mut [&mut out])
            .unwrap();
        out.into_iter().map(f32::to_bits).collect()
    }
}

fn pair(x: i64) -> Arg {
    Arg::list([x.into(), x.into()]).unwrap()
}

/// `relu(in0 @ in1 + in2)`, of these sizes.
fn layer(rows: i64, depth: i64, columns: i64) -> Case {
    Case::new(
        &[&[rows, depth], &[depth, columns], &[columns]],
        |graph, inputs| {
            let product = call(graph, "torch.matmul", [inputs[0].into(), inputs[1].into()]);
            let sum = call(graph, "operator.add", [product.into(), inputs[2].into()]);
            call(graph, "torch.relu", [sum.into()])
        },
    )
}

fn unary(name: &'static str, shape: &[i64], rest: &[i64]) -> Case {
    Case::new(&[shape], |graph, inputs| {
        let rest = rest.iter().map(|&number| Arg::from(number));
        let args = [Arg::from(inputs[0])].into_iter().chain(rest);
        call(graph, name, args)
    })
}

/// A convolution of an image by a kernel with this stride, in `groups` groups.
fn convolution(image: [i64; 4], kernel: [i64; 4], stride: i64, groups: i64) -> Case {
    Case::new(&[&image, &kernel, &kernel[..1]], |graph, inputs| {
        let operands = inputs.iter().map(|&input| Arg::from(input));
        let how = [pair(stride), pair(1), pair(1), groups.into()];
        let result = call(graph, "torch.conv2d", operands.chain(how));
        call(graph, "torch.tanh", [result.into()])
    })
}

/// Programs for all kinds of kernels, some small and some large enough for several threads.
fn cases() -> Vec<(&'static str, Case)> {
    let binary = |name: &'static str, a: &[i64], b: &[i64]| {
        Case::new(&[a, b], |graph, inputs| {
            call(graph, name, [inputs[0].into(), inputs[1].into()])
        })
    };
    vec![
        ("a small layer", layer(1, 8, 8)),
        ("a layer", layer(40, 96, 130)),
        ("a large layer", layer(300, 200, 190)),
        (
            "a linear layer",
            binary("torch.nn.functional.linear", &[70, 96], &[200, 96]),
        ),
        (
            "products",
            binary("torch.bmm", &[24, 40, 33], &[24, 33, 50]),
        ),
        ("a chain", {
            Case::new(&[&[300, 257], &[257]], |graph, inputs| {
                let sum = call(graph, "operator.add", [inputs[0].into(), inputs[1].into()]);
                let active = call(graph, "torch.nn.functional.gelu", [sum.into()]);
                let squared = call(graph, "operator.mul", [active.into(), active.into()]);
                call(graph, "torch.softmax", [squared.into(), 1.into()])
            })
        }),
        ("attention", {
            Case::new(&[&[2, 4, 70, 32]], |graph, inputs| {
                let name = "torch.nn.functional.scaled_dot_product_attention";
                call(
                    graph,
                    name,
                    [inputs[0], inputs[0], inputs[0]].map(Arg::from),
                )
            })
        }),
        ("a sum", unary("torch.sum", &[130, 300], &[1])),
        ("a sum of columns", unary("torch.sum", &[130, 300], &[0])),
        ("sums so far", unary("torch.cumsum", &[40, 900], &[1])),
        ("places", {
            Case::new(&[&[40, 900]], |graph, inputs| {
                let places = call(graph, "torch.argsort", [inputs[0].into(), 1.into()]);
                call(graph, "operator.mul", [places.into(), 0.5.into()])
            })
        }),
        (
            "a pool",
            unary("torch.nn.functional.max_pool2d", &[3, 9, 40, 50], &[3]),
        ),
        (
            "means",
            unary("torch.nn.functional.avg_pool2d", &[3, 9, 40, 50], &[2]),
        ),
        (
            "transposed",
            unary("torch.transpose", &[90, 20, 70], &[0, 2]),
        ),
        (
            "a small convolution",
            convolution([5, 3, 20, 21], [6, 3, 3, 3], 1, 1),
        ),
        (
            "one of groups",
            convolution([3, 12, 30, 20], [18, 4, 3, 3], 3, 3),
        ),
        (
            "one of channels",
            convolution([2, 16, 30, 40], [16, 1, 5, 5], 1, 16),
        ),
        (
            "a large one",
            convolution([2, 24, 40, 40], [40, 24, 3, 3], 1, 1),
        ),
    ]
}

#[test]
fn results_are_bit_for_bit_the_same_on_one_thread_and_on_many() {
    for (name, case) in cases() {
        let alone = case.run();
        for threads in [1, 2, 5] {
            assert!(alone == on_threads(threads, || case.run()), "{name}");
            let own = case.executable.on_threads(threads, || case.run());
            assert!(alone == own, "{name}");
        }
    }
}

#[test]
fn threads_run_small_programs_at_once() {
    let cases: Vec<(&str, Case)> = cases().into_iter().take(6).collect();
    let expected: Vec<Vec<u32>> = cases.iter().map(|(_, case)| case.run()).collect();
    thread::scope(|scope| {
        for number in 0..6 {
            let (cases, expected) = (&cases, &expected);
            scope.spawn(move || {
                for round in 0..30 {
                    let at = (number + round) % cases.len();
                    let (name, case) = &cases[at];
                    let found = case.executable.on_threads(2, || case.run());
                    assert!(found == expected[at], "{name}");
                }
            });
        }
    });
}
