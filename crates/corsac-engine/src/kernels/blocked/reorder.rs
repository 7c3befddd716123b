//! Reordering of images into blocks of channels and back.

use corsac_kernels::transpose::transpose;
use rayon::prelude::*;

use super::BLOCK;
use crate::parallel::{Parallel, thread_count};
use crate::program::Order;

/// Reorders images of `channels` times `plane` elements into blocks.
pub fn to_blocks(image: &[f32], order: Order, channels: usize, plane: usize, out: &mut [f32]) {
    let blocks = channels.div_ceil(BLOCK);
    let len = plane * BLOCK;
    if image.is_empty() {
        return;
    }
    // Pixels hold elements of all blocks: as many blocks as possible are written at a time.
    let together = match order {
        Order::Planes => 1,
        Order::Pixels => blocks.div_ceil(thread_count()),
    };
    out.par_chunks_exact_mut(len * blocks)
        .zip(image.par_chunks_exact(channels * plane))
        .run_parallel(|(out, image)| {
            out.par_chunks_mut(len * together)
                .enumerate()
                .with_min_len(crate::kernels::GRAIN.div_ceil(len * together))
                .run_parallel(|(at, out)| {
                    let first = at * together * BLOCK;
                    match order {
                        Order::Planes => block_of_planes(image, first, plane, out),
                        Order::Pixels => blocks_of_pixels(image, channels, first, plane, out),
                    }
                });
        });
}

/// Writes the block of the channels from `first` on.
fn block_of_planes(image: &[f32], first: usize, plane: usize, out: &mut [f32]) {
    let planes = &image[first * plane..];
    let count = (planes.len() / plane).min(BLOCK);
    if count < BLOCK {
        out.fill(0.0);
    }
    transpose(planes, plane, out, BLOCK, [count, plane]);
}

/// Number of pixels that are read for all blocks before the next ones are: they stay in the cache.
const PIXELS: usize = 16;

/// Writes the blocks of the channels from `first` on.
fn blocks_of_pixels(image: &[f32], channels: usize, first: usize, plane: usize, out: &mut [f32]) {
    for start in (0..plane).step_by(PIXELS) {
        let count = PIXELS.min(plane - start);
        let pixels = &image[start * channels..][..count * channels];
        for (at, block) in out.chunks_exact_mut(plane * BLOCK).enumerate() {
            let first = first + at * BLOCK;
            let (to, _) = block[start * BLOCK..][..count * BLOCK].as_chunks_mut::<BLOCK>();
            for (to, pixel) in to.iter_mut().zip(pixels.chunks_exact(channels)) {
                match pixel[first..].first_chunk::<BLOCK>() {
                    Some(whole) => *to = *whole,
                    None => {
                        let rest = &pixel[first..];
                        to.fill(0.0);
                        to[..rest.len()].copy_from_slice(rest);
                    }
                }
            }
        }
    }
}

/// Reorders images of `channels` times `plane` elements from blocks.
pub fn from_blocks(blocked: &[f32], order: Order, channels: usize, plane: usize, out: &mut [f32]) {
    let blocks = channels.div_ceil(BLOCK);
    let image = blocks * BLOCK * plane;
    if out.is_empty() {
        return;
    }
    match order {
        Order::Planes => out
            .par_chunks_exact_mut(channels * plane)
            .zip(blocked.par_chunks_exact(image))
            .run_parallel(|(out, image)| {
                out.par_chunks_mut(plane * BLOCK)
                    .zip(image.par_chunks_exact(plane * BLOCK))
                    .with_min_len(crate::kernels::GRAIN.div_ceil(plane * BLOCK))
                    .run_parallel(|(out, block)| {
                        transpose(block, BLOCK, out, plane, [plane, out.len() / plane]);
                    });
            }),
        Order::Pixels => out
            .par_chunks_exact_mut(channels)
            .enumerate()
            .with_min_len(crate::kernels::GRAIN.div_ceil(channels))
            .run_parallel(|(at, out)| {
                let (index, pixel) = (at / plane, at % plane);
                let start = index * image + pixel * BLOCK;
                for (block, to) in out.chunks_mut(BLOCK).enumerate() {
                    let from = &blocked[start + block * plane * BLOCK..][..to.len()];
                    to.copy_from_slice(from);
                }
            }),
    }
}
