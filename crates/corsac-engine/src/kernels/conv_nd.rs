//! Convolutions in up to three dimensions, and transposed ones: a product of matrices, and a copy
//! of elements from or to the places of windows.

use std::ops::Range;

use rayon::prelude::*;

use super::matmul::Product;
use crate::aligned_buffer::zeros;
use crate::parallel::Parallel;
use crate::program::{ConvNd, Float};

/// Types of numbers that matrices are multiplied of.
pub(crate) trait Multiplied: Float {
    /// Writes the products of the matrices `a` and `b`.
    fn multiply(product: &Product<'_>, a: &[Self], b: &[Self], out: &mut [Self]);
}

impl Multiplied for f32 {
    fn multiply(product: &Product<'_>, a: &[Self], b: &[Self], out: &mut [Self]) {
        product.run(a, b, out);
    }
}

impl Multiplied for f64 {
    fn multiply(product: &Product<'_>, a: &[Self], b: &[Self], out: &mut [Self]) {
        product.run_doubles(a, b, out);
    }
}

impl ConvNd {
    /// Writes the result for each image of `input`.
    pub(crate) fn run<T: Multiplied>(
        &self,
        input: &[T],
        weight: &[T],
        bias: Option<&[T]>,
        out: &mut [T],
    ) {
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
            None => out.fill(T::default()),
        }
        let taps = size(&self.kernel);
        let (own, own_out) = (self.channels / self.groups, self.out_channels / self.groups);
        if image == 0 || own == 0 || taps == 0 {
            return;
        }
        let places = if self.transposed { image } else { result };
        let rows = taps * if self.transposed { own_out } else { own };
        let product = self.product();
        // Large products are divided among threads themselves, and are in memory for one image at a
        // time.
        let together = if product.is_small() { 1 } else { usize::MAX };
        let scratch = || {
            let made = if self.transposed { 0 } else { own_out * result };
            (zeros(rows * places), zeros(made))
        };
        let one = |(columns, made): &mut (Vec<T>, Vec<T>), (input, out): (&[T], &mut [T])| {
            for group in 0..self.groups {
                let input = &input[group * own * image..][..own * image];
                let out = &mut out[group * own_out * result..][..own_out * result];
                let weight = &weight[group * own * own_out * taps..];
                let weight = &weight[..own * own_out * taps];
                if self.transposed {
                    T::multiply(&product, weight, input, columns);
                    self.each(|channel, at_result, at_columns| {
                        let out = &mut out[channel * result + at_result..];
                        let columns = &columns[at_columns];
                        match self.stride[2] {
                            1 => out.iter_mut().zip(columns).for_each(|(out, &x)| *out += x),
                            step => {
                                let out = out.iter_mut().step_by(step);
                                out.zip(columns).for_each(|(out, &x)| *out += x);
                            }
                        }
                    });
                } else {
                    columns.fill(T::default());
                    self.each(|channel, at_image, at_columns| {
                        let input = &input[channel * image + at_image..];
                        let columns = &mut columns[at_columns];
                        match self.stride[2] {
                            1 => columns.copy_from_slice(&input[..columns.len()]),
                            step => {
                                let input = input.iter().step_by(step);
                                columns.iter_mut().zip(input).for_each(|(to, x)| *to = *x);
                            }
                        }
                    });
                    T::multiply(&product, weight, columns, made);
                    out.iter_mut().zip(&*made).for_each(|(out, &x)| *out += x);
                }
            }
        };
        input
            .par_chunks(self.channels * image)
            .zip(out.par_chunks_mut(self.out_channels * result))
            .with_min_len(together)
            .run_parallel_with(scratch, one);
    }

    /// The product for each group of each image: of weights and the columns of windows, or of
    /// transposed weights and the image, which gives the columns.
    pub(crate) fn product(&self) -> Product<'static> {
        let size = |sizes: &[usize; 3]| sizes.iter().product::<usize>();
        let (own, own_out) = (self.channels / self.groups, self.out_channels / self.groups);
        let taps = size(&self.kernel);
        let (rows, depth, columns) = match self.transposed {
            true => (own_out * taps, own, size(&self.input)),
            false => (own_out, own * taps, size(&self.output)),
        };
        Product {
            rows,
            depth,
            columns,
            first_transposed: self.transposed,
            transposed: false,
            scale: 1.0,
            pairs: &[[0, 0]],
        }
    }

    /// Calls `visit` with a channel, a position in the larger volume and columns, for all rows in
    /// the reach of windows: consecutive columns are a stride apart there.
    fn each(&self, mut visit: impl FnMut(usize, usize, Range<usize>)) {
        // Windows lie in the image, or in the result of a transposed convolution.
        let (whole, windows, channels) = match self.transposed {
            true => (self.output, self.input, self.out_channels / self.groups),
            false => (self.input, self.output, self.channels / self.groups),
        };
        let place = |dim: usize, window: usize, tap: usize| {
            let at = window * self.stride[dim] + tap * self.dilation[dim];
            at.checked_sub(self.padding[dim])
                .filter(|&at| at < whole[dim])
        };
        // The windows for which this element of the kernel is inside, and its position in the first
        // of them.
        let inside = |tap: usize| {
            let (at, step) = (tap * self.dilation[2], self.stride[2]);
            let first = self.padding[2].saturating_sub(at).div_ceil(step);
            let end = (whole[2] + self.padding[2])
                .saturating_sub(at)
                .div_ceil(step);
            let end = end.min(windows[2]);
            (
                first..end,
                (first * step + at).saturating_sub(self.padding[2]),
            )
        };
        let [kd, kh, kw] = self.kernel;
        let [wd, wh, ww] = windows;
        for channel in 0..channels {
            for (tap, [d, h, w]) in taps(self.kernel).enumerate() {
                let row = (channel * kd * kh * kw + tap) * wd * wh * ww;
                let (inside, x) = inside(w);
                for i in 0..wd {
                    let Some(z) = place(0, i, d) else { continue };
                    for j in 0..wh {
                        let Some(y) = place(1, j, h) else { continue };
                        let first = (z * whole[1] + y) * whole[2] + x;
                        let line = row + (i * wh + j) * ww;
                        if !inside.is_empty() {
                            visit(channel, first, line + inside.start..line + inside.end);
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
