//! Pooling of images of shape `[planes, rows, columns]`.

use multiversion::multiversion;
use rayon::prelude::*;

use super::GRAIN;
use super::elementwise::Real;
use crate::parallel::Parallel;
use crate::program::{Float, Pool};

/// Start and end of a window along one dimension.
pub(super) fn window(
    at: usize,
    size: usize,
    pool: &Pool,
    dim: usize,
) -> impl Iterator<Item = usize> + use<> {
    let (kernel, dilation) = (pool.kernel[dim], pool.dilation[dim]);
    let start = (at * pool.stride[dim]) as isize - pool.padding[dim] as isize;
    (0..kernel)
        .map(move |k| start + (k * dilation) as isize)
        .filter_map(move |at| usize::try_from(at).ok().filter(|&at| at < size))
}

/// Pairs of the planes of images and of results; none if either has no elements.
fn planes<'a, T: Float>(
    input: &'a [T],
    [rows, columns]: [usize; 2],
    [out_rows, out_columns]: [usize; 2],
    out: &'a mut [T],
) -> impl IndexedParallelIterator<Item = (&'a mut [T], &'a [T])> {
    let planes = input.par_chunks((rows * columns).max(1));
    out.par_chunks_mut((out_rows * out_columns).max(1))
        .zip(planes)
}

/// The largest of each window.
pub fn max_pool<T: Float>(
    input: &[T],
    [rows, columns]: [usize; 2],
    pool: &Pool,
    [out_rows, out_columns]: [usize; 2],
    out: &mut [T],
) {
    planes(input, [rows, columns], [out_rows, out_columns], out)
        .with_min_len(GRAIN.div_ceil((rows * columns).max(1)))
        .run_parallel_with(
            || Line::new(columns, pool, out_columns, T::of(f64::NEG_INFINITY)),
            |line, (out, plane)| {
                for (at, out) in out.chunks_mut(out_columns).enumerate() {
                    let rows =
                        window(at, rows, pool, 0).map(|row| &plane[row * columns..][..columns]);
                    largest(line, rows, pool, out);
                }
            },
        );
}

/// The elements of a row of windows, reduced over the rows of the windows, with the padding of the
/// image.
struct Line<T> {
    elements: Vec<T>,
    /// Start of the image.
    padding: usize,
    /// Width of the image.
    columns: usize,
    outside: T,
}

impl<T: Float> Line<T> {
    fn new(columns: usize, pool: &Pool, out_columns: usize, outside: T) -> Self {
        let padding = pool.padding[1];
        let reached = out_columns.saturating_sub(1) * pool.stride[1]
            + pool.kernel[1].saturating_sub(1) * pool.dilation[1]
            // The last window is read in whole strides.
            + pool.stride[1];
        Self {
            elements: vec![outside; reached.max(padding + columns)],
            padding,
            columns,
            outside,
        }
    }

    fn image(&mut self) -> &mut [T] {
        &mut self.elements[self.padding..][..self.columns]
    }
}

/// `out[i] = f(out[i], line[i * stride])`
#[inline(always)]
fn along<T: Float>(line: &[T], stride: usize, out: &mut [T], f: impl Fn(T, T) -> T) {
    match stride {
        1 => out
            .iter_mut()
            .zip(line)
            .for_each(|(out, &x)| *out = f(*out, x)),
        2 => {
            let pairs = line.as_chunks::<2>().0;
            out.iter_mut()
                .zip(pairs)
                .for_each(|(out, pair)| *out = f(*out, pair[0]));
        }
        _ => {
            let every = line.iter().step_by(stride);
            out.iter_mut()
                .zip(every)
                .for_each(|(out, &x)| *out = f(*out, x));
        }
    }
}

#[inline(always)]
fn larger<T: Float>(most: T, x: T) -> T {
    if x > most || x.is_nan() { x } else { most }
}

