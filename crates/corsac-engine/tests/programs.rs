//! Graphs are compiled to programs and run, without Python.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure is a failed test"
)]

mod kit;

use corsac_engine::{
    Binary, Data, DataMut, Element, Epilogue, Executable, Op, Plan, RunError, Unary,
};
use corsac_ir::{Arg, DType, Graph, NodeId};
use corsac_ops::shape::{Dim, TensorType, Value};
use kit::{NoWeights, call, program, tensor};

/// `relu(x @ y + z) * 2`, and `x` as a column.
fn example() -> Graph {
    let mut graph = Graph::new();
    let [x, y, z] = ["x", "y", "z"].map(|name| graph.placeholder(name).unwrap());
    let product = call(&mut graph, "torch.matmul", [x.into(), y.into()]);
    let sum = call(&mut graph, "operator.add", [product.into(), z.into()]);
    let positive = call(&mut graph, "torch.relu", [sum.into()]);
    let doubled = call(&mut graph, "operator.mul", [positive.into(), 2.into()]);
    let column = graph
        .call_method("reshape", [x.into(), (-1).into(), 1.into()])
        .unwrap();
    graph
        .output(Arg::tuple([doubled.into(), column.into()]).unwrap())
        .unwrap();
    graph
}

fn inputs() -> [Value; 3] {
    [tensor(&[1, 3]), tensor(&[3, 2]), tensor(&[1, 2])]
}

#[test]
fn sums_and_activations_go_into_the_product_before_them() {
    let program = program(&example(), &inputs()).unwrap();
    assert_eq!(
        program.to_string(),
        "%6[1, 2] = matmul(in0, in1) + in2 -> Relu -> Affine(2.0, -0.0)\nreturn %6, in0\n"
    );
    // All values lie in the results.
    assert_eq!(Plan::of(&program).size_bytes(), 0);
}

#[test]
fn a_program_runs() {
    let executable = Executable::new(program(&example(), &inputs()).unwrap(), &NoWeights).unwrap();
    let (mut first, mut second) = ([0.0; 2], [0.0; 3]);
    let mut context = executable.context();
    for _ in 0..2 {
        executable
            .run(
                &mut context,
                &[
                    &[1.0, 2.0, 3.0],
                    &[1.0, -1.0, 2.0, 0.0, 0.5, -2.0],
                    &[0.5, 1.0],
                ],
                &mut [&mut first, &mut second],
            )
            .unwrap();
        assert_eq!((first, second), ([14.0, 0.0], [1.0, 2.0, 3.0]));
    }
}

#[test]
fn wrong_inputs_are_refused() {
    let executable = Executable::new(program(&example(), &inputs()).unwrap(), &NoWeights).unwrap();
    let mut context = executable.context();
    let run = |context: &mut _, inputs: &[&[f32]], out: &mut [f32]| {
        executable.run(context, inputs, &mut [out, &mut [0.0; 3]])
    };
    let error = run(&mut context, &[&[0.0; 3]], &mut [0.0; 2]).unwrap_err();
    assert_eq!(
        error,
        RunError::InputCount {
            expected: 3,
            got: 1
        }
    );
    let error = run(
        &mut context,
        &[&[0.0; 3], &[0.0; 5], &[0.0; 2]],
        &mut [0.0; 2],
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "input 1 has 6 elements, not 5"
    );
    let error = run(
        &mut context,
        &[&[0.0; 3], &[0.0; 6], &[0.0; 2]],
        &mut [0.0; 1],
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "output 0 has 2 elements, not 1"
    );
}

#[test]
fn what_is_not_known_is_named() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let found = call(&mut graph, "torch.bucketize", [x.into(), x.into()]);
    graph.output(found).unwrap();
    let error = program(&graph, &[tensor(&[3])]).unwrap_err();
    assert!(error.starts_with("node bucketize (torch.bucketize) cannot be compiled: "));
}

