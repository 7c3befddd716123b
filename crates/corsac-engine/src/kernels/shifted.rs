//! Images laid out so that each element of a kernel reads one contiguous run.
//!
//! A plane is copied into one plane for each phase of the strides, with zeros around. An element of
//! the kernel then reads a run that begins at a fixed offset, for any width and stride, and the
//! result is a sum over shifted runs. Rows of the result are `pitch` apart; the elements between
//! them are not used.

use crate::program::ConvShape;

/// Layout of the runs of a convolution.
#[derive(Clone, Debug)]
pub(super) struct Shifted {
    /// By element of the kernel, the offset of its run in the planes.
    pub(super) taps: Vec<usize>,
    /// Numbers of phases of rows and columns.
    phases: [usize; 2],
    rows: usize,
    pitch: usize,
    /// Rows and columns of an image, and of a result.
    image: [usize; 2],
    result: [usize; 2],
    /// Zeros above and left.
    padding: [usize; 2],
}

impl Shifted {
    pub(super) fn new(shape: &ConvShape) -> Self {
        let conv = &shape.conv;
        let [_, out_rows, out_columns] = shape.output;
        let far = |dim: usize| (shape.kernel[dim] - 1) * conv.dilation[dim];
        let rows = out_rows + far(0) / conv.stride[0];
        let pitch = out_columns + far(1) / conv.stride[1];
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
            image: [shape.input[1], shape.input[2]],
            result: [out_rows, out_columns],
            padding: conv.padding[0],
        }
    }

    /// Number of elements of the planes of an image.
    pub(super) fn planes_len(&self) -> usize {
        self.rows * self.pitch * self.phases[0] * self.phases[1]
    }

    /// Length of a run: a result, with the elements between its rows.
    pub(super) fn run_len(&self) -> usize {
        (self.result[0] - 1) * self.pitch + self.result[1]
    }

    /// Copies the rows of a result out of a run.
    pub(super) fn collect(&self, run: &[f32], out: &mut [f32]) {
        let columns = self.result[1];
        for (to, from) in out.chunks_mut(columns).zip(run.chunks(self.pitch)) {
            to.copy_from_slice(&from[..columns]);
        }
    }

    /// Copies an image into its phases, with zeros around.
    pub(super) fn separate(&self, image: &[f32], planes: &mut [f32]) {
        planes.fill(0.0);
        let [rows, columns] = self.image;
        let [stride_y, stride_x] = self.phases;
        let [top, left] = self.padding;
        let plane = self.rows * self.pitch;
        for (y, row) in image.chunks(columns).enumerate().take(rows) {
            let at = y + top;
            let (phase_y, line) = (at % stride_y, at / stride_y);
            if line >= self.rows {
                continue;
            }
            for phase_x in 0..stride_x {
                // The first element of the row that belongs to this phase.
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
