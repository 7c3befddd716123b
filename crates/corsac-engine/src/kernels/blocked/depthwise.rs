//! Depthwise convolutions of images in blocks of channels.

use rayon::prelude::*;
use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};

use super::{BLOCK, surround};
use crate::aligned_buffer::AlignedBuffer;
use crate::kernels::ApplyEpilogue;
use crate::parallel::Parallel;
use crate::program::ConvShape;

/// A depthwise convolution with its weights packed for blocks.
#[derive(Debug)]
pub struct BlockedDepthwise {
    shape: ConvShape,
    /// For each block: the elements of the kernel, by channel.
    weights: AlignedBuffer,
    /// For all blocks.
    bias: Vec<f32>,
    /// Offsets of the elements of the kernel, from the first pixel of a window.
    taps: Vec<usize>,
}

impl BlockedDepthwise {
    /// Packs `weight`, of shape `[channels, 1, rows, columns]`.
    #[must_use]
    pub fn new(shape: ConvShape, weight: &[f32], bias: Option<&[f32]>) -> Self {
        let channels = shape.input[0];
        let count = shape.kernel[0] * shape.kernel[1];
        let padded = channels.next_multiple_of(BLOCK);
        let mut packed = AlignedBuffer::zeros(padded * count);
        for (channel, kernel) in weight.chunks_exact(count).enumerate() {
            for (tap, &weight) in kernel.iter().enumerate() {
                let block = channel / BLOCK * count + tap;
                packed[block * BLOCK + channel % BLOCK] = weight;
            }
        }
        let mut own = vec![0.0; padded];
        if let Some(bias) = bias {
            own[..channels].copy_from_slice(bias);
        }
        let row = padded_size(&shape)[1] * BLOCK;
        let [down, right] = shape.conv.dilation;
        let rows = (0..shape.kernel[0]).flat_map(|y| {
            let columns = 0..shape.kernel[1];
            columns.map(move |x| y * down * row + x * right * BLOCK)
        });
        let taps = rows.collect();
        Self {
            shape,
            weights: packed,
            bias: own,
            taps,
        }
    }

    /// Writes the convolution of `input` to `out`. Calls `epilogue(at, chunk)` with each piece of the
    /// result, which begins at element `at`.
    pub fn run(&self, input: &[f32], out: &mut [f32], epilogue: ApplyEpilogue<'_>) {
        let [_, rows, columns] = self.shape.input;
        let [_, out_rows, out_columns] = self.shape.output;
        let (from, to) = (rows * columns * BLOCK, out_rows * out_columns * BLOCK);
        if from == 0 || to == 0 {
            return;
        }
        let blocks = self.bias.len() / BLOCK;
        let count = self.taps.len();
        let padded = padded_size(&self.shape);
        let is_padded = padded != [rows, columns];
        let scratch = if is_padded {
            padded[0] * padded[1] * BLOCK
        } else {
            0
        };
        out.par_chunks_exact_mut(to)
            .zip(input.par_chunks_exact(from))
            .enumerate()
            .with_min_len(crate::kernels::GRAIN.div_ceil(to * count))
            .run_parallel_with(
                || vec![0.0; scratch],
                |scratch, (at, (out, image))| {
                    let block = at % blocks;
                    let source = match is_padded {
                        true => {
                            let padding = self.shape.conv.padding;
                            surround(image, [rows, columns], padding, BLOCK, scratch);
                            &scratch[..]
                        }
                        false => image,
                    };
                    let plane = Plane {
                        taps: &self.taps,
                        source,
                        pitch: self.shape.conv.stride[0] * padded[1] * BLOCK,
                        weights: &self.weights[block * count * BLOCK..][..count * BLOCK],
                        bias: &self.bias[block * BLOCK..][..BLOCK],
                        columns: out_columns,
                        out,
                    };
                    match self.shape.conv.stride[1] {
                        1 => plane.by_step::<BLOCK>(),
                        _ => plane.by_step::<{ 2 * BLOCK }>(),
                    }
                    epilogue(at * to, out);
                },
            );
    }
}

/// Rows and columns of an image with the zeros around.
fn padded_size(shape: &ConvShape) -> [usize; 2] {
    let [[top, left], [bottom, right]] = shape.conv.padding;
    [top + shape.input[1] + bottom, left + shape.input[2] + right]
}

/// One block of an image.
struct Plane<'a> {
    taps: &'a [usize],
    source: &'a [f32],
    /// Elements of the source from a row of the result to the next.
    pitch: usize,
    weights: &'a [f32],
    bias: &'a [f32],
    columns: usize,
    out: &'a mut [f32],
}

impl<'a> Plane<'a> {
    fn by_step<const STEP: usize>(self) {
        Steps::<'a, STEP>(self).dispatch();
    }
}

/// Computes a plane, whose windows are `STEP` elements apart.
struct Steps<'a, const STEP: usize>(Plane<'a>);

impl<const STEP: usize> SimdOp for Steps<'_, STEP> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let plane = self.0;
        let columns = plane.columns;
        for (y, out) in plane.out.chunks_exact_mut(columns * BLOCK).enumerate() {
            let source = &plane.source[y * plane.pitch..];
            let mut x = 0;
            while x < columns {
                let source = &source[x * STEP..];
                let out = &mut out[x * BLOCK..];
                macro_rules! tiles {
                    ($($pixels:literal)*) => {
                        $(if columns - x >= $pixels {
                            tile::<I, $pixels, STEP>(
                                isa, plane.taps, source, plane.weights, plane.bias, out,
                            );
                            x += $pixels;
                            continue;
                        })*
                    };
                }
                tiles!(14 7 4 2 1);
            }
        }
    }
}

/// Computes `P` pixels of a row.
#[inline(always)]
fn tile<I: Isa, const P: usize, const STEP: usize>(
    isa: I,
    taps: &[usize],
    source: &[f32],
    weights: &[f32],
    bias: &[f32],
    out: &mut [f32],
) {
    let ops = isa.f32();
    let len = ops.len();
    for lane in (0..BLOCK).step_by(len) {
        let mut sums = [ops.load(&bias[lane..lane + len]); P];
        for (&tap, weight) in taps.iter().zip(weights.chunks_exact(BLOCK)) {
            let weight = ops.load(&weight[lane..lane + len]);
            let run = &source[tap..][..(P - 1) * STEP + BLOCK];
            for (p, sum) in sums.iter_mut().enumerate() {
                let x = ops.load(&run[p * STEP + lane..][..len]);
                *sum = ops.mul_add(x, weight, *sum);
            }
        }
        let out = &mut out[..P * BLOCK];
        for (pixel, sum) in out.chunks_exact_mut(BLOCK).zip(sums) {
            ops.store(sum, &mut pixel[lane..lane + len]);
        }
    }
}