#[test]
fn values_that_are_read_later_keep_their_places() {
    // a = exp(x); b = exp(a); c = a + b; all but a are returned.
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let a = call(&mut graph, "torch.exp", [x.into()]);
    let b = call(&mut graph, "torch.exp", [a.into()]);
    let c = call(&mut graph, "operator.add", [a.into(), b.into()]);
    let d = call(&mut graph, "operator.mul", [c.into(), b.into()]);
    graph
        .output(Arg::tuple([d.into(), b.into()]).unwrap())
        .unwrap();
    let program = program(&graph, &[tensor(&[2])]).unwrap();
    let executable = Executable::new(program, &NoWeights).unwrap();
    let (mut first, mut second) = ([0.0; 2], [0.0; 2]);
    executable
        .run(
            &mut executable.context(),
            &[&[0.0, 1.0]],
            &mut [&mut first, &mut second],
        )
        .unwrap();
    for (at, x) in [0.0_f64, 1.0].into_iter().enumerate() {
        let (a, b) = (x.exp(), x.exp().exp());
        assert!((f64::from(first[at]) - (a + b) * b).abs() < 1e-4 * (a + b) * b);
        assert!((f64::from(second[at]) - b).abs() < 1e-5 * b);
    }
    // All of them lie in the two results.
    assert_eq!(executable.plan().size_bytes(), 0);
}

#[test]
fn products_read_transposed_matrices_where_they_lie() {
    let mut graph = Graph::new();
    let [x, y] = ["x", "y"].map(|name| graph.placeholder(name).unwrap());
    let turned = |graph: &mut Graph, of: NodeId| {
        call(graph, "torch.transpose", [of.into(), 0.into(), 1.into()])
    };
    let (left, right) = (turned(&mut graph, x), turned(&mut graph, y));
    let both = call(&mut graph, "torch.mm", [left.into(), right.into()]);
    let gram = call(&mut graph, "torch.mm", [left.into(), x.into()]);
    let results = [both, gram].map(Arg::from);
    graph.output(Arg::tuple(results).unwrap()).unwrap();
    let program = program(&graph, &[tensor(&[2, 3]), tensor(&[4, 2])]).unwrap();
    let steps: Vec<&str> = program.steps.iter().map(|step| step.op.name()).collect();
    assert_eq!(steps, ["matmul", "matmul"]);
    let executable = Executable::new(program, &NoWeights).unwrap();
    let (mut both, mut gram) = ([0.0; 12], [0.0; 9]);
    let inputs: [&[f32]; 2] = [
        &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 0.0],
    ];
    let mut context = executable.context();
    executable
        .run(&mut context, &inputs, &mut [&mut both, &mut gram])
        .unwrap();
    assert_eq!(
        both,
        [1.0, 4.0, 5.0, 2.0, 2.0, 5.0, 7.0, 4.0, 3.0, 6.0, 9.0, 6.0]
    );
    assert_eq!(gram, [17.0, 22.0, 27.0, 22.0, 29.0, 36.0, 27.0, 36.0, 45.0]);
}

/// Compiles `graph`, of matrices of these sizes, and runs it twice; the elements of input `n` are
/// `n + 1`.
fn run(graph: &Graph, sizes: &[[i64; 2]], results: &mut [Vec<f32>]) -> Plan {
    let types: Vec<Value> = sizes.iter().map(|size| tensor(size)).collect();
    let executable = Executable::new(program(graph, &types).unwrap(), &NoWeights).unwrap();
    let elements = |(number, size): (usize, &[i64; 2])| {
        vec![number as f32 + 1.0; usize::try_from(size[0] * size[1]).unwrap()]
    };
    let data: Vec<Vec<f32>> = sizes.iter().enumerate().map(elements).collect();
    let data: Vec<&[f32]> = data.iter().map(Vec::as_slice).collect();
    let mut context = executable.context();
    for _ in 0..2 {
        let results = results.iter_mut();
        let mut results: Vec<&mut [f32]> = results.map(Vec::as_mut_slice).collect();
        results.iter_mut().for_each(|result| result.fill(f32::NAN));
        executable.run(&mut context, &data, &mut results).unwrap();
    }
    executable.plan().clone()
}

