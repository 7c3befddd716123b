//! Time per node of every pass, which must not grow with the graph.
//!
//! Prints nanoseconds per node at 10,000, 100,000 and 1,000,000 nodes, best of several runs.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use corsac_ir::{Arg, Graph, NodeId};
use corsac_passes::common_subexpressions::CommonSubexpressions;
use corsac_passes::dead_code::DeadCode;
use corsac_passes::{Budget, Context, Pass, PassError, run as run_in_context};

const SIZES: [usize; 3] = [10_000, 100_000, 1_000_000];

type Failure = Box<dyn Error>;

struct Bench {
    name: &'static str,
    build: fn(usize) -> Result<Graph, Failure>,
    run: fn(&mut Graph) -> Result<usize, PassError>,
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "dce, half dead",
        build: |nodes| chain(nodes, "torch.mul"),
        run: eliminate_dead,
    },
    Bench {
        name: "dce, nothing dead",
        build: |nodes| chain(nodes, "torch._assert"),
        run: eliminate_dead,
    },
    Bench {
        name: "dce, half write to views",
        build: writes,
        run: eliminate_dead,
    },
    Bench {
        name: "cse, all different",
        build: |nodes| chain(nodes, "torch.mul"),
        run: share,
    },
    Bench {
        name: "cse, half the same",
        build: twins,
        run: share,
    },
    Bench {
        name: "cse, all in one list",
        build: one_list,
        run: share,
    },
];

fn run_pass(pass: &dyn Pass, graph: &mut Graph) -> Result<usize, PassError> {
    let mut budget = Budget::unlimited();
    Ok(
        run_in_context(pass, graph, &mut Context::within(&mut budget))?
            .edits
            .erased
            .len(),
    )
}

fn eliminate_dead(graph: &mut Graph) -> Result<usize, PassError> {
    run_pass(&DeadCode::default(), graph)
}

fn share(graph: &mut Graph) -> Result<usize, PassError> {
    run_pass(&CommonSubexpressions::default(), graph)
}

/// A chain of sums, with an unused call beside each.
fn chain(nodes: usize, beside: &str) -> Result<Graph, Failure> {
    let mut graph = Graph::new();
    let (add, beside) = (graph.function("torch.add"), graph.function(beside));
    let mut last = graph.placeholder("x")?;
    for _ in 0..nodes / 2 {
        graph.call_function(beside, [last.into(), 2.0.into()])?;
        last = graph.call_function(add, [last.into(), 1.0.into()])?;
    }
    graph.output(last)?;
    Ok(graph)
}

/// A chain of copies, each written to through a view.
fn writes(nodes: usize) -> Result<Graph, Failure> {
    let mut graph = Graph::new();
    let mut last = graph.placeholder("x")?;
    for _ in 0..nodes / 4 {
        last = graph.call_method("clone", [last.into()])?;
        let view = graph.call_method("view", [last.into(), (-1).into()])?;
        graph.call_method("add_", [view.into(), 1.into()])?;
        graph.call_method("neg", [last.into()])?;
    }
    graph.output(last)?;
    Ok(graph)
}

/// A chain of sums of two equal values.
fn twins(nodes: usize) -> Result<Graph, Failure> {
    let mut graph = Graph::new();
    let (add, cos) = (graph.function("torch.add"), graph.function("torch.cos"));
    let mut last = graph.placeholder("x")?;
    for _ in 0..nodes / 3 {
        let a = graph.call_function(cos, [last.into()])?;
        let b = graph.call_function(cos, [last.into()])?;
        last = graph.call_function(add, [a.into(), b.into()])?;
    }
    graph.output(last)?;
    Ok(graph)
}

/// Equal values, all used by one node.
fn one_list(nodes: usize) -> Result<Graph, Failure> {
    let mut graph = Graph::new();
    let (cat, cos) = (graph.function("torch.cat"), graph.function("torch.cos"));
    let x = graph.placeholder("x")?;
    let values = (0..nodes).map(|_| graph.call_function(cos, [x.into()]));
    let values = values.collect::<Result<Vec<NodeId>, _>>()?;
    let list: corsac_ir::ThinVec<Arg> = values.into_iter().map(Arg::from).collect();
    let result = graph.call_function(cat, [Arg::list(list)?])?;
    graph.output(result)?;
    Ok(graph)
}

fn main() -> Result<(), Failure> {
    println!(
        "{:<26}{:>10}{:>10}{:>10}{:>10}  nanoseconds per node, best of several",
        "pass", "10k", "100k", "1M", "1M/10k"
    );
    for bench in BENCHES {
        let mut per_node = [0.0; SIZES.len()];
        for (slot, nodes) in per_node.iter_mut().zip(SIZES) {
            let graph = (bench.build)(nodes)?;
            let mut best = Duration::MAX;
            for _ in 0..(2_000_000 / nodes).clamp(3, 20) {
                let mut subject = graph.clone();
                let start = Instant::now();
                black_box((bench.run)(&mut subject)?);
                best = best.min(start.elapsed());
            }
            *slot = best.as_secs_f64() * 1e9 / nodes as f64;
        }
        println!(
            "{:<26}{:>10.1}{:>10.1}{:>10.1}{:>10.2}",
            bench.name,
            per_node[0],
            per_node[1],
            per_node[2],
            per_node[2] / per_node[0]
        );
    }
    Ok(())
}
