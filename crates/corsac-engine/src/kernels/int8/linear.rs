//! Linear layers over quantised rows, with weights of integers.

use corsac_kernels::int8::{Epilogue, RowScales, rows};
use corsac_kernels::int8_unit::{COLUMNS, Dense, Operands, QUAD, Sums};
use rayon::prelude::*;

use super::{Finish, Panels, QuantisedWeight, RowBytes, space, unsigned};
use crate::data::Data;
use crate::kernels::ApplyEpilogue;
use crate::kernels::piece::{Piece, pieces};
use crate::parallel::{Parallel, thread_count};
use crate::program::Rounding;

/// Rows that are multiplied with a panel at a time: their elements, up to 16 KB, stay in the first-level cache.
const ROWS: usize = 128;

/// Most panels of a piece of work: its numbers stay in the second-level cache for the epilogue.
const PANELS: usize = 16;

/// `x @ weight.T + bias` over rows of bytes.
#[derive(Debug)]
pub struct Int8Linear {
    panels: Panels,
    outputs: usize,
    inputs: usize,
    /// Bytes of a row, with those that fill its last quad.
    depth: usize,
    /// Whether rows that are numbers become signed bytes, before they are moved.
    signed: bool,
}

/// Rows of bytes, and the scale and zero point of each if they have their own.
#[derive(Clone, Copy)]
struct Rows<'a> {
    bytes: &'a [u8],
    own: Option<(&'a [f32], &'a [i32])>,
}

