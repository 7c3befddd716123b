//! Convolutions of images: the patches of a few pixels of a result become a panel, which each row of the
//! weight is multiplied with.

use corsac_kernels::double_product::{COLUMNS, Rows};
use rayon::prelude::*;

use super::panel::{DEPTH, Panel, SMALL, Start, divided, multiply};
use crate::parallel::{Parallel, thread_count};
use crate::program::ConvShape;

/// Consecutive pixels of a row of a result.
struct Run {
    /// Column of the panel.
    at: usize,
    len: usize,
    row: usize,
    column: usize,
}

impl ConvShape {
    /// Writes the results for all images.
    pub(crate) fn run_doubles(
        &self,
        input: &[f64],
        weight: &[f64],
        bias: Option<&[f64]>,
        out: &mut [f64],
    ) {
        let groups = self.conv.groups;
        let [channels, out_channels] = [self.input[0] / groups, self.output[0] / groups];
        let [image, plane] = [&self.input, &self.output].map(|own| own[1] * own[2]);
        let depth = channels * self.kernel[0] * self.kernel[1];
        let result = out_channels * plane;
        if out.is_empty() {
            return;
        }
        let units = out.len() / result;
        let threads = thread_count();
        let alone = units >= threads || result.saturating_mul(depth) < SMALL;
        let parts = if alone { 1 } else { threads };
        out.par_chunks_mut(result)
            .zip(input.par_chunks(channels * image))
            .enumerate()
            .with_min_len(SMALL.div_ceil(result.saturating_mul(depth).max(1)))
            .run_parallel(|(unit, (out, input))| {
                let first = unit % groups * out_channels;
                let weight = &weight[first * depth..][..out_channels * depth];
                let start = bias.map(|bias| &bias[first..first + out_channels]);
                let start = start.map_or(Start::Zero, Start::Rows);
                let mut parts = divided(out, plane, parts);
                let each = parts[0][0].len();
                let scratch = || vec![[0.0; COLUMNS]; DEPTH.min(depth)];
                parts.par_iter_mut().enumerate().run_parallel_with(
                    scratch,
                    |panel, (part, out)| {
                        let sizes = (depth, part * each);
                        self.pixels(input, weight, start, sizes, panel, out);
                    },
                );
            });
    }

    /// Writes the pixels from `first` on of the planes of a group.
    fn pixels(
        &self,
        input: &[f64],
        weight: &[f64],
        start: Start<'_>,
        (depth, first): (usize, usize),
        panel: &mut [Panel],
        out: &mut [&mut [f64]],
    ) {
        let len = out[0].len();
        for at in (0..len).step_by(COLUMNS) {
            let width = COLUMNS.min(len - at);
            let runs = self.runs(first + at, width);
            let mut start = start;
            for from in (0..depth.max(1)).step_by(DEPTH) {
                let until = depth.min(from + DEPTH);
                let panel = &mut panel[..until - from.min(until)];
                for (k, to) in panel.iter_mut().enumerate() {
                    self.gather(input, from + k, &runs, to);
                }
                let rows = Rows {
                    data: weight.get(from..).unwrap_or(&[]),
                    stride: depth,
                    step: 1,
                };
                multiply(rows, panel, (start, 1.0), out, (at, width));
                start = Start::Sums;
            }
        }
    }

    /// The runs of `width` pixels from `first` on.
    fn runs(&self, first: usize, width: usize) -> Vec<Run> {
        let columns = self.output[2];
        let mut runs = Vec::new();
        let mut at = 0;
        while at < width {
            let (row, column) = ((first + at) / columns, (first + at) % columns);
            let len = (columns - column).min(width - at);
            runs.push(Run {
                at,
                len,
                row,
                column,
            });
            at += len;
        }
        runs
    }

    /// The elements of the image for one element of the weight and each pixel.
    fn gather(&self, input: &[f64], element: usize, runs: &[Run], to: &mut Panel) {
        let [rows, columns] = self.kernel;
        let (channel, i, j) = (
            element / (rows * columns),
            element / columns % rows,
            element % columns,
        );
        let [_, height, width] = self.input;
        let conv = &self.conv;
        let plane = &input[channel * height * width..][..height * width];
        let [down, right] = conv.stride;
        let [above, left] = conv.padding[0];
        to.fill(0.0);
        for run in runs {
            let row = (run.row * down + i * conv.dilation[0]).wrapping_sub(above);
            if row >= height {
                continue;
            }
            let line = &plane[row * width..][..width];
            let to = &mut to[run.at..][..run.len];
            let from = run.column * right + j * conv.dilation[1];
            // The pixels before which the image begins.
            let before = left.saturating_sub(from).div_ceil(right).min(run.len);
            let from = from + before * right;
            if from < left || from - left >= width {
                continue;
            }
            let line = &line[from - left..];
            let to = &mut to[before..];
            match right {
                1 => {
                    let len = to.len().min(line.len());
                    to[..len].copy_from_slice(&line[..len]);
                }
                step => to
                    .iter_mut()
                    .zip(line.iter().step_by(step))
                    .for_each(|(to, x)| *to = *x),
            }
        }
    }
}
