//! Convolutions of images in blocks of sixteen channels, rounded to bfloat16.
//!
//! The image is copied into planes of 32 channels, with zeros around. With a stride of n, every
//! n-th pixel is in a plane of its own, so that the kernel moves by one pixel in each plane. Pixels
//! of a row, and rows, then follow each other in the result as in the image: a product is 32
//! pixels, across the ends of rows. Its results between the rows are thrown away.

use std::ops::Range;

use corsac_kernels::bf16::{Bf16, join, rounded};
use corsac_kernels::bf16_unit::{Bf16Unit, COLUMNS, RUN, Sums};
use rayon::prelude::*;
use smallvec::SmallVec;

use super::{Panels, SLACK, room};
use crate::kernels::ApplyEpilogue;
use crate::kernels::blocked::BLOCK;
use crate::parallel::{Parallel, thread_count};
use crate::program::ConvShape;

/// Largest number of pixels of a result in a piece of work.
const PIXELS: usize = 1024;

/// A convolution with its weights packed.
#[derive(Debug)]
pub struct Bf16Conv {
    shape: ConvShape,
    source: Source,
    panels: Panels,
    /// Offsets of the first pixels that are multiplied with weights.
    taps: Vec<usize>,
}

/// Layout of the copy of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    /// Number of planes of 32 channels.
    planes: usize,
    /// The phases that are used, for rows and columns: phase `p` has the pixels `n * stride + p`.
    phases: [SmallVec<[usize; 2]>; 2],
    /// Rows of a phase.
    rows: usize,
    /// Pixels from a row to the next.
    pitch: usize,
}

impl Source {
    fn of(shape: &ConvShape) -> Self {
        let conv = &shape.conv;
        let along = |dim: usize| {
            let (step, apart) = (conv.stride[dim], conv.dilation[dim]);
            let offsets = (0..shape.kernel[dim]).map(|at| at * apart);
            let mut phases: SmallVec<[usize; 2]> = offsets.clone().map(|at| at % step).collect();
            phases.sort_unstable();
            phases.dedup();
            let furthest = offsets.map(|at| at / step).max().unwrap_or(0);
            (phases, shape.output[dim + 1] + furthest)
        };
        let ((by_row, rows), (by_column, columns)) = (along(0), along(1));
        let [[_, left], [_, right]] = conv.padding;
        // Zeros at the end of a row double as those before the next one.
        let shared = match conv.stride[1] {
            1 => left.min(right),
            _ => 0,
        };
        Self {
            planes: shape.input[0].div_ceil(RUN),
            phases: [by_row, by_column],
            rows,
            pitch: columns - shared,
        }
    }

    /// Elements of a phase of a plane.
    fn phase_len(&self) -> usize {
        self.rows * self.pitch * RUN
    }

    fn plane_len(&self) -> usize {
        self.phases[0].len() * self.phases[1].len() * self.phase_len()
    }

    /// Elements of the copy, with those that products read past its end.
    fn len(&self) -> usize {
        self.planes * self.plane_len() + SLACK
    }

    /// For each plane and element of the kernel, the offset of the pixel for the first result.
    fn taps(&self, shape: &ConvShape) -> Vec<usize> {
        let conv = &shape.conv;
        let mut taps = Vec::with_capacity(self.planes * shape.kernel[0] * shape.kernel[1]);
        let place = |dim: usize, at: usize| {
            let at = at * conv.dilation[dim];
            let phase = at % conv.stride[dim];
            let number = self.phases[dim].iter().position(|&own| own == phase);
            (number.unwrap_or(0), at / conv.stride[dim])
        };
        for plane in 0..self.planes {
            for row in 0..shape.kernel[0] {
                for column in 0..shape.kernel[1] {
                    let ((by_row, down), (by_column, right)) = (place(0, row), place(1, column));
                    let phase = by_row * self.phases[1].len() + by_column;
                    let pixel = down * self.pitch + right;
                    taps.push(plane * self.plane_len() + phase * self.phase_len() + pixel * RUN);
                }
            }
        }
        taps
    }

