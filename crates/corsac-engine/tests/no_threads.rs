//! A process that runs small programs starts no threads. A file of its own, with one test, since
//! other tests start threads.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure is a failed test"
)]

mod kit;

use std::fs;

use corsac_engine::Executable;
use corsac_ir::{Arg, Graph};
use corsac_ops::shape::Value;
use kit::{NoWeights, call, len, program, tensor};

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

type Shapes<'a> = &'a [&'a [i64]];

/// Compiles and runs a function of tensors of ones, with up to two threads. Returns whether the
/// program is small.
fn run(name: &str, shapes: Shapes<'_>, rest: &[Arg]) -> bool {
    let mut graph = Graph::new();
    let names = (0..shapes.len()).map(|at| format!("in{at}"));
    let inputs: Vec<Arg> = names
        .map(|name| Arg::from(graph.placeholder(&name).unwrap()))
        .collect();
    let result = call(
        &mut graph,
        name,
        inputs.into_iter().chain(rest.iter().cloned()),
    );
    graph.output(result).unwrap();
    let inputs: Vec<Value> = shapes.iter().map(|shape| tensor(shape)).collect();
    let executable = Executable::new(program(&graph, &inputs).unwrap(), &NoWeights).unwrap();
    let ones: Vec<Vec<f32>> = shapes.iter().map(|shape| vec![1.0; len(shape)]).collect();
    let inputs: Vec<&[f32]> = ones.iter().map(Vec::as_slice).collect();
    let program = executable.program();
    let mut out = vec![0.0; program.value(program.outputs()[0]).len()];
    let mut context = executable.context();
    let ran = executable.on_threads(2, || executable.run(&mut context, &inputs, &mut [&mut out]));
    ran.unwrap();
    executable.is_small()
}

#[test]
fn small_programs_start_no_threads() {
    let pair = |x: i64| Arg::list([x.into(), x.into()]).unwrap();
    let stride = [pair(3)];
    // Some of them are divided into several pieces of work for any number of threads.
    let small: [(&str, Shapes<'_>, &[Arg]); 6] = [
        ("torch.relu", &[&[20_000]], &[]),
        ("torch.matmul", &[&[16, 32], &[32, 32]], &[]),
        ("torch.bmm", &[&[7, 16, 16], &[7, 16, 8]], &[]),
        ("torch.nn.functional.linear", &[&[16, 32], &[80, 32]], &[]),
        (
            "torch.nn.functional.conv2d",
            &[&[2, 16, 9, 9], &[8, 16, 3, 3]],
            &[],
        ),
        (
            "torch.nn.functional.max_pool2d",
            &[&[3, 8, 20, 20]],
            &stride,
        ),
    ];
    let before = threads();
    for (name, shapes, rest) in small {
        assert!(run(name, shapes, rest), "{name}");
        assert_eq!(threads(), before, "{name}");
    }
    assert!(!run("torch.matmul", &[&[300, 300], &[300, 300]], &[]));
    assert_eq!(threads(), before + 2, "two threads for the product");
}
