//! Convolutions and linear layers in bfloat16, by the unit of the processor for them.
//!
//! Operands are rounded and divided into runs of 32 numbers (channels of a pixel, features of a
//! row), one run after the other; weights are rounded when they are packed. Sums and results are in
//! single precision.

pub mod conv;
pub mod linear;

use std::cell::RefCell;

use corsac_kernels::bf16::Bf16;
use corsac_kernels::bf16_unit::{self, Bf16Unit, COLUMNS, Operands, ROWS, RUN, Sums, WEIGHTS_LEN};
use rayon::prelude::*;

use crate::aligned_buffer::AlignedBuffer;
use crate::parallel::Parallel;
use crate::program::Precision;

impl Precision {
    /// The unit for products of bfloat16 numbers, if they are wanted and the processor has one.
    pub(crate) fn bf16_unit(self) -> Option<Bf16Unit> {
        match self {
            Self::F32 => None,
            Self::Bf16 => Bf16Unit::detect(),
        }
    }

    /// The precision that is used on this processor: bfloat16 only where there is a
    /// unit for it.
    #[must_use]
    pub fn effective(self) -> Self {
        self.bf16_unit().map_or(Self::F32, |_| self)
    }
}

/// Number of runs that are multiplied with their weights before the next rows are: their weights,
/// 32 KB, stay in the first-level cache.
const RUNS: usize = 16;
/// Number of products that are summed at a time: 4, whose sums stay in the first-level cache, if
/// all runs are multiplied at once; otherwise 32, whose sums stay in the second-level cache.
const PRODUCTS: [usize; 2] = [4, 32];

/// Weights of outputs, packed for the unit.
#[derive(Debug)]
struct Panels {
    unit: Bf16Unit,
    /// For each 32 outputs, for each run, bfloat16 numbers.
    weights: AlignedBuffer,
    runs: usize,
    /// For all outputs, padded with zeros.
    bias: Vec<f32>,
}

impl Panels {
    /// Packs `runs` runs of weights for `outputs` outputs; `weight(output, run, at)` is one weight.
    fn new(
        unit: Bf16Unit,
        outputs: usize,
        runs: usize,
        bias: Option<&[f32]>,
        weight: impl Fn(usize, usize, usize) -> Bf16 + Sync,
    ) -> Self {
        let panels = outputs.div_ceil(COLUMNS);
        let mut own = vec![0.0; panels * COLUMNS];
        if let Some(bias) = bias {
            own[..outputs].copy_from_slice(bias);
        }
        let mut weights = AlignedBuffer::zeros(room(panels * runs * WEIGHTS_LEN));
        bytemuck::cast_slice_mut(&mut weights)
            .par_chunks_exact_mut(WEIGHTS_LEN)
            .enumerate()
            .with_min_len(RUNS)
            .run_parallel(|(at, packed)| {
                let (panel, run) = (at / runs, at % runs);
                bf16_unit::pack(packed, |column, row| {
                    let output = panel * COLUMNS + column;
                    match output < outputs {
                        true => weight(output, run, row),
                        false => 0,
                    }
                });
            });
        Self {
            unit,
            weights,
            runs,
            bias: own,
        }
    }

    fn count(&self) -> usize {
        self.bias.len() / COLUMNS
    }

    /// Computes the 32 outputs of a panel for `count` rows that begin at element `start` of the
    /// source. Calls `write(row, sums)` for 32 rows at a time, with the first row and the sums to
    /// store.
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
                let rows = count.min(batch.end * ROWS) - (batch.end - 1) * ROWS;
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
                    self.unit.multiply(&operands, firsts, rows, sums);
                }
                for (at, sums) in batch.zip(sums) {
                    write(at * ROWS, sums);
                }
            }
        });
    }
}

/// Scratch memory of a thread, kept for the next call.
#[derive(Default)]
struct Scratch {
    firsts: Vec<usize>,
    sums: Vec<Sums>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Number of elements that the last product may read past the last row.
const SLACK: usize = ROWS * RUN;

/// Number of single-precision elements that take as much memory as `len` bfloat16 numbers.
const fn room(len: usize) -> usize {
    len.div_ceil(2)
}
