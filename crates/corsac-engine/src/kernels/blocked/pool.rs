//! Pooling of images in blocks of channels.

use multiversion::multiversion;
use rayon::prelude::*;

use super::BLOCK;
use crate::kernels::pool::{Averages, span, window};
use crate::parallel::Parallel;
use crate::program::Pool;

/// Pairs of the blocks of images and of results; none if either has no elements.
fn blocks<'a>(
    input: &'a [f32],
    [rows, columns]: [usize; 2],
    [out_rows, out_columns]: [usize; 2],
    out: &'a mut [f32],
) -> impl IndexedParallelIterator<Item = (&'a mut [f32], &'a [f32])> {
    let blocks = input.par_chunks_exact((rows * columns * BLOCK).max(1));
    out.par_chunks_exact_mut((out_rows * out_columns * BLOCK).max(1))
        .zip(blocks)
}

/// The largest of each window.
pub fn max_pool(
    input: &[f32],
    image: [usize; 2],
    pool: &Pool,
    result: [usize; 2],
    out: &mut [f32],
) {
    blocks(input, image, result, out)
        .run_parallel(|(out, block)| max_pool_block(block, image, pool, result[1], out));
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn max_pool_block(
    block: &[f32],
    [rows, columns]: [usize; 2],
    pool: &Pool,
    out_columns: usize,
    out: &mut [f32],
) {
    let pixels = block.as_chunks::<BLOCK>().0;
    for (y, line) in out.chunks_exact_mut(out_columns * BLOCK).enumerate() {
        for (x, out) in line.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            let mut most = [f32::NEG_INFINITY; BLOCK];
            for row in window(y, rows, pool, 0) {
                for column in window(x, columns, pool, 1) {
                    let pixel = &pixels[row * columns + column];
                    for (most, &x) in most.iter_mut().zip(pixel) {
                        *most = if x > *most || x.is_nan() { x } else { *most };
                    }
                }
            }
            *out = most;
        }
    }
}

/// The mean of each window.
pub fn avg_pool(
    input: &[f32],
    image: [usize; 2],
    averages: &Averages<'_>,
    result: [usize; 2],
    out: &mut [f32],
) {
    let pool = averages.pool;
    blocks(input, image, result, out).run_parallel(|(out, block)| {
        for (y, line) in out.chunks_exact_mut(result[1] * BLOCK).enumerate() {
            for (x, out) in line.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
                let windows = window(y, image[0], pool, 0)
                    .flat_map(|row| window(x, image[1], pool, 1).map(move |at| [row, at]));
                let count = averages.count([y, x], image);
                *out = mean(block, image[1], windows, count);
            }
        }
    });
}

/// Adaptive average pooling: means of as many windows as the result has elements.
pub fn adaptive_avg_pool(input: &[f32], image: [usize; 2], result: [usize; 2], out: &mut [f32]) {
    blocks(input, image, result, out)
        .with_min_len(4)
        .run_parallel(|(out, block)| {
            for (y, line) in out.chunks_exact_mut(result[1] * BLOCK).enumerate() {
                let rows = span(y, image[0], result[0]);
                for (x, out) in line.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
                    let columns = span(x, image[1], result[1]);
                    let count = rows.len() * columns.len();
                    let windows = rows
                        .clone()
                        .flat_map(|row| columns.clone().map(move |at| [row, at]));
                    *out = mean(block, image[1], windows, count as f32);
                }
            }
        });
}

/// The mean of `count` pixels, by channel.
fn mean(
    block: &[f32],
    columns: usize,
    pixels: impl Iterator<Item = [usize; 2]>,
    count: f32,
) -> [f32; BLOCK] {
    let all = block.as_chunks::<BLOCK>().0;
    let mut sum = [0.0; BLOCK];
    for [row, column] in pixels {
        for (sum, x) in sum.iter_mut().zip(&all[row * columns + column]) {
            *sum += x;
        }
    }
    sum.map(|sum| sum / count)
}