    /// Copies an image.
    fn fill(&self, shape: &ConvShape, image: &[f32], to: &mut [Bf16]) {
        let [_, rows, columns] = shape.input;
        let block = rows * columns * BLOCK;
        let (copy, slack) = to.split_at_mut(self.planes * self.plane_len());
        // Zeroed, since a product of a zero weight with NaN would be NaN.
        slack.fill(0);
        let line = self.pitch * RUN;
        copy.par_chunks_exact_mut(line)
            .enumerate()
            .with_min_len(crate::kernels::GRAIN.div_ceil(line))
            .run_parallel(|(at, to)| {
                let (phase, row) = (at / self.rows, at % self.rows);
                let phases = [self.phases[0].len(), self.phases[1].len()];
                let plane = phase / (phases[0] * phases[1]);
                let down = self.phases[0][phase / phases[1] % phases[0]];
                let right = self.phases[1][phase % phases[1]];
                let conv = &shape.conv;
                let row = (row * conv.stride[0] + down).checked_sub(conv.padding[0][0]);
                let Some(row) = row.filter(|&row| row < rows) else {
                    return to.fill(0);
                };
                let step = conv.stride[1];
                // The first pixel inside the image, and the number of pixels.
                let before = conv.padding[0][1].saturating_sub(right).div_ceil(step);
                let first = before * step + right - conv.padding[0][1];
                let count = columns.saturating_sub(first).div_ceil(step);
                let (zeros, rest) = to.split_at_mut((before * RUN).min(line));
                let (pixels, after) = rest.split_at_mut((count * RUN).min(rest.len()));
                zeros.fill(0);
                after.fill(0);
                if pixels.is_empty() {
                    return;
                }
                let mut channels = image[2 * plane * block..]
                    .chunks_exact(block)
                    .map(|block| &block[(row * columns + first) * BLOCK..]);
                if let Some(own) = channels.next() {
                    join(own, channels.next(), step, pixels);
                }
            });
    }
}

/// Whether there is a kernel for `shape`.
#[must_use]
pub fn is_supported(shape: &ConvShape) -> bool {
    shape.conv.groups == 1 && shape.input[0] >= BLOCK
}

/// Number of single-precision elements of the workspace of [`Bf16Conv::run`].
#[must_use]
pub fn workspace_len(shape: &ConvShape) -> usize {
    room(Source::of(shape).len())
}

impl Bf16Conv {
    /// Packs `weight`, of shape `[out, in, rows, columns]`.
    #[must_use]
    pub fn new(unit: Bf16Unit, shape: ConvShape, weight: &[f32], bias: Option<&[f32]>) -> Self {
        let source = Source::of(&shape);
        let taps = source.taps(&shape);
        let inputs = shape.input[0];
        let kernel = shape.kernel[0] * shape.kernel[1];
        let panels = Panels::new(
            unit,
            shape.output[0],
            taps.len(),
            bias,
            |output, run, at| {
                let input = run / kernel * RUN + at;
                match input < inputs {
                    true => rounded(weight[(output * inputs + input) * kernel + run % kernel]),
                    false => 0,
                }
            },
        );
        Self {
            shape,
            source,
            panels,
            taps,
        }
    }

