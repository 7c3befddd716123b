//! Resampling along one dimension at a time.

use multiversion::multiversion;
use rayon::prelude::*;

use super::GRAIN;
use super::indexing::Gathered;
use crate::parallel::Parallel;
use crate::program::{Float, Taps};

/// Weighted sums of rows of `inner` elements, in blocks of `size` rows: `taps` has, for each row of
/// the result, the rows and their weights.
pub(crate) fn resample<T: Float + Gathered>(
    input: &[T],
    size: usize,
    inner: usize,
    taps: &Taps,
    out: &mut [T],
) {
    if out.is_empty() || taps.is_empty() {
        return;
    }
    if inner == 1 {
        let line = Line::of(taps);
        return out
            .par_chunks_mut(taps.len())
            .zip(input.par_chunks(size))
            .with_min_len(GRAIN.div_ceil(taps.len()))
            .run_parallel(|(out, input)| line.sums(input, taps, out));
    }
    out.par_chunks_mut(inner)
        .enumerate()
        .with_min_len(GRAIN.div_ceil(inner))
        .run_parallel(|(row, out)| {
            let (block, taps) = (row / taps.len(), &taps[row % taps.len()]);
            let from = |at: usize| &input[(block * size + at) * inner..][..inner];
            match taps[..] {
                [(at, 1.0)] => out.copy_from_slice(from(at)),
                [(a, x), (b, y)] => of_two([from(a), from(b)], [x, y].map(T::of), out),
                [(a, x), (b, y), (c, z), (d, w)] => {
                    of_four([a, b, c, d].map(from), [x, y, z, w].map(T::of), out);
                }
                ref taps => {
                    out.fill(T::of(-0.0));
                    for &(at, weight) in taps {
                        add(from(at), T::of(weight), out);
                    }
                }
            }
        });
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn of_two<T: Float>([a, b]: [&[T]; 2], [x, y]: [T; 2], out: &mut [T]) {
    for (out, (&a, &b)) in out.iter_mut().zip(a.iter().zip(b)) {
        *out = x * a + y * b;
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn of_four<T: Float>([a, b, c, d]: [&[T]; 4], [x, y, z, w]: [T; 4], out: &mut [T]) {
    let rows = a.iter().zip(b).zip(c.iter().zip(d));
    for (out, ((&a, &b), (&c, &d))) in out.iter_mut().zip(rows) {
        *out = x * a + y * b + z * c + w * d;
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn add<T: Float>(from: &[T], weight: T, out: &mut [T]) {
    for (out, &x) in out.iter_mut().zip(from) {
        *out += weight * x;
    }
}

/// Taps within a line, with the same number for all elements but the last ones, which may have
/// fewer.
enum Line<T> {
    Copies(Vec<i64>),
    Two(Vec<[(u32, T); 2]>),
    Four(Vec<[(u32, T); 4]>),
    Others,
}

impl<T: Float + Gathered> Line<T> {
    fn of(taps: &Taps) -> Self {
        match taps[0].len() {
            1 if taps.iter().all(|own| matches!(own[..], [(_, 1.0)])) => {
                Self::Copies(taps.iter().map(|own| own[0].0 as i64).collect())
            }
            2 => Self::Two(several(taps)),
            4 => Self::Four(several(taps)),
            _ => Self::Others,
        }
    }

    fn sums(&self, input: &[T], taps: &Taps, out: &mut [T]) {
        let done = match self {
            Self::Copies(places) => {
                let all = T::gather(input, places, &mut out[..places.len()]);
                debug_assert!(all, "taps lie in the line");
                places.len()
            }
            Self::Two(taps) => weighted(input, taps, out),
            Self::Four(taps) => weighted(input, taps, out),
            Self::Others => 0,
        };
        for (out, taps) in out.iter_mut().zip(taps).skip(done) {
            let products = taps.iter().map(|&(at, own)| T::of(own) * input[at]);
            *out = products.reduce(|a, b| a + b).unwrap_or_default();
        }
    }
}

/// The taps of the leading elements, as long as each has `N`.
fn several<T: Float, const N: usize>(taps: &Taps) -> Vec<[(u32, T); N]> {
    let whole = taps.iter().take_while(|own| own.len() == N);
    whole
        .map(|own| std::array::from_fn(|tap| (own[tap].0 as u32, T::of(own[tap].1))))
        .collect()
}

fn weighted<T: Float, const N: usize>(input: &[T], taps: &[[(u32, T); N]], out: &mut [T]) -> usize {
    for (out, taps) in out.iter_mut().zip(taps) {
        let mut sum = taps[0].1 * input[taps[0].0 as usize];
        for &(at, weight) in &taps[1..] {
            sum += weight * input[at as usize];
        }
        *out = sum;
    }
    taps.len()
}