/// The place in its plane of the largest element of each window: the first of several, or the last NaN.
pub(crate) fn places_of_largest<T: Real + Into<f64>>(
    input: &[T],
    [rows, columns]: [usize; 2],
    pool: &Pool,
    [out_rows, out_columns]: [usize; 2],
    out: &mut [i64],
) {
    let offset = |k: [usize; 2]| {
        let [row, column] = [0, 1].map(|dim| k[dim] * pool.dilation[dim]);
        (row * columns + column) as i64
    };
    let taps = (0..pool.kernel[0]).flat_map(|row| (0..pool.kernel[1]).map(move |own| [row, own]));
    let offsets: Vec<i64> = taps.map(offset).collect();
    let planes = input.par_chunks((rows * columns).max(1));
    let results = out.par_chunks_mut((out_rows * out_columns).max(1));
    results
        .zip(planes)
        .with_min_len(GRAIN.div_ceil((rows * columns).max(1)))
        .run_parallel_with(
            || {
                let line = Line::new(columns, pool, out_columns, T::of(f64::NEG_INFINITY));
                (
                    line,
                    vec![T::default(); out_columns],
                    vec![T::default(); out_columns],
                )
            },
            |(line, most, taps), (out, plane)| {
                for (at, out) in out.chunks_mut(out_columns).enumerate() {
                    largest_taps(line, plane, at, pool, (most, taps));
                    let first = at * pool.stride[0] * columns;
                    let padding = pool.padding[0] * columns + pool.padding[1];
                    for (column, (out, &tap)) in out.iter_mut().zip(&*taps).enumerate() {
                        let start = (first + column * pool.stride[1]) as i64 - padding as i64;
                        let tap: f64 = tap.into();
                        *out = start + offsets[tap as usize];
                    }
                }
            },
        );
}

/// The largest elements of a row of windows, and their numbers in the windows.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn largest_taps<T: Real>(
    line: &mut Line<T>,
    plane: &[T],
    at: usize,
    pool: &Pool,
    (most, taps): (&mut [T], &mut [T]),
) {
    let columns = line.columns;
    let outside = |at: usize, dim: usize| {
        let before = pool.padding[dim].saturating_sub(at * pool.stride[dim]);
        before.div_ceil(pool.dilation[dim])
    };
    let first = outside(at, 0);
    let rows = plane.len() / columns.max(1);
    // Those of windows of minus infinities.
    for (column, tap) in taps.iter_mut().enumerate() {
        *tap = T::of((first * pool.kernel[1] + outside(column, 1)) as f64);
    }
    most.fill(line.outside);
    for (nth, row) in window(at, rows, pool, 0).enumerate() {
        line.image()
            .copy_from_slice(&plane[row * columns..][..columns]);
        for k in 0..pool.kernel[1] {
            let tap = T::of(((first + nth) * pool.kernel[1] + k) as f64);
            let line = &line.elements[k * pool.dilation[1]..];
            match pool.stride[1] {
                1 => keep_larger(line.iter().copied(), tap, most, taps),
                2 => {
                    let pairs = line.as_chunks::<2>().0;
                    keep_larger(pairs.iter().map(|pair| pair[0]), tap, most, taps);
                }
                stride => keep_larger(line.iter().copied().step_by(stride), tap, most, taps),
            }
        }
    }
}

#[inline(always)]
fn keep_larger<T: Real>(elements: impl Iterator<Item = T>, tap: T, most: &mut [T], taps: &mut [T]) {
    for ((x, most), own) in elements.zip(most).zip(taps) {
        let is_larger = (x > *most) | x.is_nan();
        *most = T::selected(is_larger, x, *most);
        *own = T::selected(is_larger, tap, *own);
    }
}

/// The largest of each window: first along columns, then along rows.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn largest<'a, T: Float>(
    line: &mut Line<T>,
    rows: impl Iterator<Item = &'a [T]>,
    pool: &Pool,
    out: &mut [T],
) {
    let outside = line.outside;
    let image = line.image();
    image.fill(outside);
    for row in rows {
        along(row, 1, image, larger);
    }
    out.fill(outside);
    for k in 0..pool.kernel[1] {
        along(
            &line.elements[k * pool.dilation[1]..],
            pool.stride[1],
            out,
            larger,
        );
    }
}

