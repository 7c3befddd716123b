//! Sums and extremes along dimensions.

use multiversion::multiversion;
use rayon::prelude::*;
use rten_simd::SimdOp;
use rten_vecmath::Sum;
use smallvec::SmallVec;

use super::GRAIN;
use super::normalise::long_sum;
use crate::program::Reduction;
use crate::spread::Spread;

/// Reduces `input`, of shape `shape`, along `dims`, which are sorted.
pub fn reduce(
    reduction: Reduction,
    input: &[f32],
    shape: &[usize],
    dims: &[usize],
    out: &mut [f32],
) {
    let count: usize = dims.iter().map(|&dim| shape[dim]).product();
    let rank = shape.len();
    if count == 0 {
        // Of nothing; extremes of nothing are refused when a program is made.
        return out.fill(if reduction == Reduction::Sum {
            0.0
        } else {
            f32::NAN
        });
    }
    let trailing = dims
        .iter()
        .enumerate()
        .all(|(at, &dim)| dim == rank - dims.len() + at);
    if trailing {
        out.par_iter_mut()
            .zip(input.par_chunks(count))
            .with_min_len(GRAIN.div_ceil(count))
            .spread(|(out, row)| *out = of_row(reduction, row));
        return;
    }
    let start = match reduction {
        Reduction::Sum | Reduction::Mean => 0.0,
        Reduction::Max => f32::NEG_INFINITY,
        Reduction::Min => f32::INFINITY,
    };
    out.fill(start);
    // Steps in the result along the dimensions of the input: none along those that go.
    let mut strides: SmallVec<[usize; 6]> = SmallVec::from_elem(0, rank);
    let mut step = 1;
    for at in (0..rank).rev() {
        if !dims.contains(&at) {
            strides[at] = step;
            step *= shape[at];
        }
    }
    let Some((&row, outer)) = shape.split_last() else {
        out[0] = input[0];
        return;
    };
    if row == 0 {
        return;
    }
    let inner = strides[outer.len()];
    for (index, row) in input.chunks(row).enumerate() {
        let (mut rest, mut at) = (index, 0);
        for dim in (0..outer.len()).rev() {
            at += rest % shape[dim] * strides[dim];
            rest /= shape[dim];
        }
        if inner == 0 {
            let partial = match reduction {
                Reduction::Mean => of_row(Reduction::Sum, row),
                other => of_row(other, row),
            };
            out[at] = combine(reduction, out[at], partial);
        } else {
            combine_rows(reduction, &mut out[at..at + row.len()], row);
        }
    }
    if reduction == Reduction::Mean {
        let count = count as f32;
        out.iter_mut().for_each(|x| *x /= count);
    }
}

/// Reduces the squares of a row.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub(crate) fn of_squares(reduction: Reduction, row: &[f32]) -> f32 {
    let sum = long_sum(row, |x| x * x);
    match reduction {
        Reduction::Mean => sum / row.len() as f32,
        _ => sum,
    }
}

/// Reduces a row.
pub(crate) fn of_row(reduction: Reduction, row: &[f32]) -> f32 {
    match reduction {
        Reduction::Sum => Sum::new(row).dispatch(),
        Reduction::Mean => Sum::new(row).dispatch() / row.len() as f32,
        Reduction::Max | Reduction::Min => extreme(reduction, row),
    }
}

/// The place of the largest or smallest of each row of `row` elements: the first of several, and the first NaN where
/// there is one.
pub(crate) fn places(reduction: Reduction, input: &[f32], row: usize, out: &mut [i64]) {
    out.par_iter_mut()
        .zip(input.par_chunks(row))
        .with_min_len(GRAIN.div_ceil(row))
        .spread(|(out, row)| {
            let extreme = extreme(reduction, row);
            let is_it = |x: f32| x == extreme || x.is_nan();
            // A piece at a time: whether it is there takes less than where.
            let has = |piece: &[f32]| piece.iter().fold(false, |has, &x| has | is_it(x));
            let pieces = row.chunks(64);
            let before = pieces.take_while(|piece| !has(piece)).count() * 64;
            let place = row[before.min(row.len())..].iter().position(|&x| is_it(x));
            *out = (before + place.unwrap_or(0)) as i64;
        });
}

/// The largest or smallest of a row, NaN if there is one.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn extreme(reduction: Reduction, row: &[f32]) -> f32 {
    const LANES: usize = 64;
    // NaN is looked for beside, so that an extreme is one instruction.
    let is_nan = row.iter().fold(false, |is_nan, x| is_nan | x.is_nan());
    if is_nan {
        return f32::NAN;
    }
    macro_rules! of {
        ($f:expr) => {{
            let (whole, rest) = row.as_chunks::<LANES>();
            let own = whole.split_first().map(|(first, more)| {
                let mut lanes = *first;
                for chunk in more {
                    for (lane, &x) in lanes.iter_mut().zip(chunk) {
                        *lane = $f(*lane, x);
                    }
                }
                lanes
            });
            let own = own.map(|mut lanes| {
                for half in [32, 16, 8, 4, 2, 1] {
                    let (low, high) = lanes.split_at_mut(half);
                    for (a, &b) in low.iter_mut().zip(&*high) {
                        *a = $f(*a, b);
                    }
                }
                lanes[0]
            });
            let rest = rest.iter().copied().chain(own);
            rest.reduce(|a, b| $f(a, b)).unwrap_or(f32::NAN)
        }};
    }
    match reduction {
        Reduction::Min => of!(|a: f32, b: f32| if b < a { b } else { a }),
        _ => of!(|a: f32, b: f32| if b > a { b } else { a }),
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn combine_rows(reduction: Reduction, out: &mut [f32], row: &[f32]) {
    macro_rules! each {
        ($reduction:expr) => {
            for (to, &x) in out.iter_mut().zip(row) {
                *to = combine($reduction, *to, x);
            }
        };
    }
    match reduction {
        Reduction::Sum | Reduction::Mean => each!(Reduction::Sum),
        Reduction::Max => each!(Reduction::Max),
        Reduction::Min => each!(Reduction::Min),
    }
}

#[inline(always)]
fn combine(reduction: Reduction, a: f32, b: f32) -> f32 {
    match reduction {
        Reduction::Sum | Reduction::Mean => a + b,
        Reduction::Max if b > a || b.is_nan() => b,
        Reduction::Min if b < a || b.is_nan() => b,
        Reduction::Max | Reduction::Min => a,
    }
}
