//! Images in blocks of channels.
//!
//! An image of `[channels, rows, columns]` lies in memory as `[channels / 16, rows, columns, 16]`,
//! the last block padded with zeros. All channels of a block are one or a few vectors, so that a
//! kernel reads and writes whole vectors at any stride, and a convolution multiplies a broadcast
//! element with a vector of weights: no patches are gathered. The layout is oneDNN's `nChw16c`.

pub mod affine;
pub mod attention;
pub mod conv;
pub mod depthwise;
pub mod linear;
mod narrow;
pub mod pool;
pub mod reorder;
#[cfg(test)]
mod tests;
mod tile;

use crate::kernels::bf16;
use crate::program::{ConvShape, Precision};

pub use crate::program::BLOCK;

/// Kernel of a convolution whose result lies in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvAlgorithm {
    /// For an image with a plane for each channel: too few channels for a block.
    Planes,
    /// For an image in blocks.
    Blocks,
    /// For an image in blocks, each channel by itself: depthwise.
    Depthwise,
    /// For an image in blocks, rounded to bfloat16.
    Bf16,
}

impl ConvAlgorithm {
    /// The algorithm for a convolution; `None` if there is no kernel for it.
    #[must_use]
    pub fn of(shape: &ConvShape, precision: Precision) -> Option<Self> {
        let conv = &shape.conv;
        let (inputs, outputs) = (shape.input[0], shape.output[0]);
        let step = conv.stride[1];
        let alone = conv.groups > 1 && conv.groups == inputs && conv.groups == outputs;
        let (algorithm, known) = if alone && matches!(step, 1 | 2) {
            (Self::Depthwise, true)
        } else if precision.bf16_unit().is_some() && bf16::conv::is_supported(shape) {
            (Self::Bf16, true)
        } else if inputs < BLOCK / 2 {
            let run = matches!(step, 1 | 2 | 4) || (step == BLOCK && shape.kernel[1] == BLOCK);
            let known = conv.groups == 1 && conv.dilation[1] == 1 && run;
            (Self::Planes, known)
        } else {
            let whole = |channels: usize| (channels / conv.groups).is_multiple_of(BLOCK);
            let groups = conv.groups == 1 || whole(inputs) && whole(outputs);
            (Self::Blocks, matches!(step, 1 | 2) && groups)
        };
        known.then_some(algorithm)
    }
}

/// Copies the planes of an image, with zeros around. A pixel has `pixel` elements.
fn surround(
    image: &[f32],
    [rows, columns]: [usize; 2],
    [[top, left], [_, right]]: [[usize; 2]; 2],
    pixel: usize,
    plane: &mut [f32],
) {
    let (from, to) = (columns * pixel, (left + columns + right) * pixel);
    let (above, rest) = plane.split_at_mut(top * to);
    let (inside, below) = rest.split_at_mut(rows * to);
    above.fill(0.0);
    below.fill(0.0);
    for (line, row) in inside.chunks_exact_mut(to).zip(image.chunks_exact(from)) {
        let (before, rest) = line.split_at_mut(left * pixel);
        let (own, after) = rest.split_at_mut(from);
        before.fill(0.0);
        own.copy_from_slice(row);
        after.fill(0.0);
    }
}
