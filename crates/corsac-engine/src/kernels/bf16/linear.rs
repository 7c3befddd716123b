//! Linear layers over rows of features, rounded to bfloat16.

use corsac_kernels::bf16::{Bf16, column, rounded};
use corsac_kernels::bf16_unit::{Bf16Unit, COLUMNS, ROWS, RUN};
use rayon::prelude::*;

use super::{Panels, SLACK, room};
use crate::kernels::ApplyEpilogue;
use crate::kernels::blocked::linear::LinearWeight;
use crate::kernels::piece::{Piece, pieces};
use crate::parallel::{Parallel, thread_count};

/// Largest number of rows of a piece of work.
const HEIGHT: usize = 1024;

/// `x @ weight.T + bias` with the weight packed.
#[derive(Debug)]
pub struct Bf16Linear {
    panels: Panels,
    outputs: usize,
    inputs: usize,
}

fn copy_len(rows: usize, inputs: usize) -> usize {
    rows * inputs.next_multiple_of(RUN) + SLACK
}

/// Number of single-precision elements of the workspace of [`Bf16Linear::run`].
#[must_use]
pub fn workspace_len(rows: usize, inputs: usize) -> usize {
    room(copy_len(rows, inputs))
}

impl Bf16Linear {
    /// Packs `weight`.
    #[must_use]
    pub fn new(unit: Bf16Unit, weight: &LinearWeight<'_>, bias: Option<&[f32]>) -> Self {
        Self::packed(unit, weight, bias, rounded)
    }

    /// Packs a weight of bfloat16 numbers, given as bits.
    #[must_use]
    pub fn of_bits(unit: Bf16Unit, weight: &LinearWeight<'_, Bf16>, bias: Option<&[f32]>) -> Self {
        Self::packed(unit, weight, bias, |bits| bits)
    }

    fn packed<T: Copy + Sync>(
        unit: Bf16Unit,
        weight: &LinearWeight<'_, T>,
        bias: Option<&[f32]>,
        bits: impl Fn(T) -> Bf16 + Sync,
    ) -> Self {
        let [outputs, inputs] = weight.sizes;
        let runs = inputs.div_ceil(RUN);
        let panels = Panels::new(unit, outputs, runs, bias, |output, run, at| {
            let input = run * RUN + at;
            match input < inputs {
                true => bits(weight.at(output, input)),
                false => 0,
            }
        });
        Self {
            panels,
            outputs,
            inputs,
        }
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
        let rows = out.len() / self.outputs;
        let copy = &mut bytemuck::cast_slice_mut(workspace)[..copy_len(rows, self.inputs)];
        self.fill(input, rows, copy);
        let copy = &*copy;
        let taps: Vec<usize> = (0..self.inputs.div_ceil(RUN))
            .map(|run| run * rows * RUN)
            .collect();
        self.pieces(rows, out)
            .into_par_iter()
            .run_parallel(|mut piece| {
                self.piece(copy, &taps, &mut piece);
                for (at, chunk) in piece.rows.iter_mut().enumerate() {
                    epilogue((piece.row + at) * self.outputs + piece.column, chunk);
                }
            });
    }

    /// Rounds rows and divides them into runs.
    fn fill(&self, input: &[f32], rows: usize, to: &mut [Bf16]) {
        let (copy, slack) = to.split_at_mut(to.len() - SLACK);
        slack.fill(0);
        copy.par_chunks_exact_mut(rows * RUN)
            .enumerate()
            .with_min_len(crate::kernels::GRAIN.div_ceil(rows * RUN))
            .run_parallel(|(run, to)| {
                let width = RUN.min(self.inputs - run * RUN);
                column(&input[run * RUN..], self.inputs, width, to);
            });
    }

    /// Divides a result into pieces of work: as high as allowed, and wide enough for each thread to
    /// have some.
    fn pieces<'a>(&self, rows: usize, out: &'a mut [f32]) -> Vec<Piece<'a>> {
        let threads = thread_count();
        let wanted = if threads == 1 { 1 } else { 4 * threads };
        let lines = rows.div_ceil(HEIGHT);
        let across = wanted.div_ceil(lines).min(self.panels.count());
        // With fewer panels than pieces, the rows are divided, too.
        let lines = lines.max(wanted / across).min(rows.div_ceil(ROWS));
        let height = rows.div_ceil(lines).next_multiple_of(ROWS);
        let width = self.panels.count().div_ceil(across) * COLUMNS;
        pieces(out, self.outputs, [height, width])
    }

    fn piece(&self, copy: &[Bf16], taps: &[usize], piece: &mut Piece<'_>) {
        let width = piece.rows.first().map_or(0, |row| row.len());
        let count = piece.rows.len();
        for start in (0..width).step_by(COLUMNS) {
            let panel = (piece.column + start) / COLUMNS;
            let end = width.min(start + COLUMNS);
            let rows = &mut piece.rows;
            self.panels
                .run(panel, copy, taps, piece.row * RUN, count, |first, sums| {
                    let sums = sums.0.chunks_exact(COLUMNS);
                    for (row, sums) in rows[first..].iter_mut().zip(sums) {
                        row[start..end].copy_from_slice(&sums[..end - start]);
                    }
                });
        }
    }
}
