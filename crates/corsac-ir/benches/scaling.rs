//! Time per node as graphs grow, and the size of a node.
//!
//! Prints every operation's time per node on 100 graphs of 10,000 nodes, on 10 of 100,000 and on
//! one of 1,000,000: as many nodes and as much memory each time, all of it made before the clock
//! starts, so that only the size of the graphs differs and not how much of them fits into the
//! processor's caches. Each size is measured in processes of its own, once in each, so that what an
//! operation makes lies in new memory whatever its size: an allocator keeps small pieces for the
//! next round and gives large ones back, and the kernel's new pages take longer than a node.
//! "Cached" is one graph of 10,000 nodes over and over in one process, for comparison.
//! Targets: at 1,000,000 within 1.5 times of 10,000; a million nodes built in 0.3 s; 250 bytes a
//! node.
//!
//! `cargo bench -p corsac-ir --bench scaling -- print copy` measures the operations whose names
//! contain one of these words.

use std::alloc::System;
use std::error::Error;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

mod operations;

use operations::Operation;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Nodes of one graph.
const SIZES: [usize; 3] = [10_000, 100_000, 1_000_000];

/// Nodes of all graphs together.
const TOTAL: usize = 1_000_000;

/// Processes started per measurement.
const PROCESSES: usize = 5;

/// The flag of such a process; operation and number of nodes follow.
const ONCE: &str = "--once";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name, nodes] = arguments.as_slice()
        && flag == ONCE
    {
        let operation = operations::OPERATIONS.iter().find(|own| own.name == name);
        let operation = operation.ok_or_else(|| format!("there is no operation {name:?}"))?;
        let nodes = nodes.parse()?;
        println!("{}", fastest(operation, nodes, TOTAL / nodes, 1)?);
        return Ok(());
    }
    let words: Vec<String> = arguments
        .into_iter()
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));

    println!(
        "{:<26}{:>10}{:>10}{:>10}{:>10}{:>10}  nanoseconds per node, best of several",
        "operation", "cached", "100x10k", "10x100k", "1x1M", "1M/10k"
    );
    for operation in operations::OPERATIONS {
        if !wanted(operation.name) {
            continue;
        }
        let cached = fastest(operation, SIZES[0], 1, 60)?;
        let mut per_node = [0.0; SIZES.len()];
        for (slot, nodes) in per_node.iter_mut().zip(SIZES) {
            *slot = fastest_process(operation, nodes)?;
        }
        let growth = per_node[2] / per_node[0];
        println!(
            "{:<26}{:>10.1}{:>10.1}{:>10.1}{:>10.1}{:>10.2}{}",
            operation.name,
            cached,
            per_node[0],
            per_node[1],
            per_node[2],
            growth,
            if growth <= 1.5 { "" } else { "  over 1.5" }
        );
    }

    println!(
        "\n{:<26}{:>10}{:>10}{:>10}",
        "a built graph", "10k", "100k", "1M"
    );
    let mut held = Vec::new();
    let mut peak_calls = Vec::new();
    let build = &operations::OPERATIONS[0];
    for nodes in SIZES {
        let mut subject = (build.prepare)(nodes)?;
        let region = Region::new(ALLOCATOR);
        let graph = (build.run)(&mut subject)?;
        let change = region.change();
        drop(graph);
        held.push((change.bytes_allocated - change.bytes_deallocated) as f64 / nodes as f64);
        peak_calls.push((change.allocations + change.reallocations) as f64 / nodes as f64);
    }
    let cells =
        |values: &[f64]| -> String { values.iter().map(|v| format!("{v:>10.1}")).collect() };
    println!("{:<26}{}", "bytes per node", cells(&held));
    println!("{:<26}{}", "allocations per node", cells(&peak_calls));
    Ok(())
}

/// The shortest time of [`PROCESSES`] processes, in nanoseconds per node.
fn fastest_process(operation: &Operation, nodes: usize) -> Result<f64, Box<dyn Error>> {
    let mut best = f64::INFINITY;
    for _ in 0..PROCESSES {
        let output = Command::new(std::env::current_exe()?)
            .args([ONCE, operation.name, &nodes.to_string()])
            .stderr(Stdio::inherit())
            .output()?;
        best = best.min(String::from_utf8(output.stdout)?.trim().parse()?);
    }
    Ok(best)
}

/// The shortest time of `rounds` runs, each on new graphs, in nanoseconds per node.
fn fastest(
    operation: &Operation,
    nodes: usize,
    graphs: usize,
    rounds: usize,
) -> Result<f64, Box<dyn Error>> {
    let mut best = Duration::MAX;
    for _ in 0..rounds {
        let subjects = (0..graphs).map(|_| (operation.prepare)(nodes));
        let mut subjects = subjects.collect::<Result<Vec<_>, _>>()?;
        let mut made = Vec::with_capacity(graphs);
        let start = Instant::now();
        for subject in &mut subjects {
            made.push((operation.run)(subject)?);
        }
        best = best.min(start.elapsed());
    }
    Ok(best.as_secs_f64() * 1e9 / (nodes * graphs) as f64)
}
