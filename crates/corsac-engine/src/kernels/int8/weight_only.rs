//! Linear layers over rows of numbers, with weights of integers.

use std::ops::Range;
use std::sync::Arc;

use corsac_kernels::weight_only::{Bits, CHUNK, PANEL, Scales, Weights, pack};
use half::f16;
use rayon::prelude::*;

use super::{QuantisedWeight, space};
use crate::aligned_buffer::AlignedBuffer;
use crate::kernels::ApplyEpilogue;
use crate::kernels::blocked::linear::{self, LinearKernel, Widen};
use crate::kernels::piece::pieces;
use crate::parallel::{Parallel, thread_count};

/// From this many rows on, it is faster to widen weights once for all rows, unless bytes are multiplied.
const MANY: usize = 16;

/// `x @ weight.T + bias` with the weight packed.
#[derive(Debug)]
pub struct WeightOnlyLinear {
    weight: Arc<Packed>,
    bias: Vec<f32>,
}

#[derive(Debug)]
struct Packed {
    bits: Bits,
    packed: AlignedBuffer,
    group: usize,
    scales: OwnScales,
    /// Laid out as the scales are; none if all are zero.
    zero_points: Vec<i8>,
    outputs: usize,
    inputs: usize,
}

#[derive(Debug)]
enum OwnScales {
    Single(Vec<f32>),
    Half(Vec<u16>),
}

/// Number of single-precision elements of the workspace of [`WeightOnlyLinear::run`], for a weight of
/// these sizes: outputs and inputs.
#[must_use]
pub fn workspace_len(rows: usize, [outputs, inputs]: [usize; 2]) -> usize {
    match rows < MANY {
        true => 0,
        false => linear::workspace_len(rows, [outputs, inputs]),
    }
}