    /// Writes the convolution of `input` to `out`, both in blocks. Calls `epilogue(at, chunk)` with
    /// each piece of the result, which begins at element `at`.
    pub fn run(
        &self,
        input: &[f32],
        workspace: &mut [f32],
        out: &mut [f32],
        epilogue: ApplyEpilogue<'_>,
    ) {
        let [channels, rows, columns] = self.shape.input;
        let image = channels.next_multiple_of(BLOCK) * rows * columns;
        let plane = self.shape.output[1] * self.shape.output[2] * BLOCK;
        let result = self.shape.output[0].div_ceil(BLOCK) * plane;
        if image == 0 || result == 0 {
            return;
        }
        let copy = &mut bytemuck::cast_slice_mut(workspace)[..self.source.len()];
        let images = input.chunks_exact(image).zip(out.chunks_exact_mut(result));
        for (index, (input, out)) in images.enumerate() {
            self.source.fill(&self.shape, input, copy);
            let copy = &*copy;
            self.pieces(out, plane)
                .into_par_iter()
                .run_parallel(|mut piece| {
                    self.piece(copy, &mut piece);
                    let first = piece.rows.start * self.shape.output[2] * BLOCK;
                    for (at, chunk) in piece.blocks.iter_mut().enumerate() {
                        let block = piece.panel * (COLUMNS / BLOCK) + at;
                        epilogue(index * result + block * plane + first, chunk);
                    }
                });
        }
    }

    /// Divides a result into pieces of work: the channels of a panel, and some of the rows.
    fn pieces<'a>(&self, out: &'a mut [f32], plane: usize) -> Vec<Piece<'a>> {
        let [_, rows, columns] = self.shape.output;
        let threads = thread_count();
        let wanted = if threads == 1 { 1 } else { 4 * threads };
        let parts = wanted.div_ceil(self.panels.count());
        let parts = parts.max((rows * columns).div_ceil(PIXELS)).min(rows);
        let step = rows.div_ceil(parts);
        let mut pieces = Vec::with_capacity(self.panels.count() * parts);
        let mut planes = out.chunks_exact_mut(plane);
        for panel in 0..self.panels.count() {
            let first = pieces.len();
            for plane in planes.by_ref().take(COLUMNS / BLOCK) {
                for (at, chunk) in plane.chunks_mut(step * columns * BLOCK).enumerate() {
                    if pieces.len() == first + at {
                        pieces.push(Piece {
                            panel,
                            rows: at * step..rows.min(at * step + step),
                            blocks: SmallVec::new(),
                        });
                    }
                    pieces[first + at].blocks.push(chunk);
                }
            }
        }
        pieces
    }

    fn piece(&self, copy: &[Bf16], piece: &mut Piece<'_>) {
        let (pitch, columns) = (self.source.pitch, self.shape.output[2]);
        let start = piece.rows.start * pitch * RUN;
        let count = (piece.rows.len() - 1) * pitch + columns;
        let blocks = &mut piece.blocks;
        self.panels.run(
            piece.panel,
            copy,
            &self.taps,
            start,
            count,
            |first, sums| {
                let end = count.min(first + sums.0.len() / COLUMNS);
                let mut at = first;
                while at < end {
                    let (row, column) = (at / pitch, at % pitch);
                    let pixels = columns.saturating_sub(column).min(end - at);
                    if pixels > 0 {
                        store(sums, at - first, pixels, row * columns + column, blocks);
                    }
                    at += (pitch - column).min(end - at);
                }
            },
        );
    }
}

/// A piece of work.
struct Piece<'a> {
    panel: usize,
    /// Rows of the result.
    rows: Range<usize>,
    /// These rows, in each block of the panel.
    blocks: SmallVec<[&'a mut [f32]; COLUMNS / BLOCK]>,
}

/// Writes rows of sums to pixels of blocks.
fn store(sums: &Sums, row: usize, count: usize, pixel: usize, blocks: &mut [&mut [f32]]) {
    let rows = &sums.0[row * COLUMNS..][..count * COLUMNS];
    for (at, block) in blocks.iter_mut().enumerate() {
        let pixels = &mut block[pixel * BLOCK..][..count * BLOCK];
        for (to, row) in pixels
            .chunks_exact_mut(BLOCK)
            .zip(rows.chunks_exact(COLUMNS))
        {
            to.copy_from_slice(&row[at * BLOCK..][..BLOCK]);
        }
    }
}
