//! Windows over images of shape `[planes, rows, columns]`.

use rayon::prelude::*;

use crate::program::Pool;

/// Where windows begin and end along one dimension.
fn window(at: usize, size: usize, pool: &Pool, dim: usize) -> impl Iterator<Item = usize> + use<> {
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
    planes(input, [rows, columns], [out_rows, out_columns], out).for_each(|(out, plane)| {
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

/// The mean of each window.
pub fn avg_pool(
    input: &[f32],
    [rows, columns]: [usize; 2],
    pool: &Pool,
    count_padding: bool,
    divisor: Option<usize>,
    [out_rows, out_columns]: [usize; 2],
    out: &mut [f32],
) {
    // With zeros outside the image counted, a window still ends where they do.
    let counted = |at: usize, size: usize, dim: usize| {
        let start = (at * pool.stride[dim]) as isize - pool.padding[dim] as isize;
        let end = (start + pool.kernel[dim] as isize).min((size + pool.padding[dim]) as isize);
        match count_padding {
            true => (end - start).unsigned_abs(),
            false => (end.min(size as isize) - start.max(0)).unsigned_abs(),
        }
    };
    planes(input, [rows, columns], [out_rows, out_columns], out).for_each(|(out, plane)| {
        for (i, out) in out.chunks_mut(out_columns).enumerate() {
            for (j, out) in out.iter_mut().enumerate() {
                let mut sum = 0.0;
                for row in window(i, rows, pool, 0) {
                    for column in window(j, columns, pool, 1) {
                        sum += plane[row * columns + column];
                    }
                }
                let count = counted(i, rows, 0) * counted(j, columns, 1);
                *out = sum / divisor.unwrap_or(count) as f32;
            }
        }
    });
}

/// Means of windows that make an image of `out_rows` by `out_columns`.
pub fn adaptive_avg_pool(
    input: &[f32],
    [rows, columns]: [usize; 2],
    [out_rows, out_columns]: [usize; 2],
    out: &mut [f32],
) {
    let span = |at: usize, size: usize, parts: usize| {
        (at * size / parts, ((at + 1) * size).div_ceil(parts))
    };
    planes(input, [rows, columns], [out_rows, out_columns], out)
        .with_min_len(16)
        .for_each(|(out, plane)| {
            for (i, out) in out.chunks_mut(out_columns).enumerate() {
                let (top, bottom) = span(i, rows, out_rows);
                for (j, out) in out.iter_mut().enumerate() {
                    let (left, right) = span(j, columns, out_columns);
                    let sum: f32 = (top..bottom)
                        .map(|row| {
                            let row = row * columns;
                            plane[row + left..row + right].iter().sum::<f32>()
                        })
                        .sum();
                    *out = sum / ((bottom - top) * (right - left)) as f32;
                }
            }
        });
}
