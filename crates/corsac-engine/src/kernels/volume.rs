//! Convolutions in any number of dimensions up to three, and transposed ones: a product of matrices,
//! and elements moved to or from where windows have them.

use rten_gemm::{GemmExecutor, GemmInputA, GemmInputB, GemmOptions};
use rten_tensor::Matrix;

/// A convolution over volumes; lines and images have sizes of 1 in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Channels of the image, in all groups.
    pub channels: usize,
    /// Channels of the result, in all groups.
    pub out_channels: usize,
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// Sizes of the image.
    pub input: [usize; 3],
    /// Sizes of the result.
    pub output: [usize; 3],
    /// Sizes of the kernel.
    pub kernel: [usize; 3],
    /// From one window to the next.
    pub stride: [usize; 3],
    /// Zeros before the image.
    pub padding: [usize; 3],
    /// From one element of the kernel to the next.
    pub dilation: [usize; 3],
    /// Whether it is the transposed one: windows are those of the result.
    pub transposed: bool,
}

impl Volume {
    /// Writes the result for each image of `input`.
    pub fn run(&self, input: &[f32], weight: &[f32], bias: Option<&[f32]>, out: &mut [f32]) {
        let size = |sizes: &[usize; 3]| sizes.iter().product::<usize>();
        let (image, result) = (size(&self.input), size(&self.output));
        if out.is_empty() || result == 0 {
            return;
        }
        match bias {
            Some(bias) => {
                for (at, plane) in out.chunks_mut(result).enumerate() {
                    plane.fill(bias[at % bias.len()]);
                }
            }
            None => out.fill(0.0),
        }
        let taps = size(&self.kernel);
        let (own, own_out) = (self.channels / self.groups, self.out_channels / self.groups);
        if image == 0 || own == 0 || taps == 0 {
            return;
        }
        let places = if self.transposed { image } else { result };
        let rows = taps * if self.transposed { own_out } else { own };
        let mut columns = vec![0.0; rows * places];
        let gemm = GemmExecutor::<f32>::new();
        let images = input.chunks(self.channels * image);
        for (input, out) in images.zip(out.chunks_mut(self.out_channels * result)) {
            for group in 0..self.groups {
                let input = &input[group * own * image..][..own * image];
                let out = &mut out[group * own_out * result..][..own_out * result];
                let weight = &weight[group * own * own_out * taps..];
                let options = || GemmOptions::default();
                if self.transposed {
                    let weight = &weight[..own * own_out * taps];
                    let weight = Matrix::from_data([own, rows], weight);
                    let done = gemm.gemm(
                        &mut columns,
                        GemmInputA::Unpacked(weight.transposed()),
                        GemmInputB::Unpacked(Matrix::from_data([own, image], input)),
                        options(),
                    );
                    debug_assert!(done.is_ok(), "shapes were checked: {done:?}");
                    self.each(|channel, at_result, at_column| {
                        out[channel * result + at_result] += columns[at_column];
                    });
                } else {
                    columns.fill(0.0);
                    self.each(|channel, at_image, at_column| {
                        columns[at_column] = input[channel * image + at_image];
                    });
                    let weight = Matrix::from_data([own_out, rows], &weight[..own_out * rows]);
                    let mut product = vec![0.0; own_out * result];
                    let done = gemm.gemm(
                        &mut product,
                        GemmInputA::Unpacked(weight),
                        GemmInputB::Unpacked(Matrix::from_data([rows, result], &columns[..])),
                        options(),
                    );
                    debug_assert!(done.is_ok(), "shapes were checked: {done:?}");
                    out.iter_mut().zip(&product).for_each(|(out, x)| *out += x);
                }
            }
        }
    }

    /// Calls `visit` with a channel, a place in the larger volume and one among the columns, for all
    /// that windows reach.
    fn each(&self, mut visit: impl FnMut(usize, usize, usize)) {
        // Windows lie in the image, or in the result of the transposed one.
        let (whole, windows, channels) = match self.transposed {
            true => (self.output, self.input, self.out_channels / self.groups),
            false => (self.input, self.output, self.channels / self.groups),
        };
        let place = |dim: usize, window: usize, tap: usize| {
            let at = window * self.stride[dim] + tap * self.dilation[dim];
            at.checked_sub(self.padding[dim])
                .filter(|&at| at < whole[dim])
        };
        let [kd, kh, kw] = self.kernel;
        let [wd, wh, ww] = windows;
        for channel in 0..channels {
            for (tap, [d, h, w]) in taps(self.kernel).enumerate() {
                let row = (channel * kd * kh * kw + tap) * wd * wh * ww;
                for i in 0..wd {
                    let Some(z) = place(0, i, d) else { continue };
                    for j in 0..wh {
                        let Some(y) = place(1, j, h) else { continue };
                        let line = (z * whole[1] + y) * whole[2];
                        for k in 0..ww {
                            if let Some(x) = place(2, k, w) {
                                visit(channel, line + x, row + (i * wh + j) * ww + k);
                            }
                        }
                    }
                }
            }
        }
    }
}

fn taps([depth, rows, columns]: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    (0..depth).flat_map(move |d| (0..rows).flat_map(move |h| (0..columns).map(move |w| [d, h, w])))
}