fn product(graph: &mut Graph, x: NodeId, y: NodeId) -> NodeId {
    call(graph, "torch.mm", [x.into(), y.into()])
}

fn concat(graph: &mut Graph, parts: &[NodeId]) -> NodeId {
    let parts: Vec<Arg> = parts.iter().map(|&part| part.into()).collect();
    let parts = Arg::list(parts).unwrap();
    call(graph, "torch.cat", [parts, 1.into()])
}

#[test]
fn what_is_joined_is_computed_where_it_lies() {
    let mut graph = Graph::new();
    let [x, y, z] = ["x", "y", "z"].map(|name| graph.placeholder(name).unwrap());
    // Two joined to each other, then both to a third, as in DenseNet.
    let a = product(&mut graph, x, y);
    let b = product(&mut graph, x, z);
    let first = concat(&mut graph, &[a, b]);
    let c = call(&mut graph, "torch.softmax", [first.into(), 1.into()]);
    let second = concat(&mut graph, &[a, b, c]);
    let d = call(&mut graph, "torch.softmax", [second.into(), 1.into()]);
    let sum = call(&mut graph, "torch.sum", [first.into()]);
    graph
        .output(Arg::tuple([d.into(), sum.into()]).unwrap())
        .unwrap();
    let mut results = [vec![0.0; 128], vec![0.0]];
    let plan = run(&graph, &[[1, 2], [2, 32], [2, 32]], &mut results);
    // All of `second`, with `first` in it; no copies.
    assert_eq!(plan.size_bytes(), 128 * 4);
    let [a, b] = [4.0_f64, 6.0];
    let whole = 32.0 * (a.exp() + b.exp());
    let c = [a, b].map(|x| x.exp() / whole);
    let whole = whole + 32.0 * c.iter().map(|x| x.exp()).sum::<f64>();
    let expected = [a, b, c[0], c[1]].map(|x| x.exp() / whole);
    for (at, &got) in results[0].iter().enumerate() {
        assert!((f64::from(got) - expected[at / 32]).abs() < 1e-6);
    }
    assert_eq!(results[1], [320.0]);
}

#[test]
fn what_cannot_lie_in_two_places_is_copied() {
    let mut graph = Graph::new();
    let [x, y, z] = ["x", "y", "z"].map(|name| graph.placeholder(name).unwrap());
    let a = product(&mut graph, x, y);
    let b = product(&mut graph, x, z);
    let twice = concat(&mut graph, &[a, a, b]);
    let ab = concat(&mut graph, &[a, b]);
    let ba = concat(&mut graph, &[b, a]);
    let nested = concat(&mut graph, &[ba, twice, ab, x]);
    let parts = [twice, ab, ba, nested].map(|part| {
        let doubled = call(&mut graph, "operator.mul", [part.into(), 2.into()]);
        call(&mut graph, "torch.softmax", [doubled.into(), 0.into()]).into()
    });
    let summed = [twice, ab, ba, nested].map(|part| {
        let dims = Arg::list([0.into()]).unwrap();
        call(&mut graph, "torch.sum", [part.into(), dims]).into()
    });
    graph
        .output(Arg::tuple([parts, summed].concat()).unwrap())
        .unwrap();
    let sizes = [48, 32, 32, 114];
    let mut results: Vec<Vec<f32>> = sizes.iter().map(|&size| vec![0.0; size]).collect();
    results.extend(results.clone());
    run(&graph, &[[1, 2], [2, 16], [2, 16]], &mut results);
    let blocks: [&[f32]; 4] = [
        &[4.0, 4.0, 6.0],
        &[4.0, 6.0],
        &[6.0, 4.0],
        &[6.0, 4.0, 4.0, 4.0, 6.0, 4.0, 6.0],
    ];
    for (got, blocks) in results[4..].iter().zip(blocks) {
        let mut expected: Vec<f32> = blocks.iter().flat_map(|&block| [block; 16]).collect();
        // `x` itself.
        expected.resize(got.len(), 1.0);
        assert_eq!(got, &expected);
    }
    assert!(results[..4].iter().flatten().all(|&x| x == 1.0));
}

