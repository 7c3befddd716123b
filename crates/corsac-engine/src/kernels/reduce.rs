//! Sums and extremes along dimensions.

use multiversion::multiversion;
use rayon::prelude::*;
use rten_simd::SimdOp;
use rten_vecmath::Sum;
use smallvec::SmallVec;

use super::GRAIN;
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
            for (to, &x) in out[at..].iter_mut().zip(row) {
                *to = combine(reduction, *to, x);
            }
        }
    }
    if reduction == Reduction::Mean {
        let count = count as f32;
        out.iter_mut().for_each(|x| *x /= count);
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

/// The largest or smallest of a row, NaN if there is one.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn extreme(reduction: Reduction, row: &[f32]) -> f32 {
    const LANES: usize = 64;
    macro_rules! of {
        ($reduction:expr) => {{
            let (whole, rest) = row.as_chunks::<LANES>();
            let own = whole.split_first().map(|(first, more)| {
                let mut lanes = *first;
                for chunk in more {
                    for (lane, &x) in lanes.iter_mut().zip(chunk) {
                        *lane = combine($reduction, *lane, x);
                    }
                }
                lanes
            });
            let lanes = own.iter().flatten().chain(rest).copied();
            lanes
                .reduce(|a, b| combine($reduction, a, b))
                .unwrap_or(f32::NAN)
        }};
    }
    match reduction {
        Reduction::Min => of!(Reduction::Min),
        _ => of!(Reduction::Max),
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
