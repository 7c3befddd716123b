//! Convolutions in which each channel is on its own.
//!
//! A plane is copied into as many planes as the kernel's steps have phases, with zeros around, so
//! that every element of the kernel reads one run of elements, however wide the image is and however
//! far the kernel moves. The result is then the sum of a few shifted runs, taken piece by piece.

use multiversion::multiversion;

use super::conv::ConvShape;

/// Elements of the result that are summed at a time.
const BLOCK: usize = 64;

/// A depthwise convolution, laid out.
#[derive(Clone, Debug)]
pub(super) struct Depthwise {
    /// By element of the kernel, where in the planes its run begins.
    taps: Vec<usize>,
    /// Phases of rows and columns, with the sizes of their planes.
    phases: [usize; 2],
    rows: usize,
    pitch: usize,
    shape: ConvShape,
}

impl Depthwise {
    pub(super) fn new(shape: &ConvShape) -> Self {
        let conv = &shape.conv;
        let far = |dim: usize| (shape.kernel[dim] - 1) * conv.dilation[dim];
        let rows = shape.output[1] + far(0) / conv.stride[0];
        let pitch = shape.output[2] + far(1) / conv.stride[1];
        let mut taps = Vec::with_capacity(shape.kernel[0] * shape.kernel[1]);
        for ky in 0..shape.kernel[0] {
            for kx in 0..shape.kernel[1] {
                let (y, x) = (ky * conv.dilation[0], kx * conv.dilation[1]);
                let phase = y % conv.stride[0] * conv.stride[1] + x % conv.stride[1];
                let at = y / conv.stride[0] * pitch + x / conv.stride[1];
                taps.push(phase * rows * pitch + at);
            }
        }
        Self {
            taps,
            phases: conv.stride,
            rows,
            pitch,
            shape: shape.clone(),
        }
    }

    /// How many elements [`Depthwise::run`] needs besides: planes, and a result with their pitch.
    pub(super) fn scratch_len(&self) -> usize {
        let plane = self.rows * self.pitch;
        // Runs are read in whole blocks.
        plane * self.phases[0] * self.phases[1] + plane + 2 * BLOCK
    }

    /// Writes the convolution of one plane.
    pub(super) fn run(
        &self,
        weights: &[f32],
        bias: f32,
        image: &[f32],
        out: &mut [f32],
        scratch: &mut [f32],
    ) {
        let phases = self.phases[0] * self.phases[1];
        let (planes, sums) = scratch.split_at_mut(self.rows * self.pitch * phases + BLOCK);
        self.separate(image, planes);
        let columns = self.shape.output[2];
        let len = (self.shape.output[1] - 1) * self.pitch + columns;
        sum_taps(&self.taps, weights, bias, planes, &mut sums[..len]);
        for (to, from) in out.chunks_mut(columns).zip(sums.chunks(self.pitch)) {
            to.copy_from_slice(&from[..columns]);
        }
    }

    /// Copies an image into its phases, with zeros around.
    fn separate(&self, image: &[f32], planes: &mut [f32]) {
        planes.fill(0.0);
        let [_, rows, columns] = self.shape.input;
        let conv = &self.shape.conv;
        let [stride_y, stride_x] = conv.stride;
        let [top, left] = conv.padding[0];
        let plane = self.rows * self.pitch;
        for (y, row) in image.chunks(columns).enumerate().take(rows) {
            let at = y + top;
            let (phase_y, line) = (at % stride_y, at / stride_y);
            if line >= self.rows {
                continue;
            }
            for phase_x in 0..stride_x {
                // The first element of the row that is of this phase.
                let skip = (phase_x + stride_x - left % stride_x) % stride_x;
                let start = (left + skip) / stride_x;
                if start >= self.pitch || skip >= columns {
                    continue;
                }
                let at = (phase_y * stride_x + phase_x) * plane + line * self.pitch;
                let to = &mut planes[at + start..at + self.pitch];
                if stride_x == 1 {
                    let len = to.len().min(columns);
                    to[..len].copy_from_slice(&row[..len]);
                } else {
                    let from = row[skip..].iter().step_by(stride_x);
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                }
            }
        }
    }
}

/// `sums[i] = bias + Σ weights[t] * planes[i + taps[t]]`
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn sum_taps(taps: &[usize], weights: &[f32], bias: f32, planes: &[f32], sums: &mut [f32]) {
    for (block, sums) in sums.chunks_mut(BLOCK).enumerate() {
        let mut sum = [bias; BLOCK];
        for (&tap, &weight) in taps.iter().zip(weights) {
            let run = &planes[block * BLOCK + tap..][..BLOCK];
            for (sum, x) in sum.iter_mut().zip(run) {
                *sum += weight * x;
            }
        }
        sums.copy_from_slice(&sum[..sums.len()]);
    }
}