/// The mean of each window: sums along columns, then along rows.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn means<'a, T: Float>(
    line: &mut Line<T>,
    rows: impl Iterator<Item = &'a [T]>,
    pool: &Pool,
    (counts, count): (&[T], T),
    out: &mut [T],
) {
    let image = line.image();
    image.fill(T::default());
    for row in rows {
        along(row, 1, image, |sum, x| sum + x);
    }
    out.fill(T::default());
    for k in 0..pool.kernel[1] {
        along(&line.elements[k..], pool.stride[1], out, |sum, x| sum + x);
    }
    out.iter_mut()
        .zip(counts)
        .for_each(|(sum, &own)| *sum /= own * count);
}

/// Windows and divisors of average pooling.
#[derive(Clone, Copy, Debug)]
pub struct Averages<'a> {
    /// The windows.
    pub pool: &'a Pool,
    /// Whether zeros outside the image count.
    pub count_padding: bool,
    /// Divisor of the sums, if it is not the number of elements.
    pub divisor: Option<usize>,
}

impl Averages<'_> {
    /// Divisor of the window at this row and column of the result.
    pub(super) fn count(&self, at: [usize; 2], image: [usize; 2]) -> f32 {
        self.along(0, at[0], image[0]) as f32 * self.along(1, at[1], image[1]) as f32
    }

    /// Factor of the divisor for a dimension of an image with that size.
    fn along(&self, dim: usize, at: usize, size: usize) -> usize {
        if let Some(divisor) = self.divisor {
            return if dim == 0 { 1 } else { divisor };
        }
        // Even if zeros outside the image count, a window ends at the end of the padding.
        let pool = self.pool;
        let start = (at * pool.stride[dim]) as isize - pool.padding[dim] as isize;
        let end = (start + pool.kernel[dim] as isize).min((size + pool.padding[dim]) as isize);
        let count = match self.count_padding {
            true => end - start,
            false => end.min(size as isize) - start.max(0),
        };
        count.unsigned_abs()
    }
}

/// The mean of each window.
pub fn avg_pool<T: Float>(
    input: &[T],
    [rows, columns]: [usize; 2],
    averages: &Averages<'_>,
    [out_rows, out_columns]: [usize; 2],
    out: &mut [T],
) {
    let pool = averages.pool;
    let scratch = || {
        let counts = (0..out_columns).map(|at| T::of(averages.along(1, at, columns) as f64));
        let line = Line::new(columns, pool, out_columns, T::default());
        (line, counts.collect::<Vec<T>>())
    };
    planes(input, [rows, columns], [out_rows, out_columns], out)
        .with_min_len(GRAIN.div_ceil((rows * columns).max(1)))
        .run_parallel_with(scratch, |(line, counts), (out, plane)| {
            for (i, out) in out.chunks_mut(out_columns).enumerate() {
                let count = T::of(averages.along(0, i, rows) as f64);
                let rows = window(i, rows, pool, 0).map(|row| &plane[row * columns..][..columns]);
                means(line, rows, pool, (counts, count), out);
            }
        });
}

/// The range of elements of window `at` of `parts` windows over `size` elements.
pub(super) fn span(at: usize, size: usize, parts: usize) -> std::ops::Range<usize> {
    at * size / parts..((at + 1) * size).div_ceil(parts)
}

/// Adaptive average pooling to `out_rows` by `out_columns`.
pub fn adaptive_avg_pool<T: Float>(
    input: &[T],
    [rows, columns]: [usize; 2],
    [out_rows, out_columns]: [usize; 2],
    out: &mut [T],
) {
    planes(input, [rows, columns], [out_rows, out_columns], out)
        .with_min_len(16)
        .run_parallel(|(out, plane)| {
            for (i, out) in out.chunks_mut(out_columns).enumerate() {
                let window = span(i, rows, out_rows);
                for (j, out) in out.iter_mut().enumerate() {
                    let across = span(j, columns, out_columns);
                    let row = |row: usize| &plane[row * columns..][across.clone()];
                    let sums = window.clone().map(|at| row(at).iter().copied().sum::<T>());
                    *out = sums.sum::<T>() / T::of((window.len() * across.len()) as f64);
                }
            }
        });
}
