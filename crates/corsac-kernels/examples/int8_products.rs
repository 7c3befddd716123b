//! Times products of bytes: `cargo run --release -p corsac-kernels --example int8_products`.
//!
//! Prints billions of multiply-adds per second, the best and the median of rounds, and the best per
//! cycle (the processor's clock is measured with a chain of additions); then, of few rows and weights
//! that are not in a cache, gigabytes of weights per second.

use std::hint::black_box;
use std::time::Instant;

use corsac_kernels::int8_unit::{COLUMNS, Int8Unit, Operands};

/// Multiply-adds of a round.
const WORK: usize = 100_000_000;
const ROUNDS: usize = 15;

fn main() {
    let clock = (0..100).map(|_| clock()).fold(0.0, f64::max);
    println!("clock {:.2} GHz", clock / 1e9);
    for unit in Int8Unit::all() {
        if unit == Int8Unit::portable() && unit != Int8Unit::detect() {
            break;
        }
        for rows in [1, 2, 4, 8, 12, 28, 56] {
            report_cold(unit, rows);
        }
        for depth in [64, 256, 576, 2048] {
            for rows in [1, 2, 4, 7, 12, 14, 49, 64, 256] {
                report(unit, rows, depth, clock);
            }
        }
    }
}

/// Times few rows, a panel after the other, of several matrices.
fn report_cold(unit: Int8Unit, rows: usize) {
    const DEPTH: usize = 4096;
    const PANELS: usize = 1024;
    let source = vec![3_u8; rows * DEPTH];
    let weights = vec![5_i8; DEPTH * COLUMNS * PANELS];
    let offsets: Vec<u32> = (0..rows).map(|row| (row * DEPTH) as u32).collect();
    let mut sums = vec![[0; COLUMNS]; rows];
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut panels = weights.chunks(DEPTH * COLUMNS).peekable();
        while let Some(weights) = panels.next() {
            let operands = Operands {
                source: &source,
                offsets: &offsets,
                depth: DEPTH,
                weights,
                ahead: panels.peek().copied().unwrap_or(&[]),
            };
            unit.multiply(black_box(&operands), &[0; COLUMNS], black_box(&mut sums));
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{:12} cold, depth {DEPTH} rows {rows:4}: {:5.1} GB/s, {:4.0} GMAC/s",
        unit.name(),
        weights.len() as f64 / best / 1e9,
        (rows * weights.len()) as f64 / best / 1e9
    );
}

fn report(unit: Int8Unit, rows: usize, depth: usize, clock: f64) {
    let source: Vec<u8> = (0..rows * depth).map(|at| (at * 37) as u8).collect();
    let weights: Vec<i8> = (0..depth * COLUMNS).map(|at| (at * 91) as i8).collect();
    let offsets: Vec<u32> = (0..rows).map(|row| (row * depth) as u32).collect();
    let operands = Operands {
        source: &source,
        offsets: &offsets,
        depth,
        weights: &weights,
        ahead: &[],
    };
    let mut sums = vec![[0; COLUMNS]; rows];
    let per_call = rows * depth * COLUMNS;
    let calls = (WORK / per_call).max(1);
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..calls {
                unit.multiply(black_box(&operands), &[0; COLUMNS], black_box(&mut sums));
            }
            start.elapsed().as_secs_f64() / calls as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let [best, median] = [times[0], times[ROUNDS / 2]].map(|time| per_call as f64 / time);
    println!(
        "{:12} depth {depth:5} rows {rows:4}: best {:6.0} median {:6.0} GMAC/s, {:6.1} per cycle",
        unit.name(),
        best / 1e9,
        median / 1e9,
        best / clock
    );
}

/// Cycles per second: additions that each need the one before take one.
#[cfg(target_arch = "x86_64")]
fn clock() -> f64 {
    const STEPS: u32 = 2_000_000;
    let start = Instant::now();
    let mut sum = 1_u64;
    for _ in 0..STEPS {
        // SAFETY: it touches a register alone.
        unsafe { std::arch::asm!("add {0}, {0}", inout(reg) sum, options(nomem, nostack, pure)) };
    }
    black_box(sum);
    f64::from(STEPS) / start.elapsed().as_secs_f64()
}

#[cfg(not(target_arch = "x86_64"))]
fn clock() -> f64 {
    f64::NAN
}