#[test]
fn results_hold_other_numbers_before_they_are_computed() {
    let mut graph = Graph::new();
    let [x, y] = ["x", "y"].map(|name| graph.placeholder(name).unwrap());
    let a = product(&mut graph, x, y);
    let b = call(&mut graph, "torch.softmax", [a.into(), 1.into()]);
    let c = product(&mut graph, b, y);
    let d = product(&mut graph, a, c);
    let e = concat(&mut graph, &[d, c]);
    graph
        .output(Arg::tuple([e.into(), d.into()]).unwrap())
        .unwrap();
    let mut results = [vec![0.0; 512], vec![0.0; 256]];
    let plan = run(&graph, &[[16, 16], [16, 16]], &mut results);
    // `a`, `b` and `c` lie in the first result or, as `e` is computed from it, one of them on its
    // own.
    assert_eq!(plan.size_bytes(), 256 * 4);
    // a = 32, b = 1 / 16, c = 2, d = 1024
    assert!(results[1].iter().all(|&x| x == 1024.0));
    for (at, &x) in results[0].iter().enumerate() {
        assert_eq!(x, if at % 32 < 16 { 1024.0 } else { 2.0 });
    }
}

#[test]
fn steps_of_other_types_are_an_error() {
    let mut program = program(&example(), &inputs()).unwrap();
    let value = program.steps[0].inputs[0];
    program.values[value.index()].element = Element::I64;
    let made = Executable::new(program, &NoWeights);
    assert_eq!(made.err(), Some(RunError::Mismatch { step: "matmul" }));
}

#[test]
fn epilogues_that_a_step_does_not_apply_are_an_error() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let flipped = call(
        &mut graph,
        "torch.flip",
        [x.into(), Arg::list([0.into()]).unwrap()],
    );
    graph.output(flipped).unwrap();
    let mut program = program(&graph, &[tensor(&[3])]).unwrap();
    program.steps[0]
        .epilogues
        .push(Epilogue::Unary(Unary::Relu));
    let made = Executable::new(program, &NoWeights);
    assert_eq!(made.err(), Some(RunError::Mismatch { step: "copy" }));
}

#[test]
fn fused_steps_of_integers_are_an_error() {
    let mut graph = Graph::new();
    let [x, y] = ["x", "y"].map(|name| graph.placeholder(name).unwrap());
    let product = call(&mut graph, "operator.mul", [x.into(), y.into()]);
    let positive = call(&mut graph, "torch.exp", [product.into()]);
    let sum = call(&mut graph, "operator.sub", [positive.into(), y.into()]);
    graph.output(sum).unwrap();
    let program = program(&graph, &[tensor(&[64]), tensor(&[64])]).unwrap();
    assert_eq!(
        program.to_string(),
        "%4[64] = fused(in0, in1): Mul, Exp, Sub\nreturn %4\n"
    );
    for value in [program.steps[0].inputs[1], program.steps[0].output] {
        let mut program = program.clone();
        program.values[value.index()].element = Element::I64;
        let made = Executable::new(program, &NoWeights);
        assert_eq!(made.err(), Some(RunError::Mismatch { step: "fused" }));
    }
}

#[test]
fn operators_that_are_never_run_are_an_error() {
    let mut program = program(&example(), &inputs()).unwrap();
    program.steps[0].epilogues.clear();
    program.steps[0].op = Op::BatchNorm { eps: 1e-5 };
    let executable = Executable::new(program, &NoWeights).unwrap();
    let run = executable.run(
        &mut executable.context(),
        &[&[1.0; 3], &[1.0; 6], &[1.0; 2]],
        &mut [&mut [0.0; 2], &mut [0.0; 3]],
    );
    let step = "batch_norm";
    assert_eq!(run, Err(RunError::Mismatch { step }));
}

