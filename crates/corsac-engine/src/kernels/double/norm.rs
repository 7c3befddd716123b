//! Norms and softmax.

use multiversion::multiversion;
use rayon::prelude::*;

use crate::kernels::GRAIN;
use crate::kernels::functions::wide;
use crate::kernels::normalise::{long_row, long_sum};
use crate::kernels::reduce::of_doubles;
use crate::parallel::Parallel;
use crate::program::Reduction;

/// Cost of an element, in operations of the simplest functions.
const COST: usize = 8;

/// Calls `compute` with each row of `row` elements, and its number.
fn rows(out: &mut [f64], row: usize, compute: impl Fn(usize, &mut [f64]) + Sync) {
    if row == 0 {
        return;
    }
    out.par_chunks_mut(row)
        .enumerate()
        .with_min_len(GRAIN.div_ceil(COST * row))
        .run_parallel(|(number, row)| compute(number, row));
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` for each row of `row` elements.
pub(crate) fn layer_norm(out: &mut [f64], row: usize, affine: [Option<&[f64]>; 2], eps: f64) {
    rows(out, row, |_, row| long_row(None, row, affine, eps));
}

/// `x * factor + offset` for each row of `row` elements, whose channels repeat.
pub(crate) fn channel_affine(out: &mut [f64], factors: &[f64], offsets: &[f64], row: usize) {
    rows(out, row, |number, row| {
        let channel = number % factors.len();
        affine(row, factors[channel], offsets[channel]);
    });
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn affine(row: &mut [f64], factor: f64, offset: f64) {
    row.iter_mut().for_each(|x| *x = *x * factor + offset);
}

/// Softmax, or its logarithm, along a dimension of `size` elements with stride `inner`.
pub(crate) fn softmax(out: &mut [f64], size: usize, inner: usize, log: bool) {
    if inner == 1 {
        return rows(out, size, |_, row| softmax_row(row, log));
    }
    rows(out, size * inner, |_, block| {
        let mut line = vec![0.0; size];
        for at in 0..inner {
            let own = block[at..].iter().step_by(inner);
            line.iter_mut().zip(own).for_each(|(to, &x)| *to = x);
            softmax_row(&mut line, log);
            let own = block[at..].iter_mut().step_by(inner);
            own.zip(&line).for_each(|(to, &x)| *to = x);
        }
    });
}

/// Softmax of each row of `row` elements; 0 for rows of nothing but minus infinity.
pub(crate) fn safe_softmax(out: &mut [f64], row: usize) {
    rows(out, row, |_, row| {
        match row.iter().all(|&x| x == f64::NEG_INFINITY) {
            true => row.fill(0.0),
            false => softmax_row(row, false),
        }
    });
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn softmax_row(row: &mut [f64], log: bool) {
    let most = of_doubles(Reduction::Max, row);
    row.iter_mut().for_each(|x| *x -= most);
    if log {
        let sum = long_sum(row, wide::exp).ln();
        return row.iter_mut().for_each(|x| *x -= sum);
    }
    row.iter_mut().for_each(|x| *x = wide::exp(*x));
    let sum = long_sum(row, |x| x);
    row.iter_mut().for_each(|x| *x /= sum);
}
