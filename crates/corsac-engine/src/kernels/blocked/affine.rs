//! Factors and offsets for each channel, and numbers for each channel that meet a whole image.

use multiversion::multiversion;
use rayon::prelude::*;

use super::BLOCK;
use crate::kernels::over::Over;
use crate::program::Binary;
use crate::spread::Spread;

/// `x * factor + offset` by channel, of images with `plane` pixels.
pub fn channel_affine(
    over: &Over<'_>,
    out: &mut [f32],
    factors: &[f32],
    offsets: &[f32],
    plane: usize,
) {
    let blocks = factors.len().div_ceil(BLOCK);
    over.pieces(out, plane * BLOCK, |number, piece| {
        let first = number % blocks * BLOCK;
        let channels = first..factors.len().min(first + BLOCK);
        // Channels that fill up the last block stay zero.
        let (mut factor, mut offset) = ([0.0; BLOCK], [0.0; BLOCK]);
        factor[..channels.len()].copy_from_slice(&factors[channels.clone()]);
        offset[..channels.len()].copy_from_slice(&offsets[channels]);
        affine(piece, &factor, &offset);
    });
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn affine(data: &mut [f32], factor: &[f32; BLOCK], offset: &[f32; BLOCK]) {
    for pixel in data.as_chunks_mut::<BLOCK>().0 {
        for (x, (factor, offset)) in pixel.iter_mut().zip(factor.iter().zip(offset)) {
            *x = *x * factor + offset;
        }
    }
}

/// `out = function(image, numbers)`, or the other way round if `reversed`: `numbers` has one for each
/// channel, of each image or of all.
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
        .spread(|(at, (out, image))| {
            combine(function, image, &numbers[at % numbers.len()], reversed, out);
        });
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn combine(
    function: Binary,
    image: &[f32],
    numbers: &[f32; BLOCK],
    reversed: bool,
    out: &mut [f32],
) {
    let pixels = out.as_chunks_mut::<BLOCK>().0.iter_mut();
    let pixels = pixels.zip(image.as_chunks::<BLOCK>().0);
    macro_rules! each {
        ($f:expr) => {
            for (out, image) in pixels {
                for (out, (&x, &y)) in out.iter_mut().zip(image.iter().zip(numbers)) {
                    *out = if reversed { $f(y, x) } else { $f(x, y) };
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
