//! Convolutions.

use super::{Program, Step};

/// A convolution in two dimensions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// Rows and columns from one window to the next.
    pub stride: [usize; 2],
    /// Zeros above and left of the image, below and right of it.
    pub padding: [[usize; 2]; 2],
    /// Rows and columns from one element of the kernel to the next.
    pub dilation: [usize; 2],
    /// Number of groups of channels that are independent of each other.
    pub groups: usize,
}

/// Shapes of a convolution.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvShape {
    /// Images.
    pub batch: usize,
    /// Channels, rows and columns of an image.
    pub input: [usize; 3],
    /// Channels, rows and columns of a result.
    pub output: [usize; 3],
    /// Rows and columns of the kernel.
    pub kernel: [usize; 2],
    /// Stride, padding, dilation and groups.
    pub conv: Conv,
}

impl ConvShape {
    /// The shapes of `step`, which is the convolution `conv`.
    pub(crate) fn of(program: &Program, step: &Step, conv: &Conv) -> Self {
        let (image, kernel) = (program.shape(step.inputs[0]), program.shape(step.inputs[1]));
        let out = program.shape(step.output);
        let out = &out[out.len() - 3..];
        Self {
            batch: image[0],
            input: [image[1], image[2], image[3]],
            output: [kernel[0], out[1], out[2]],
            kernel: [kernel[2], kernel[3]],
            conv: conv.clone(),
        }
    }
}

/// A convolution over volumes; lines and images have leading sizes of 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvNd {
    /// Channels of the image, in all groups.
    pub channels: usize,
    /// Channels of the result, in all groups.
    pub out_channels: usize,
    /// Number of groups of channels that are independent of each other.
    pub groups: usize,
    /// Sizes of the image.
    pub input: [usize; 3],
    /// Sizes of the result.
    pub output: [usize; 3],
    /// Sizes of the kernel.
    pub kernel: [usize; 3],
    /// Stride of windows.
    pub stride: [usize; 3],
    /// Zeros before the image.
    pub padding: [usize; 3],
    /// Stride of the elements of the kernel.
    pub dilation: [usize; 3],
    /// Whether it is transposed: the windows lie in the result.
    pub transposed: bool,
}
