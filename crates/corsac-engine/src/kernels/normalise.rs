//! Layer norm.

use std::array::from_fn;

use multiversion::multiversion;

use super::elementwise::{affine, binary_in_place};
use super::result_tiles::ResultTiles;
use crate::program::{Binary, Float};

/// Cost of an element, in operations of the simplest functions.
pub(super) const COST: usize = 4;

/// Rows of fewer elements are not worth a dispatch on the instruction set for each.
pub(super) const SHORT: usize = 128;
/// Approximate number of elements that are computed together.
pub(super) const TOGETHER: usize = 2 * 1024;
/// Number of elements that are summed side by side.
pub(super) const LANES: usize = 16;

/// `row[i] = f(row[i])`: a vector at a time, also where there is only one.
#[inline(always)]
pub(super) fn each(row: &mut [f32], f: impl Fn(f32) -> f32) {
    let (whole, rest) = row.as_chunks_mut::<LANES>();
    for chunk in whole {
        chunk.iter_mut().for_each(|x| *x = f(*x));
    }
    rest.iter_mut().for_each(|x| *x = f(*x));
}

/// Combines all lanes.
#[inline(always)]
pub(super) fn folded<T: Copy>(lanes: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    // Constant sizes, so that lanes stay in registers.
    let eight: [T; 8] = from_fn(|at| f(lanes[at], lanes[at + 8]));
    let four: [T; 4] = from_fn(|at| f(eight[at], eight[at + 4]));
    f(f(four[0], four[2]), f(four[1], four[3]))
}

#[inline(always)]
pub(super) fn sum<T: Float>(row: &[T]) -> T {
    sum_of(row, |x| x)
}

#[inline(always)]
pub(super) fn sum_of_squares(row: &[f32]) -> f32 {
    sum_of(row, |x| x * x)
}

#[inline(always)]
pub(super) fn sum_of<T: Float>(row: &[T], f: impl Fn(T) -> T) -> T {
    let (whole, rest) = row.as_chunks::<LANES>();
    let mut lanes = [T::default(); LANES];
    for chunk in whole {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += f(x);
        }
    }
    let rest: T = rest.iter().map(|&x| f(x)).sum();
    folded(lanes, |a, b| a + b) + rest
}

/// [`sum_of`] for long rows: several vectors side by side.
#[inline(always)]
pub(super) fn long_sum<T: Float>(row: &[T], f: impl Fn(T) -> T) -> T {
    const VECTORS: usize = 4;
    let (whole, rest) = row.as_chunks::<{ VECTORS * LANES }>();
    let mut lanes = [T::default(); VECTORS * LANES];
    for chunk in whole {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += f(x);
        }
    }
    sum(&lanes) + sum_of(rest, f)
}

/// `(x - mean) / sqrt(variance + eps)` for each row.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn standardise(rows: &mut [f32], row: usize, eps: f32) {
    for row in rows.chunks_exact_mut(row) {
        let len = row.len() as f32;
        let mean = sum(row) / len;
        each(row, |x| x - mean);
        let scale = 1.0 / (sum_of_squares(row) / len + eps).sqrt();
        each(row, |x| x * scale);
    }
}

fn times_each(rows: &mut [f32], weight: &[f32]) {
    for row in rows.chunks_exact_mut(weight.len()) {
        binary_in_place(Binary::Mul, row, weight);
    }
}

fn plus_each(rows: &mut [f32], bias: &[f32]) {
    for row in rows.chunks_exact_mut(bias.len()) {
        binary_in_place(Binary::Add, row, bias);
    }
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` for each row of `row` elements.
pub fn layer_norm(
    tiles: &ResultTiles<'_>,
    out: &mut [f32],
    row: usize,
    [weight, bias]: [Option<&[f32]>; 2],
    eps: f32,
) {
    if row < SHORT && row > 0 {
        let together = TOGETHER.div_ceil(row) * row;
        return tiles.rows(out, together, COST, |rows| {
            standardise(rows, row, eps);
            match (weight, bias) {
                (None, None) => {}
                (Some(weight), None) => times_each(rows, weight),
                (None, Some(bias)) => plus_each(rows, bias),
                (Some(weight), Some(bias)) => affine(rows, weight, bias),
            }
        });
    }
    tiles.rows_from(out, row, COST, |from, row| {
        long_row(from, row, [weight, bias], eps);
    });
}

/// [`layer_norm`] of one row: of `from`, or in place.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub(super) fn long_row<T: Float>(
    from: Option<&[T]>,
    row: &mut [T],
    [weight, bias]: [Option<&[T]>; 2],
    eps: T,
) {
    let (mean, scale) = {
        let from = from.unwrap_or(row);
        let len = T::of(from.len() as f64);
        let mean = long_sum(from, |x| x) / len;
        let variance = long_sum(from, |x| (x - mean) * (x - mean)) / len;
        (mean, T::of(1.0) / (variance + eps).sqrt())
    };
    match (from, weight, bias) {
        (Some(from), Some(weight), Some(bias)) => {
            let numbers = from.iter().zip(weight.iter().zip(bias));
            for (y, (&x, (&weight, &bias))) in row.iter_mut().zip(numbers) {
                *y = (x - mean) * scale * weight + bias;
            }
        }
        (Some(from), Some(weight), None) => {
            for (y, (&x, &weight)) in row.iter_mut().zip(from.iter().zip(weight)) {
                *y = (x - mean) * scale * weight;
            }
        }
        (Some(from), None, _) => {
            for (y, &x) in row.iter_mut().zip(from) {
                *y = (x - mean) * scale;
            }
        }
        (None, Some(weight), Some(bias)) => {
            for (x, (&weight, &bias)) in row.iter_mut().zip(weight.iter().zip(bias)) {
                *x = (*x - mean) * scale * weight + bias;
            }
        }
        (None, Some(weight), None) => {
            for (x, &weight) in row.iter_mut().zip(weight) {
                *x = (*x - mean) * scale * weight;
            }
        }
        (None, None, _) => {
            for x in row.iter_mut() {
                *x = (*x - mean) * scale;
            }
        }
    }
    if let (None, Some(bias)) = (weight, bias) {
        for (x, &bias) in row.iter_mut().zip(bias) {
            *x += bias;
        }
    }
}
