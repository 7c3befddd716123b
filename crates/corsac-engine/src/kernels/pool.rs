//! Windows over images of shape `[planes, rows, columns]`.

use rayon::prelude::*;

use crate::program::Pool;
use crate::spread::Spread;

/// Where windows begin and end along one dimension.
pub(super) fn window(
    at: usize,
    size: usize,
    pool: &Pool,
    dim: usize,
) -> impl Iterator<Item = usize> + use<> {
    let (kernel, dilation) = (pool.kernel[dim], pool.dilation[dim]);
    let start = (at * pool.stride[dim]) as isize - pool.padding[dim] as isize;
    (0..kernel)
        .map(move |k| start + (k * dilation) as isize)
        .filter_map(move |at| usize::try_from(at).ok().filter(|&at| at < size))
}

/// The planes of images, and of results; none where either has no elements.
fn planes<'a>(
    input: &'a [f32],
    [rows, columns]: [usize; 2],
    [out_rows, out_columns]: [usize; 2],
    out: &'a mut [f32],
) -> impl IndexedParallelIterator<Item = (&'a mut [f32], &'a [f32])> {
    let planes = input.par_chunks((rows * columns).max(1));
    out.par_chunks_mut((out_rows * out_columns).max(1))
        .zip(planes)
}

/// The largest of each window.
pub fn max_pool(
    input: &[f32],
    [rows, columns]: [usize; 2],
    pool: &Pool,
    [out_rows, out_columns]: [usize; 2],
    out: &mut [f32],
) {
    planes(input, [rows, columns], [out_rows, out_columns], out).spread(|(out, plane)| {
        // First along columns, for each row that a window touches, then along rows.
        let mut line = vec![f32::NEG_INFINITY; columns];
        for (at, out) in out.chunks_mut(out_columns).enumerate() {
            line.fill(f32::NEG_INFINITY);
            for row in window(at, rows, pool, 0) {
                let row = &plane[row * columns..(row + 1) * columns];
                for (most, &x) in line.iter_mut().zip(row) {
                    *most = if x > *most || x.is_nan() { x } else { *most };
                }
            }
            for (at, out) in out.iter_mut().enumerate() {
                *out = window(at, columns, pool, 1).fold(f32::NEG_INFINITY, |most, column| {
                    let x = line[column];
                    if x > most || x.is_nan() { x } else { most }
                });
            }
        }
    });
}

/// What the means of windows are of.
#[derive(Clone, Copy, Debug)]
pub struct Averages<'a> {
    /// The windows.
    pub pool: &'a Pool,
    /// Whether zeros outside the image count.
    pub count_padding: bool,
    /// What sums are divided by instead of the number of elements.
    pub divisor: Option<usize>,
}

impl Averages<'_> {
    /// What the sum of the window at this row and column of the result is divided by.
    pub(super) fn count(&self, at: [usize; 2], image: [usize; 2]) -> f32 {
        // With zeros outside the image counted, a window still ends where they do.
        let counted = |dim: usize| {
            let (pool, size) = (self.pool, image[dim]);
            let start = (at[dim] * pool.stride[dim]) as isize - pool.padding[dim] as isize;
            let end = (start + pool.kernel[dim] as isize).min((size + pool.padding[dim]) as isize);
            match self.count_padding {
                true => (end - start).unsigned_abs(),
                false => (end.min(size as isize) - start.max(0)).unsigned_abs(),
            }
        };
        self.divisor.unwrap_or_else(|| counted(0) * counted(1)) as f32
    }
}

/// The mean of each window.
pub fn avg_pool(
    input: &[f32],
    [rows, columns]: [usize; 2],
    averages: &Averages<'_>,
    [out_rows, out_columns]: [usize; 2],
    out: &mut [f32],
) {
    let pool = averages.pool;
    planes(input, [rows, columns], [out_rows, out_columns], out).spread(|(out, plane)| {
        for (i, out) in out.chunks_mut(out_columns).enumerate() {
            for (j, out) in out.iter_mut().enumerate() {
                let mut sum = 0.0;
                for row in window(i, rows, pool, 0) {
                    for column in window(j, columns, pool, 1) {
                        sum += plane[row * columns + column];
                    }
                }
                *out = sum / averages.count([i, j], [rows, columns]);
            }
        }
    });
}

/// Which elements the window at `at` covers, of `parts` windows over `size` elements.
pub(super) fn span(at: usize, size: usize, parts: usize) -> std::ops::Range<usize> {
    at * size / parts..((at + 1) * size).div_ceil(parts)
}

/// Means of windows that make an image of `out_rows` by `out_columns`.
pub fn adaptive_avg_pool(
    input: &[f32],
    [rows, columns]: [usize; 2],
    [out_rows, out_columns]: [usize; 2],
    out: &mut [f32],
) {
    planes(input, [rows, columns], [out_rows, out_columns], out)
        .with_min_len(16)
        .spread(|(out, plane)| {
            for (i, out) in out.chunks_mut(out_columns).enumerate() {
                let window = span(i, rows, out_rows);
                for (j, out) in out.iter_mut().enumerate() {
                    let across = span(j, columns, out_columns);
                    let row = |row: usize| &plane[row * columns..][across.clone()];
                    let sums = window.clone().map(|at| row(at).iter().sum::<f32>());
                    *out = sums.sum::<f32>() / (window.len() * across.len()) as f32;
                }
            }
        });
}