#[test]
fn steps_without_their_operands_are_an_error() {
    let mut program = program(&example(), &inputs()).unwrap();
    program.steps[0].epilogues.clear();
    program.steps[0].op = Op::Binary(Binary::Add);
    program.steps[0].inputs.truncate(1);
    let executable = Executable::new(program, &NoWeights).unwrap();
    let run = executable.run(
        &mut executable.context(),
        &[&[1.0; 3], &[1.0; 6], &[1.0; 2]],
        &mut [&mut [0.0; 2], &mut [0.0; 3]],
    );
    assert_eq!(run, Err(RunError::Mismatch { step: "add" }));
}

#[test]
fn elements_that_a_step_does_not_compute_with_are_an_error() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let flipped = call(
        &mut graph,
        "torch.flip",
        [x.into(), Arg::list([0.into()]).unwrap()],
    );
    graph.output(flipped).unwrap();
    let mut program = program(&graph, &[tensor(&[3])]).unwrap();
    // A result of another type than the elements that are copied.
    let result = program.outputs()[0];
    program.values[result.index()].element = Element::I64;
    let executable = Executable::new(program, &NoWeights).unwrap();
    let mut out = [7; 3];
    let run = executable.run_typed(
        &mut executable.context(),
        &[Data::F32(&[1.0, 2.0, 3.0])],
        &mut [DataMut::I64(&mut out)],
    );
    assert_eq!(run, Err(RunError::Mismatch { step: "copy" }));
}

#[test]
fn values_that_were_not_computed_are_an_error() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let flipped = call(
        &mut graph,
        "torch.flip",
        [x.into(), Arg::list([0.into()]).unwrap()],
    );
    let product = call(&mut graph, "torch.matmul", [flipped.into(), x.into()]);
    graph.output(product).unwrap();
    let mut program = program(&graph, &[tensor(&[3, 3])]).unwrap();
    let missing = program.steps.remove(0).output.index();
    let executable = Executable::new(program, &NoWeights).unwrap();
    let run = executable.run(
        &mut executable.context(),
        &[&[1.0; 9]],
        &mut [&mut [7.0; 9]],
    );
    let (value, element) = (missing, "float32");
    assert_eq!(run, Err(RunError::MissingValue { value, element }));
}

#[test]
fn operands_of_another_type_than_is_read_are_an_error() {
    let mut graph = Graph::new();
    let [x, indices] = ["x", "indices"].map(|name| graph.placeholder(name).unwrap());
    let chosen = call(
        &mut graph,
        "torch.index_select",
        [x.into(), 0.into(), indices.into()],
    );
    graph.output(chosen).unwrap();
    let indices = Value::tensor(TensorType::new(DType::Int64, [Dim::Known(2)]));
    let mut program = program(&graph, &[tensor(&[3]), indices]).unwrap();
    let indices = program.steps[0].inputs[1];
    program.values[indices.index()].element = Element::F32;
    let executable = Executable::new(program, &NoWeights).unwrap();
    let run = executable.run(
        &mut executable.context(),
        &[&[1.0, 2.0, 3.0], &[0.0, 1.0]],
        &mut [&mut [0.0; 2]],
    );
    let (value, element) = (indices.index(), "int64");
    assert_eq!(run, Err(RunError::MissingValue { value, element }));
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let size = 1_i64 << 20;
    let [rows, columns] = [[size, 1], [1, size]].map(|sizes| {
        let sizes = Arg::list(sizes.map(Arg::from)).unwrap();
        graph.call_method("reshape", [x.into(), sizes]).unwrap()
    });
    let all = call(&mut graph, "torch.mul", [rows.into(), columns.into()]);
    let sum = call(&mut graph, "torch.sum", [all.into()]);
    graph.output(sum).unwrap();
    let executable = Executable::new(program(&graph, &[tensor(&[size])]).unwrap(), &NoWeights);
    let executable = executable.unwrap();
    let input = vec![0.0; 1 << 20];
    let run = executable.run(&mut executable.context(), &[&input], &mut [&mut [0.0]]);
    assert!(matches!(run, Err(RunError::OutOfMemory { size_bytes }) if size_bytes >= 4 << 40));
}
