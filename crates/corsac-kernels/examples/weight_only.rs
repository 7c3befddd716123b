//! Times products of few rows with weights of 4 and 8 bits, and with single-precision weights, in
//! turns, of matrices that are cold: `cargo run --release -p corsac-kernels --example weight_only`.

use std::hint::black_box;
use std::time::Instant;

use corsac_kernels::weight_only::{Bits, PANEL, Scales, Weights, pack};

const DEPTH: usize = 4096;
const COLUMNS: usize = 4096;
const ROUNDS: usize = 9;
/// Bytes that are read of each kind of matrix before one is read again: more than the caches hold.
const COLD: usize = 192 << 20;

struct Matrix {
    bits: Bits,
    packed: Vec<u8>,
    group: usize,
    scales: Vec<u16>,
}

impl Matrix {
    fn weights(&self) -> Weights<'_> {
        Weights {
            bits: self.bits,
            packed: &self.packed,
            depth: DEPTH,
            group: self.group,
            scales: Scales::Half(&self.scales),
            zero_points: None,
        }
    }
}

fn main() {
    let int8 = |group| matrices(Bits::Eight, group);
    let int4 = |group| matrices(Bits::Four, group);
    let kinds = [
        ("int8, groups of 128", int8(128)),
        ("int8, a scale per column", int8(DEPTH)),
        ("int4, groups of 32", int4(32)),
        ("int4, groups of 128", int4(128)),
    ];
    let singles: Vec<Vec<f32>> = (0..COLD / (DEPTH * COLUMNS * 4))
        .map(|_| (0..DEPTH * COLUMNS).map(|at| (at % 255) as f32).collect())
        .collect();
    for (name, matrices) in &kinds {
        let mut to = vec![1.0_f32; DEPTH * PANEL];
        let start = Instant::now();
        for first in (0..COLUMNS).step_by(PANEL) {
            let weights = matrices[0].weights();
            weights.widen(first..first + PANEL, 0..DEPTH, &mut to);
            black_box(&mut to);
        }
        println!(
            "widened {name}: {:.1} ms",
            start.elapsed().as_secs_f64() * 1e3
        );
    }
    for rows in [1, 2, 3, 4, 8, 12, 48] {
        let x = vec![0.5_f32; rows * DEPTH];
        let mut to = vec![0.0; rows * COLUMNS];
        let mut times = vec![Vec::new(); kinds.len() + 1];
        for round in 0..ROUNDS {
            for (own, (_, matrices)) in times[1..].iter_mut().zip(&kinds) {
                let start = Instant::now();
                for matrix in matrices {
                    let weights = matrix.weights();
                    let prepared = weights.rows(black_box(&x));
                    weights.multiply(&prepared, COLUMNS, |row, column, sums| {
                        to[row * COLUMNS + column..][..sums.len()].copy_from_slice(sums);
                    });
                }
                own.push(start.elapsed().as_secs_f64() / matrices.len() as f64);
            }
            if rows == 1 || round == 0 {
                let start = Instant::now();
                for matrix in &singles {
                    single(black_box(&x[..DEPTH]), matrix, &mut to);
                }
                times[0].push(start.elapsed().as_secs_f64() / singles.len() as f64);
            }
        }
        for own in &mut times {
            own.sort_by(f64::total_cmp);
        }
        let base = times[0][0];
        println!(
            "{rows} rows, as against f32 row by row: a row best {:.3} ms",
            base * 1e3
        );
        for (own, (name, matrices)) in times[1..].iter().zip(&kinds) {
            let bytes = matrices[0].packed.len() + 2 * matrices[0].scales.len();
            println!(
                "  {name:26} best {:.3} median {:.3} ms, {:5.1} GB/s, {:4.0} GMAC/s, {:.2} times as fast",
                own[0] * 1e3,
                own[own.len() / 2] * 1e3,
                bytes as f64 / own[0] / 1e9,
                (rows * DEPTH * COLUMNS) as f64 / own[0] / 1e9,
                rows as f64 * base / own[0]
            );
        }
    }
}

fn matrices(bits: Bits, group: usize) -> Vec<Matrix> {
    let len = bits.panel_len(DEPTH);
    let mut packed = vec![0; len * COLUMNS / PANEL];
    for panel in packed.chunks_mut(len) {
        pack(bits, panel, DEPTH, |column, row| {
            ((column * 5 + row * 3) % 16) as i8 - 8
        });
    }
    let scales = vec![0x3c00; COLUMNS * DEPTH / group];
    let count = COLD / packed.len();
    let copy = |_| Matrix {
        bits,
        packed: packed.clone(),
        group,
        scales: scales.clone(),
    };
    (0..count).map(copy).collect()
}

/// A row times single-precision weights, in the same panels, prefetched as far ahead.
fn single(x: &[f32], weights: &[f32], to: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has the instructions.
        return unsafe { single_avx512(x, weights, to) };
    }
    plain(x, weights, to);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn single_avx512(x: &[f32], weights: &[f32], to: &mut [f32]) {
    plain(x, weights, to);
}

#[inline(always)]
fn plain(x: &[f32], weights: &[f32], to: &mut [f32]) {
    for (panel, to) in weights.chunks(PANEL * x.len()).zip(to.chunks_mut(PANEL)) {
        let mut sums = [[0.0_f32; PANEL]; 2];
        for (x, weights) in x.chunks(2).zip(panel.chunks(2 * PANEL)) {
            #[cfg(target_arch = "x86_64")]
            for line in weights.chunks(16) {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                let far = line.as_ptr().wrapping_byte_add(8192);
                // SAFETY: prefetching has no effect that a program can observe.
                unsafe { _mm_prefetch(far.cast(), _MM_HINT_T0) };
            }
            for (part, (x, weights)) in sums.iter_mut().zip(x.iter().zip(weights.chunks(PANEL))) {
                for (sum, weight) in part.iter_mut().zip(weights) {
                    *sum = x.mul_add(*weight, *sum);
                }
            }
        }
        for (lane, to) in to.iter_mut().enumerate() {
            *to = sums[0][lane] + sums[1][lane];
        }
    }
}