impl WeightOnlyLinear {
    /// Packs a weight of these numbers of outputs and inputs; `None` if there is no kernel for its
    /// groups or zero points.
    pub(crate) fn new(
        weight: &QuantisedWeight<'_>,
        [outputs, inputs]: [usize; 2],
        bias: Option<&[f32]>,
    ) -> Option<Self> {
        let [group, repeat] = weight.period(&[outputs, inputs]);
        let group = group.min(inputs);
        if inputs == 0 || outputs == 0 || (group < inputs && group % CHUNK != 0) {
            return None;
        }
        let (integers, moved) = weight.signed();
        let groups = inputs.div_ceil(group);
        let panels = outputs.div_ceil(PANEL);
        // The scale of a group of an output.
        let place = |output: usize, at: usize| (output * groups + at) % repeat;
        // For each panel, for each group, for each column.
        let laid_out = |of: &dyn Fn(usize) -> f32| -> Vec<f32> {
            let all = 0..panels * groups * PANEL;
            let all = all.map(|at| {
                let (panel, rest) = (at / (groups * PANEL), at % (groups * PANEL));
                let (own, output) = (rest / PANEL, panel * PANEL + rest % PANEL);
                if output < outputs {
                    of(place(output, own))
                } else {
                    0.0
                }
            });
            all.collect()
        };
        let mut zero_points = Vec::new();
        if moved != 0 || weight.zero_points.iter().any(|&zero| zero != 0.0) {
            let of =
                |at: usize| weight.zero_points.get(at).copied().unwrap_or(0.0) - f32::from(moved);
            for zero in laid_out(&of) {
                let byte = zero as i8;
                if f32::from(byte) != zero {
                    return None;
                }
                zero_points.push(byte);
            }
        }
        let four = integers.iter().all(|integer| (-8..8).contains(integer))
            && zero_points.iter().all(|zero| (-8..8).contains(zero));
        let bits = if four { Bits::Four } else { Bits::Eight };
        let len = bits.panel_len(inputs);
        let mut packed = AlignedBuffer::zeros(space(panels * len));
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut packed);
        bytes[..panels * len]
            .par_chunks_exact_mut(len)
            .enumerate()
            .with_min_len(crate::kernels::GRAIN.div_ceil(len))
            .run_parallel(|(panel, packed)| {
                pack(bits, packed, inputs, |column, input| {
                    let output = panel * PANEL + column;
                    if output < outputs {
                        integers[output * inputs + input]
                    } else {
                        0
                    }
                });
            });
        let scales = laid_out(&|at| weight.scales[at]);
        let half: Vec<f16> = scales.iter().map(|&scale| f16::from_f32(scale)).collect();
        let is_half = half
            .iter()
            .zip(&scales)
            .all(|(half, &scale)| half.to_f32() == scale);
        let weight = Packed {
            bits,
            packed,
            group,
            scales: match is_half {
                true => OwnScales::Half(half.into_iter().map(f16::to_bits).collect()),
                false => OwnScales::Single(scales),
            },
            zero_points,
            outputs,
            inputs,
        };
        Some(Self {
            weight: Arc::new(weight),
            bias: bias.map_or_else(Vec::new, <[f32]>::to_vec),
        })
    }

    /// Writes a row of outputs for each row of `input`. Calls `epilogue(at, chunk)` with each piece
    /// of the result, which begins at element `at`.
    pub fn run(
        &self,
        input: &[f32],
        workspace: &mut [f32],
        out: &mut [f32],
        epilogue: ApplyEpilogue<'_>,
    ) {
        if out.is_empty() {
            return;
        }
        let Packed {
            outputs, inputs, ..
        } = *self.weight;
        let rows = out.len() / outputs;
        let weights = self.weight.weights();
        let prepared = weights.rows(input);
        if rows >= MANY && !prepared.are_bytes() {
            let weight = Arc::clone(&self.weight) as Arc<dyn Widen>;
            let bias = (!self.bias.is_empty()).then_some(&*self.bias);
            let kernel = LinearKernel::of_other(weight, [outputs, inputs], bias, rows);
            kernel.run(input, workspace, out, epilogue);
            return;
        }
        let threads = thread_count();
        let wanted = if threads == 1 { 1 } else { 4 * threads };
        let panels = outputs.div_ceil(PANEL);
        let width = panels.div_ceil(wanted.min(panels)) * PANEL;
        let parts = pieces(out, outputs, [rows, width]);
        parts.into_par_iter().run_parallel(|mut piece| {
            let columns = piece.rows.first().map_or(0, |row| row.len());
            let first = piece.column / PANEL;
            let own = weights.range(first..first + columns.div_ceil(PANEL));
            let bias = self.bias.get(piece.column..piece.column + columns);
            own.multiply(&prepared, columns, |row, column, sums| {
                let to = &mut piece.rows[row][column..][..sums.len()];
                match bias {
                    Some(bias) => {
                        let sums = sums.iter().zip(&bias[column..]);
                        let sums = sums.map(|(sum, bias)| sum + bias);
                        to.iter_mut().zip(sums).for_each(|(to, sum)| *to = sum);
                    }
                    None => to.copy_from_slice(sums),
                }
            });
            for (at, row) in piece.rows.iter_mut().enumerate() {
                epilogue((piece.row + at) * outputs + piece.column, row);
            }
        });
    }
}

impl Packed {
    fn weights(&self) -> Weights<'_> {
        let len = self.outputs.div_ceil(PANEL) * self.bits.panel_len(self.inputs);
        Weights {
            bits: self.bits,
            packed: &bytemuck::cast_slice(&self.packed)[..len],
            depth: self.inputs,
            group: self.group,
            scales: match &self.scales {
                OwnScales::Single(scales) => Scales::Single(scales),
                OwnScales::Half(scales) => Scales::Half(scales),
            },
            zero_points: (!self.zero_points.is_empty()).then_some(&self.zero_points),
        }
    }
}

impl Widen for Packed {
    fn widen(&self, outputs: Range<usize>, inputs: Range<usize>, to: &mut [f32]) {
        self.weights().widen(outputs, inputs, to);
    }
}
