//! Images into blocks of channels and back.

use rayon::prelude::*;

use super::BLOCK;

/// Where the channels of images lie that are in no blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Each has a plane of its own: `[batch, channels, rows, columns]`.
    Planes,
    /// Those of a pixel follow each other: `[batch, rows, columns, channels]`.
    Pixels,
}

/// Writes the blocks of images of `channels` times `plane` elements.
pub fn to_blocks(image: &[f32], order: Order, channels: usize, plane: usize, out: &mut [f32]) {
    let blocks = channels.div_ceil(BLOCK);
    let len = plane * BLOCK;
    if image.is_empty() {
        return;
    }
    out.par_chunks_exact_mut(len)
        .enumerate()
        .with_min_len(crate::kernels::GRAIN.div_ceil(len))
        .for_each(|(at, out)| {
            let image = &image[at / blocks * channels * plane..][..channels * plane];
            let first = at % blocks * BLOCK;
            let count = BLOCK.min(channels - first);
            if count < BLOCK {
                out.fill(0.0);
            }
            match order {
                Order::Planes => {
                    let planes = image[first * plane..][..count * plane].chunks_exact(plane);
                    for (lane, plane) in planes.enumerate() {
                        for (pixel, &x) in out.chunks_exact_mut(BLOCK).zip(plane) {
                            pixel[lane] = x;
                        }
                    }
                }
                Order::Pixels => {
                    let pixels = image.chunks_exact(channels);
                    for (to, from) in out.chunks_exact_mut(BLOCK).zip(pixels) {
                        to[..count].copy_from_slice(&from[first..first + count]);
                    }
                }
            }
        });
}

/// Writes images of `channels` times `plane` elements from their blocks.
pub fn from_blocks(blocked: &[f32], order: Order, channels: usize, plane: usize, out: &mut [f32]) {
    let blocks = channels.div_ceil(BLOCK);
    let image = blocks * BLOCK * plane;
    if out.is_empty() {
        return;
    }
    match order {
        Order::Planes => out
            .par_chunks_exact_mut(plane)
            .enumerate()
            .with_min_len(crate::kernels::GRAIN.div_ceil(plane))
            .for_each(|(at, out)| {
                let (index, channel) = (at / channels, at % channels);
                let block = index * image + channel / BLOCK * plane * BLOCK;
                let pixels = blocked[block..][..plane * BLOCK].chunks_exact(BLOCK);
                for (to, pixel) in out.iter_mut().zip(pixels) {
                    *to = pixel[channel % BLOCK];
                }
            }),
        Order::Pixels => out
            .par_chunks_exact_mut(channels)
            .enumerate()
            .with_min_len(crate::kernels::GRAIN.div_ceil(channels))
            .for_each(|(at, out)| {
                let (index, pixel) = (at / plane, at % plane);
                let start = index * image + pixel * BLOCK;
                for (block, to) in out.chunks_mut(BLOCK).enumerate() {
                    let from = &blocked[start + block * plane * BLOCK..][..to.len()];
                    to.copy_from_slice(from);
                }
            }),
    }
}