/// Number of single-precision elements of the workspace of a run.
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
        let by_row = RowBytes {
            scale: 1.0,
            zero_point: 0,
            largest: u8::MAX,
        };
        let (rows, signed) = match rounding {
            Rounding::Levels(levels, scale) => (RowBytes::of(levels, scale), false),
            Rounding::ByRow { signed } => (by_row, signed),
        };
        let place = |_, input| (input < inputs).then_some(input);
        let panels = Panels::new(weight, [outputs, 1, inputs], place, rows, bias)?;
        Some(Self {
            panels,
            outputs,
            inputs,
            depth: inputs.next_multiple_of(QUAD),
            signed,
        })
    }

    /// Writes a row of outputs for each row of `input`, which are numbers that are rounded by their own
    /// range, or bytes. Calls `epilogue(at, chunk)` with each piece of the result, which begins at
    /// element `at`.
    pub fn run(
        &self,
        input: Data<'_>,
        workspace: &mut [f32],
        out: &mut [f32],
        epilogue: ApplyEpilogue<'_>,
    ) {
        let rows = self.rows(input, workspace, out.len());
        self.pieces(out).into_par_iter().run_parallel(|mut piece| {
            self.piece(rows, &mut piece, |own, (product, initial), columns, to| {
                own.multiply_to_floats(product, initial, columns, to, columns);
            });
            for (at, chunk) in piece.rows.iter_mut().enumerate() {
                epilogue((piece.row + at) * self.outputs + piece.column, chunk);
            }
        });
    }

    /// As [`run`](Self::run), for results that are bytes.
    pub fn to_bytes(
        &self,
        input: Data<'_>,
        workspace: &mut [f32],
        finish: &Finish<'_>,
        out: &mut [u8],
    ) {
        let rows = self.rows(input, workspace, out.len());
        self.pieces(out).into_par_iter().run_parallel(|mut piece| {
            self.piece(rows, &mut piece, |own, product, columns, to| {
                finish.bytes(own, product, columns, to, columns);
            });
        });
    }

    /// The bytes of rows, filled up to whole quads, for a result of this many elements.
    fn rows<'a>(&self, input: Data<'a>, workspace: &'a mut [f32], result: usize) -> Rows<'a> {
        let count = result / self.outputs;
        let (inputs, depth) = (self.inputs, self.depth);
        let (scales, rest) = workspace.split_at_mut(count);
        let (zero_points, rest) = rest.split_at_mut(count);
        let zero_points: &mut [i32] = bytemuck::cast_slice_mut(zero_points);
        let copy: &mut [u8] = &mut bytemuck::cast_slice_mut(rest)[..count * depth];
        let least = crate::kernels::GRAIN.div_ceil(depth);
        let copied = copy.par_chunks_exact_mut(depth);
        match input {
            Data::Bool(bytes) if inputs == depth => return Rows { bytes, own: None },
            Data::Bool(bytes) => {
                let rows = copied.zip(bytes.par_chunks_exact(inputs));
                rows.with_min_len(least).run_parallel(|(to, row)| {
                    to[..inputs].copy_from_slice(row);
                    to[inputs..].fill(0);
                });
                return Rows {
                    bytes: copy,
                    own: None,
                };
            }
            Data::F32(numbers) => {
                let bounds = Rounding::bounds(self.signed);
                let moved = if self.signed { 128 } else { 0 };
                let parameters = scales.par_iter_mut().zip(&mut *zero_points);
                let rows = copied.zip(numbers.par_chunks_exact(inputs)).zip(parameters);
                let rows = rows.with_min_len(least);
                rows.run_parallel(|((to, row), (scale, zero_point))| {
                    let (to, rest) = to.split_at_mut(inputs);
                    rest.fill(0);
                    let own = rows::quantise_row(row, bounds, 0.0, to);
                    if self.signed {
                        unsigned(to);
                    }
                    (*scale, *zero_point) = (own.scale, own.zero_point + moved);
                });
            }
            Data::I64(_) | Data::F64(_) => {}
        }
        Rows {
            bytes: copy,
            own: Some((scales, zero_points)),
        }
    }

    /// Divides a result into pieces of work: as high as allowed, and wide enough for each thread to
    /// have some.
    fn pieces<'a, T>(&self, out: &'a mut [T]) -> Vec<Piece<'a, T>> {
        let rows = out.len() / self.outputs;
        let threads = thread_count();
        let wanted = if threads == 1 { 1 } else { 4 * threads };
        let panels = self.outputs.div_ceil(COLUMNS);
        let across = wanted.div_ceil(rows.div_ceil(ROWS).max(1)).min(panels);
        let width = panels.div_ceil(across).min(PANELS) * COLUMNS;
        pieces(out, self.outputs, [ROWS, width])
    }

    /// Computes a piece of a result; `write` makes elements of the product of its rows and a panel, whose sums
    /// begin with the given ones, for as many columns.
    fn piece<T: Copy + Default>(
        &self,
        rows: Rows<'_>,
        piece: &mut Piece<'_, T>,
        write: impl Fn(Epilogue<'_>, (&Dense<'_>, &Sums), usize, &mut [T]),
    ) {
        let width = piece.rows.first().map_or(0, |row| row.len());
        let (first, count) = (piece.row, piece.rows.len());
        let mut offsets = [0; ROWS];
        for (offset, row) in offsets.iter_mut().zip(first..first + count) {
            *offset = (row * self.depth) as u32;
        }
        let mut elements = [T::default(); ROWS * COLUMNS];
        for start in (0..width).step_by(COLUMNS) {
            let number = (piece.column + start) / COLUMNS;
            let panel = self.panels.panel(number);
            let product = Dense {
                unit: self.panels.unit,
                operands: Operands {
                    source: rows.bytes,
                    offsets: &offsets[..count],
                    depth: self.depth,
                    weights: panel.weights,
                    ahead: panel.ahead,
                },
                rows: count,
            };
            let own = rows.own.map(|(scales, zero_points)| RowScales {
                scales: &scales[first..][..count],
                zero_points: &zero_points[first..][..count],
                column_sums: &panel.columns.sums,
            });
            let epilogue = Epilogue {
                rows: own,
                ..self.panels.epilogue(number)
            };
            let columns = COLUMNS.min(width - start);
            let elements = &mut elements[..count * columns];
            let product = (&product, &panel.columns.initial);
            write(epilogue, product, columns, elements);
            let from = elements.chunks_exact(columns);
            for (row, from) in piece.rows.iter_mut().zip(from) {
                row[start..][..columns].copy_from_slice(from);
            }
        }
    }
}
