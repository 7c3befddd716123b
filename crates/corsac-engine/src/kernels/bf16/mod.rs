//! Convolutions and linear layers of numbers that are rounded to bfloat16, in tiles.
//!
//! What a kernel reads is rounded and put in runs of 32 numbers (channels of a pixel, features of a
//! row), a run behind the other; weights are rounded when they are packed. Sums, and what comes of
//! them, are in single precision.

pub mod conv;
pub mod linear;

use std::cell::RefCell;

use corsac_kernels::amx::{self, Amx, COLUMNS, Operands, ROWS, RUN, Sums, WEIGHTS_LEN};
use corsac_kernels::bf16::{Bf16, rounded};
use rayon::prelude::*;

use crate::lines::Lines;
use crate::spread::Spread;

/// How many runs are multiplied with their weights before the next rows are: their weights, 32 KB, stay
/// in the first-level cache.
const RUNS: usize = 16;
/// How many products are summed up at a time: their sums stay in the second-level cache, those of
/// products that are done at once in the first.
const PRODUCTS: [usize; 2] = [4, 32];

/// Weights of outputs, packed for tiles.
#[derive(Debug)]
struct Panels {
    amx: Amx,
    /// For each 32 outputs, for each run, bfloat16 numbers.
    weights: Lines,
    runs: usize,
    /// Of all outputs; zeros behind.
    bias: Vec<f32>,
}

impl Panels {
    /// Packs `runs` runs of weights of `outputs` outputs; `weight(output, run, at)` is one of them.
    fn new(
        amx: Amx,
        outputs: usize,
        runs: usize,
        bias: Option<&[f32]>,
        weight: impl Fn(usize, usize, usize) -> f32 + Sync,
    ) -> Self {
        let panels = outputs.div_ceil(COLUMNS);
        let mut own = vec![0.0; panels * COLUMNS];
        if let Some(bias) = bias {
            own[..outputs].copy_from_slice(bias);
        }
        let mut weights = Lines::zeros(room(panels * runs * WEIGHTS_LEN));
        bytemuck::cast_slice_mut(&mut weights)
            .par_chunks_exact_mut(WEIGHTS_LEN)
            .enumerate()
            .with_min_len(RUNS)
            .spread(|(at, packed)| {
                let (panel, run) = (at / runs, at % runs);
                amx::pack(packed, |column, row| {
                    let output = panel * COLUMNS + column;
                    match output < outputs {
                        true => rounded(weight(output, run, row)),
                        false => 0,
                    }
                });
            });
        Self {
            amx,
            weights,
            runs,
            bias: own,
        }
    }

    fn count(&self) -> usize {
        self.bias.len() / COLUMNS
    }

    /// Computes 32 outputs, of a panel, for `count` rows that begin at the element `start` of the
    /// source. `write(row, sums)` is called with 32 rows at a time: the first, and what to store.
    fn run(
        &self,
        panel: usize,
        source: &[Bf16],
        taps: &[usize],
        start: usize,
        count: usize,
        mut write: impl FnMut(usize, &Sums),
    ) {
        let all: &[Bf16] = bytemuck::cast_slice(&self.weights);
        let bias = &self.bias[panel * COLUMNS..][..COLUMNS];
        let weights = panel * self.runs * WEIGHTS_LEN;
        let products = count.div_ceil(ROWS);
        let batch = PRODUCTS[usize::from(self.runs > RUNS)];
        SCRATCH.with_borrow_mut(|Scratch { firsts, sums }| {
            for batch_start in (0..products).step_by(batch) {
                let batch = batch_start..products.min(batch_start + batch);
                firsts.clear();
                firsts.extend(batch.clone().map(|at| start + at * ROWS * RUN));
                sums.resize(sums.len().max(firsts.len()), Sums([0.0; ROWS * COLUMNS]));
                let sums = &mut sums[..firsts.len()];
                for sums in &mut *sums {
                    for row in sums.0.chunks_exact_mut(COLUMNS) {
                        row.copy_from_slice(bias);
                    }
                }
                for (at, taps) in taps.chunks(RUNS).enumerate() {
                    let own = weights + at * RUNS * WEIGHTS_LEN;
                    let len = taps.len() * WEIGHTS_LEN;
                    let ahead = &all[own + len..];
                    let operands = Operands {
                        source,
                        taps,
                        weights: &all[own..][..len],
                        ahead: &ahead[..ahead.len().min(len)],
                    };
                    self.amx.multiply(&operands, firsts, sums);
                }
                for (at, sums) in batch.zip(sums) {
                    write(at * ROWS, sums);
                }
            }
        });
    }
}

/// What a thread keeps for the next call.
#[derive(Default)]
struct Scratch {
    firsts: Vec<usize>,
    sums: Vec<Sums>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// How many elements the last product may read past the last row.
const SLACK: usize = ROWS * RUN;

/// How many numbers of single precision take as much room as `len` bfloat16 numbers.
const fn room(len: usize) -> usize {
    len.div_ceil(2)
}
