//! Levels of numbers as bytes, and images of them: the channels of a pixel follow each other, filled up
//! to whole quads.

use corsac_kernels::int8::{self, Scaled, dequantise};
use rayon::prelude::*;

use super::{QUAD, level_bytes};
use crate::kernels::GRAIN;
use crate::kernels::blocked::BLOCK;
use crate::parallel::Parallel;
use crate::program::{AddLevels, Levels, Pool};

/// An image, without its batch: channels, rows, columns.
pub type Image = [usize; 3];

/// Bytes of a pixel.
#[must_use]
pub fn pixel_len(channels: usize) -> usize {
    channels.next_multiple_of(QUAD)
}

/// Writes the levels of numbers as unsigned bytes, to which signed ones are moved.
pub fn to_bytes(from: &[f32], levels: Levels, to: &mut [u8]) {
    let pieces = to.par_chunks_mut(GRAIN).zip(from.par_chunks(GRAIN));
    pieces.run_parallel(|(to, from)| level_bytes(from, levels, to));
}

/// Writes the numbers of unsigned bytes.
pub fn from_bytes(from: &[u8], (zero, scale): (i32, f32), to: &mut [f32]) {
    let pieces = to.par_chunks_mut(GRAIN).zip(from.par_chunks(GRAIN));
    pieces.run_parallel(|(to, from)| dequantise(from, scale, zero, to));
}

/// Writes what a table has for each byte.
pub fn map(table: &[u8; 256], from: &[u8], to: &mut [u8]) {
    let pieces = to.par_chunks_mut(4 * GRAIN).zip(from.par_chunks(4 * GRAIN));
    pieces.run_parallel(|(to, from)| int8::map(table, from, to));
}

/// Writes the levels of sums.
pub fn add(add: &AddLevels, [a, b]: [&[u8]; 2], to: &mut [u8]) {
    let [of_a, of_b] = add
        .operands
        .map(|(zero_point, scale)| Scaled { scale, zero_point });
    let quantisation = add.levels.as_bytes().quantisation();
    let operands = a.par_chunks(GRAIN).zip(b.par_chunks(GRAIN));
    to.par_chunks_mut(GRAIN)
        .zip(operands)
        .run_parallel(|(to, (a, b))| {
            int8::add([(a, of_a), (b, of_b)], add.bounds, &quantisation, to);
        });
}

/// Pixels that are converted at a time.
const PIXELS: usize = 64;

/// The place of a pixel's channel in an image of numbers: in blocks of channels, or in planes.
fn runs(
    in_blocks: bool,
    [channels, rows, columns]: Image,
) -> impl Iterator<Item = (usize, usize, usize)> {
    // First channel, number of channels together, and where they begin.
    let together = if in_blocks { BLOCK } else { 1 };
    let plane = rows * columns;
    (0..channels.div_ceil(together)).map(move |run| {
        let first = run * together;
        (
            first,
            together.min(channels - first),
            run * plane * together,
        )
    })
}

