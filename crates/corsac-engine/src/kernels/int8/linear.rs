//! Linear layers over quantised rows, with weights of integers.

use corsac_kernels::int8::{Epilogue, RowScales, rows};
use corsac_kernels::int8_unit::{COLUMNS, Operands, QUAD, Sums};
use rayon::prelude::*;

use super::{Panels, QuantisedWeight, space, to_bytes, unsigned};
use crate::kernels::ApplyEpilogue;
use crate::kernels::piece::{Piece, pieces};
use crate::parallel::{Parallel, thread_count};
use crate::program::Rounding;

/// Rows that are multiplied with a panel at a time: their sums, 16 KB, stay in the first-level cache.
const ROWS: usize = 128;

/// `x @ weight.T + bias`, with rows rounded to bytes.
#[derive(Debug)]
pub struct Int8Linear {
    panels: Panels,
    rounding: Rounding,
    outputs: usize,
    inputs: usize,
    /// Bytes of a row, with those that fill its last quad.
    depth: usize,
}

/// Number of single-precision elements of the workspace of [`Int8Linear::run`].
#[must_use]
pub fn workspace_len(rows: usize, inputs: usize) -> usize {
    space(rows * inputs.next_multiple_of(QUAD)) + 2 * rows
}

impl Int8Linear {
    /// Packs a weight of these numbers of outputs and inputs; `None` if it has integers that bytes do
    /// not hold, or too many in a row.
    pub(crate) fn new(
        rounding: Rounding,
        weight: &QuantisedWeight<'_>,
        [outputs, inputs]: [usize; 2],
        bias: Option<&[f32]>,
    ) -> Option<Self> {
        let depth = inputs.next_multiple_of(QUAD);
        let scale = match rounding {
            Rounding::Levels(levels, scale) => (scale, levels.byte_zero()),
            Rounding::ByRow { .. } => (1.0, 0),
        };
        let panels = Panels::new(weight, [outputs, 1, inputs], |_, input| input, scale, bias)?;
        Some(Self {
            panels,
            rounding,
            outputs,
            inputs,
            depth,
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
        let count = out.len() / self.outputs;
        let (scales, rest) = workspace.split_at_mut(count);
        let (zero_points, rest) = rest.split_at_mut(count);
        let zero_points: &mut [i32] = bytemuck::cast_slice_mut(zero_points);
        let copy = &mut bytemuck::cast_slice_mut(rest)[..count * self.depth];
        self.fill(input, copy, scales, zero_points);
        let (copy, scales, zero_points) = (&*copy, &*scales, &*zero_points);
        let rows = matches!(self.rounding, Rounding::ByRow { .. }).then_some((scales, zero_points));
        self.pieces(count, out)
            .into_par_iter()
            .run_parallel(|mut piece| {
                self.piece(copy, rows, &mut piece);
                for (at, chunk) in piece.rows.iter_mut().enumerate() {
                    epilogue((piece.row + at) * self.outputs + piece.column, chunk);
                }
            });
    }

    /// Rounds rows to bytes.
    fn fill(&self, input: &[f32], to: &mut [u8], scales: &mut [f32], zero_points: &mut [i32]) {
        let (inputs, depth) = (self.inputs, self.depth);
        let rows = to.par_chunks_exact_mut(depth.max(1));
        let rows = rows.zip(input.par_chunks_exact(inputs.max(1)));
        let parameters = scales.par_iter_mut().zip(zero_points);
        rows.zip(parameters)
            .with_min_len(crate::kernels::GRAIN.div_ceil(depth.max(1)))
            .run_parallel(|((to, row), (scale, zero_point))| {
                let (to, rest) = to.split_at_mut(inputs);
                rest.fill(0);
                match &self.rounding {
                    Rounding::Levels(levels, _) => to_bytes(row, *levels, to),
                    Rounding::ByRow { signed } => {
                        let own = rows::quantise_row(row, Rounding::bounds(*signed), 0.0, to);
                        if *signed {
                            unsigned(to);
                        }
                        let moved = if *signed { 128 } else { 0 };
                        (*scale, *zero_point) = (own.scale, own.zero_point + moved);
                    }
                }
            });
    }

    /// Divides a result into pieces of work: as high as allowed, and wide enough for each thread to
    /// have some.
    fn pieces<'a>(&self, rows: usize, out: &'a mut [f32]) -> Vec<Piece<'a>> {
        let threads = thread_count();
        let wanted = if threads == 1 { 1 } else { 4 * threads };
        let panels = self.outputs.div_ceil(COLUMNS);
        let lines = rows.div_ceil(ROWS);
        let across = wanted.div_ceil(lines).min(panels);
        pieces(out, self.outputs, [ROWS, panels.div_ceil(across) * COLUMNS])
    }

    fn piece(&self, copy: &[u8], rows: Option<(&[f32], &[i32])>, piece: &mut Piece<'_>) {
        let width = piece.rows.first().map_or(0, |row| row.len());
        let (first, count) = (piece.row, piece.rows.len());
        let mut offsets = [0; ROWS];
        for (offset, row) in offsets.iter_mut().zip(first..first + count) {
            *offset = (row * self.depth) as u32;
        }
        let mut sums: [Sums; ROWS] = [[0; COLUMNS]; ROWS];
        for start in (0..width).step_by(COLUMNS) {
            let panel = self.panels.panel((piece.column + start) / COLUMNS);
            let operands = Operands {
                source: copy,
                offsets: &offsets[..count],
                depth: self.depth,
                weights: panel.weights,
                ahead: panel.ahead,
            };
            let sums = &mut sums[..count];
            self.panels
                .unit
                .multiply(&operands, &panel.columns.initial, sums);
            let end = width.min(start + COLUMNS);
            for (at, (row, sums)) in piece.rows.iter_mut().zip(sums).enumerate() {
                let scale = rows.map(|(scales, zero_points)| RowScales {
                    scales: &scales[first + at..][..1],
                    zero_points: &zero_points[first + at..][..1],
                    column_sums: &panel.columns.sums,
                });
                let epilogue = Epilogue {
                    scales: &panel.columns.scales,
                    biases: &panel.columns.biases,
                    rows: scale,
                    residual: None,
                    bounds: [f32::NEG_INFINITY, f32::INFINITY],
                };
                let to = &mut row[start..end];
                epilogue.to_floats(std::slice::from_ref(sums), end - start, to, end - start);
            }
        }
    }
}
