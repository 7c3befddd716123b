//! Does the time per node stay the same as the graph grows, and how large is a node?
//!
//! Prints every operation's time per node at 10,000, 100,000 and 1,000,000 nodes, and the bytes per
//! node of a built graph. Targets: at 1,000,000 within 1.5 times of 10,000; a million nodes built
//! in 0.3 s; 250 bytes a node.

use std::alloc::System;
use std::error::Error;
use std::time::{Duration, Instant};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

mod operations;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SIZES: [usize; 3] = [10_000, 100_000, 1_000_000];

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:<26}{:>10}{:>10}{:>10}{:>10}  nanoseconds per node, best of several",
        "operation", "10k", "100k", "1M", "1M/10k"
    );
    for operation in operations::OPERATIONS {
        let mut per_node = [0.0; SIZES.len()];
        for (slot, nodes) in per_node.iter_mut().zip(SIZES) {
            let rounds = (3_000_000 / nodes).clamp(5, 60);
            *slot = fastest(operation, nodes, rounds)?.as_secs_f64() * 1e9 / nodes as f64;
        }
        let growth = per_node[2] / per_node[0];
        println!(
            "{:<26}{:>10.1}{:>10.1}{:>10.1}{:>10.2}{}",
            operation.name,
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
        (build.run)(&mut subject)?;
        let change = region.change();
        held.push((change.bytes_allocated - change.bytes_deallocated) as f64 / nodes as f64);
        peak_calls.push((change.allocations + change.reallocations) as f64 / nodes as f64);
    }
    let cells =
        |values: &[f64]| -> String { values.iter().map(|v| format!("{v:>10.1}")).collect() };
    println!("{:<26}{}", "bytes per node", cells(&held));
    println!("{:<26}{}", "allocations per node", cells(&peak_calls));
    Ok(())
}

/// The shortest of some runs, each on a graph of its own.
fn fastest(
    operation: &operations::Operation,
    nodes: usize,
    rounds: usize,
) -> Result<Duration, Box<dyn Error>> {
    let mut best = Duration::MAX;
    for _ in 0..rounds {
        let mut subject = (operation.prepare)(nodes)?;
        let start = Instant::now();
        (operation.run)(&mut subject)?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}
