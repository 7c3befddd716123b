//! Factors and offsets for each channel, and functions of a whole image and one number for each
//! channel.

use std::array::from_fn;

use multiversion::multiversion;
use rayon::prelude::*;

use super::BLOCK;
use crate::kernels::result_tiles::ResultTiles;
use crate::parallel::Parallel;
use crate::program::Binary;

/// `x * factor + offset` by channel, of images with `plane` pixels.
pub fn channel_affine(
    tiles: &ResultTiles<'_>,
    out: &mut [f32],
    factors: &[f32],
    offsets: &[f32],
    plane: usize,
) {
    let blocks = factors.len().div_ceil(BLOCK);
    tiles.pieces_from(out, plane * BLOCK, |number, from, piece| {
        let first = number % blocks * BLOCK;
        let channels = first..factors.len().min(first + BLOCK);
        // The padding channels of the last block stay zero.
        let (mut factor, mut offset) = ([0.0; BLOCK], [0.0; BLOCK]);
        factor[..channels.len()].copy_from_slice(&factors[channels.clone()]);
        offset[..channels.len()].copy_from_slice(&offsets[channels]);
        affine(from, piece, &repeated(&factor), &repeated(&offset));
    });
}

/// Numbers for the channels of several pixels: the compiler vectorises a loop over this many, but
/// not one over a block.
type Several = [f32; SEVERAL];

/// Number of elements of [`Several`].
const SEVERAL: usize = 4 * BLOCK;

fn repeated(numbers: &[f32; BLOCK]) -> Several {
    from_fn(|at| numbers[at % BLOCK])
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn affine(from: Option<&[f32]>, data: &mut [f32], factor: &Several, offset: &Several) {
    match from {
        None => {
            for pixels in data.chunks_mut(SEVERAL) {
                for (x, (factor, offset)) in pixels.iter_mut().zip(factor.iter().zip(offset)) {
                    *x = *x * factor + offset;
                }
            }
        }
        Some(from) => {
            for (pixels, from) in data.chunks_mut(SEVERAL).zip(from.chunks(SEVERAL)) {
                let numbers = from.iter().zip(factor.iter().zip(offset));
                for (y, (x, (factor, offset))) in pixels.iter_mut().zip(numbers) {
                    *y = x * factor + offset;
                }
            }
        }
    }
}

/// `out = function(image, numbers)`, or `function(numbers, image)` if `reversed`. `numbers` has one
/// for each channel, of each image or of all.
pub fn with_channels(
    function: Binary,
    image: &[f32],
    numbers: &[f32],
    reversed: bool,
    plane: usize,
    out: &mut [f32],
) {
    let len = (plane * BLOCK).max(1);
    let numbers = numbers.as_chunks::<BLOCK>().0;
    out.par_chunks_exact_mut(len)
        .zip(image.par_chunks_exact(len))
        .enumerate()
        .with_min_len(crate::kernels::GRAIN.div_ceil(len))
        .run_parallel(|(at, (out, image))| {
            let numbers = repeated(&numbers[at % numbers.len()]);
            combine(function, image, &numbers, reversed, out);
        });
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn combine(function: Binary, image: &[f32], numbers: &Several, reversed: bool, out: &mut [f32]) {
    let pixels = out.chunks_mut(SEVERAL).zip(image.chunks(SEVERAL));
    macro_rules! each {
        ($f:expr) => {
            for (out, image) in pixels {
                let numbers = image.iter().zip(numbers);
                match reversed {
                    false => {
                        for (out, (&x, &y)) in out.iter_mut().zip(numbers) {
                            *out = $f(x, y);
                        }
                    }
                    true => {
                        for (out, (&x, &y)) in out.iter_mut().zip(numbers) {
                            *out = $f(y, x);
                        }
                    }
                }
            }
        };
    }
    use crate::kernels::elementwise::{maximum, prelu};
    match function {
        Binary::Add => each!(|x: f32, y: f32| x + y),
        Binary::Sub => each!(|x: f32, y: f32| x - y),
        Binary::Mul => each!(|x: f32, y: f32| x * y),
        Binary::Div => each!(|x: f32, y: f32| x / y),
        Binary::Maximum => each!(maximum),
        Binary::Minimum => each!(|x: f32, y: f32| -maximum(-x, -y)),
        Binary::Prelu => each!(prelu),
    }
}