/// Writes images of numbers, in blocks or in planes, as bytes.
pub fn to_pixels(from: &[f32], in_blocks: bool, image: Image, levels: Levels, to: &mut [u8]) {
    let [channels, rows, columns] = image;
    let (plane, pixel) = (rows * columns, pixel_len(channels));
    let together = if in_blocks { BLOCK } else { 1 };
    let own = channels.next_multiple_of(together) * plane;
    let zero = levels.byte_zero() as u8;
    for (from, to) in from
        .chunks_exact(own)
        .zip(to.chunks_exact_mut(plane * pixel))
    {
        to.par_chunks_mut(PIXELS * pixel)
            .enumerate()
            .with_min_len(GRAIN.div_ceil(PIXELS * pixel))
            .run_parallel(|(part, to)| {
                let count = to.len() / pixel;
                let mut bytes = [0; PIXELS * BLOCK];
                let bytes = &mut bytes[..count * together];
                if pixel > channels {
                    to.fill(zero);
                }
                let own_bytes = |start: usize, bytes: &mut [u8]| {
                    let numbers = &from[start + part * PIXELS * together..][..count * together];
                    level_bytes(numbers, levels, bytes);
                };
                if !in_blocks && pixel == QUAD {
                    // Few planes, as those of pictures.
                    let mut planes = [[zero; PIXELS]; QUAD];
                    for ((_, _, start), plane) in runs(false, image).zip(&mut planes) {
                        own_bytes(start, &mut plane[..count]);
                    }
                    for (at, to) in to.as_chunks_mut::<QUAD>().0.iter_mut().enumerate() {
                        *to = std::array::from_fn(|channel| planes[channel][at]);
                    }
                    return;
                }
                for (channel, wide, start) in runs(in_blocks, image) {
                    own_bytes(start, bytes);
                    let pixels = to.chunks_exact_mut(pixel).zip(bytes.chunks_exact(together));
                    for (to, bytes) in pixels {
                        to[channel..channel + wide].copy_from_slice(&bytes[..wide]);
                    }
                }
            });
    }
}

/// Writes images of bytes as numbers, in blocks or in planes.
pub fn from_pixels(
    from: &[u8],
    in_blocks: bool,
    image: Image,
    (zero, scale): (i32, f32),
    to: &mut [f32],
) {
    let [channels, rows, columns] = image;
    let (plane, pixel) = (rows * columns, pixel_len(channels));
    let together = if in_blocks { BLOCK } else { 1 };
    let runs_of_image = channels.div_ceil(together);
    to.par_chunks_mut(plane * together)
        .enumerate()
        .with_min_len(GRAIN.div_ceil(plane * together))
        .run_parallel(|(at, to)| {
            let (number, first) = (at / runs_of_image, at % runs_of_image * together);
            let wide = together.min(channels - first);
            let from = &from[number * plane * pixel..][..plane * pixel];
            let mut bytes = [zero as u8; PIXELS * BLOCK];
            let parts = to.chunks_mut(PIXELS * together);
            for (to, from) in parts.zip(from.chunks(PIXELS * pixel)) {
                let pixels = bytes
                    .chunks_exact_mut(together)
                    .zip(from.chunks_exact(pixel));
                for (bytes, from) in pixels {
                    bytes[..wide].copy_from_slice(&from[first..first + wide]);
                }
                dequantise(&bytes[..to.len()], scale, zero, to);
            }
        });
}

/// Writes the largest byte of each window.
pub fn max_pool(from: &[u8], pool: &Pool, image: Image, output: Image, to: &mut [u8]) {
    let [channels, rows, columns] = image;
    let pixel = pixel_len(channels);
    let [_, out_rows, out_columns] = output;
    to.par_chunks_mut(out_columns * pixel)
        .enumerate()
        .with_min_len(GRAIN.div_ceil(out_columns * pixel))
        .run_parallel(|(at, to)| {
            let (number, row) = (at / out_rows, at % out_rows);
            let from = &from[number * rows * columns * pixel..][..rows * columns * pixel];
            to.fill(0);
            for (column, to) in to.chunks_exact_mut(pixel).enumerate() {
                let inside = |at: usize, element: usize, dim: usize, len: usize| {
                    let at = at * pool.stride[dim] + element * pool.dilation[dim];
                    at.checked_sub(pool.padding[dim]).filter(|&at| at < len)
                };
                for y in (0..pool.kernel[0]).filter_map(|own| inside(row, own, 0, rows)) {
                    for x in (0..pool.kernel[1]).filter_map(|own| inside(column, own, 1, columns)) {
                        let from = &from[(y * columns + x) * pixel..][..pixel];
                        for (to, &byte) in to.iter_mut().zip(from) {
                            *to = byte.max(*to);
                        }
                    }
                }
            }
        });
}
