//! Softmax and layer norm.

use std::array::from_fn;

use multiversion::multiversion;
use rten_simd::{SimdOp, SimdUnaryOp};
use rten_vecmath::{Exp, Normalize, NormalizeOptions, Sum, SumSquareSub};

use super::elementwise::{affine, binary_in_place, binary_rows};
use super::functions;
use super::over::Over;
use super::reduce;
use crate::program::{Binary, Reduction};

/// What an element costs, counted in the simplest functions.
const COST: usize = 4;

/// Rows of fewer elements are not worth finding out for each what the processor can do.
const SHORT: usize = 128;
/// How many elements are computed together, about.
const TOGETHER: usize = 2 * 1024;
/// How many columns are.
const COLUMNS: usize = 256;
/// Elements that are summed up side by side.
const LANES: usize = 16;

/// Softmax of each row of `row` elements.
pub fn softmax_rows(over: &Over<'_>, out: &mut [f32], row: usize, log: bool) {
    if row == 0 {
        return;
    }
    if row >= SHORT {
        return over.rows(out, row, COST, |row| long_softmax(row, log));
    }
    let together = TOGETHER.div_ceil(row) * row;
    over.rows(out, together, COST, |rows| {
        move_below_zero(rows, row);
        if log {
            let mut powers = [0.0; TOGETHER + SHORT];
            let powers = &mut powers[..rows.len()];
            powers.copy_from_slice(rows);
            Exp {}.map_mut(powers);
            subtract_logarithms(rows, powers, row);
        } else {
            Exp {}.map_mut(rows);
            divide_by_sums(rows, row);
        }
    });
}

fn long_softmax(row: &mut [f32], log: bool) {
    let len = row.len();
    let most = reduce::of_row(Reduction::Max, row);
    binary_rows(Binary::Sub, None, row, &[most], len, false);
    if log {
        let mut powers = [0.0; TOGETHER];
        let sums = row.chunks(TOGETHER).map(|piece| {
            let powers = &mut powers[..piece.len()];
            powers.copy_from_slice(piece);
            Exp {}.map_mut(powers);
            Sum::new(powers).dispatch()
        });
        let logarithm = sums.sum::<f32>().ln();
        binary_rows(Binary::Sub, None, row, &[logarithm], len, false);
    } else {
        Exp {}.map_mut(row);
        let factor = 1.0 / Sum::new(row).dispatch();
        binary_rows(Binary::Mul, None, row, &[factor], len, false);
    }
}

/// Subtracts the largest element of each row.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn move_below_zero(rows: &mut [f32], row: usize) {
    // As integers in the same order, whose maximum may be taken in any: NaN is beyond infinity, or makes the sum NaN.
    let ordered = |bits: i32| bits ^ ((bits >> 31) & i32::MAX);
    for row in rows.chunks_exact_mut(row) {
        let (whole, rest) = row.as_chunks::<LANES>();
        let mut lanes = [i32::MIN; LANES];
        for chunk in whole {
            for (lane, x) in lanes.iter_mut().zip(chunk) {
                *lane = (*lane).max(ordered(x.to_bits().cast_signed()));
            }
        }
        let mut most = folded(lanes, i32::max);
        for x in rest {
            most = most.max(ordered(x.to_bits().cast_signed()));
        }
        let most = f32::from_bits(ordered(most).cast_unsigned());
        each(row, |x| x - most);
    }
}

/// `row[i] = f(row[i])`: a vector at a time, also where there is only one.
#[inline(always)]
fn each(row: &mut [f32], f: impl Fn(f32) -> f32) {
    let (whole, rest) = row.as_chunks_mut::<LANES>();
    for chunk in whole {
        chunk.iter_mut().for_each(|x| *x = f(*x));
    }
    rest.iter_mut().for_each(|x| *x = f(*x));
}

/// All lanes in one.
#[inline(always)]
fn folded<T: Copy>(lanes: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    // Sizes that the compiler knows, so that lanes stay in registers.
    let eight: [T; 8] = from_fn(|at| f(lanes[at], lanes[at + 8]));
    let four: [T; 4] = from_fn(|at| f(eight[at], eight[at + 4]));
    f(f(four[0], four[2]), f(four[1], four[3]))
}

#[inline(always)]
fn sum(row: &[f32]) -> f32 {
    sum_of(row, |x| x)
}

#[inline(always)]
fn sum_of_squares(row: &[f32]) -> f32 {
    sum_of(row, |x| x * x)
}

#[inline(always)]
fn sum_of(row: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let (whole, rest) = row.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for chunk in whole {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += f(x);
        }
    }
    let rest: f32 = rest.iter().map(|&x| f(x)).sum();
    folded(lanes, |a, b| a + b) + rest
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn divide_by_sums(rows: &mut [f32], row: usize) {
    for row in rows.chunks_exact_mut(row) {
        let factor = 1.0 / sum(row);
        each(row, |x| x * factor);
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn subtract_logarithms(rows: &mut [f32], powers: &[f32], row: usize) {
    // All at once: a logarithm alone takes as long as a row.
    let mut logarithms = [0.0; TOGETHER];
    let logarithms = &mut logarithms[..rows.len() / row];
    for (logarithm, powers) in logarithms.iter_mut().zip(powers.chunks_exact(row)) {
        *logarithm = sum(powers);
    }
    logarithms.iter_mut().for_each(|x| *x = functions::ln(*x));
    for (row, logarithm) in rows.chunks_exact_mut(row).zip(&*logarithms) {
        each(row, |x| x - logarithm);
    }
}

/// Softmax along a dimension of `size` elements that lie `inner` apart.
pub fn softmax_strided(over: &Over<'_>, out: &mut [f32], size: usize, inner: usize, log: bool) {
    if inner == 1 {
        return softmax_rows(over, out, size, log);
    }
    over.rows(out, size * inner, COST, |block| {
        for first in (0..inner).step_by(COLUMNS) {
            softmax_columns(block, inner, first, COLUMNS.min(inner - first), log);
        }
    });
}

/// Softmax of `count` columns of rows of `row` elements.
fn softmax_columns(block: &mut [f32], row: usize, first: usize, count: usize, log: bool) {
    let (mut most, mut sums, mut powers) = ([0.0; COLUMNS], [0.0; COLUMNS], [0.0; COLUMNS]);
    let (most, sums) = (&mut most[..count], &mut sums[..count]);
    most.fill(f32::NEG_INFINITY);
    for row in block.chunks_exact(row) {
        binary_in_place(Binary::Maximum, most, &row[first..][..count]);
    }
    for row in block.chunks_exact_mut(row) {
        let own = &mut row[first..][..count];
        binary_in_place(Binary::Sub, own, most);
        let powers = match log {
            true => {
                powers[..count].copy_from_slice(own);
                &mut powers[..count]
            }
            false => own,
        };
        Exp {}.map_mut(powers);
        binary_in_place(Binary::Add, sums, powers);
    }
    let function = match log {
        true => {
            sums.iter_mut().for_each(|sum| *sum = sum.ln());
            Binary::Sub
        }
        false => {
            sums.iter_mut().for_each(|sum| *sum = 1.0 / *sum);
            Binary::Mul
        }
    };
    for row in block.chunks_exact_mut(row) {
        binary_in_place(function, &mut row[first..][..count], sums);
    }
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
    over: &Over<'_>,
    out: &mut [f32],
    row: usize,
    [weight, bias]: [Option<&[f32]>; 2],
    eps: f32,
) {
    if row < SHORT && row > 0 {
        let together = TOGETHER.div_ceil(row) * row;
        return over.rows(out, together, COST, |rows| {
            standardise(rows, row, eps);
            match (weight, bias) {
                (None, None) => {}
                (Some(weight), None) => times_each(rows, weight),
                (None, Some(bias)) => plus_each(rows, bias),
                (Some(weight), Some(bias)) => affine(rows, weight, bias),
            }
        });
    }
    over.rows(out, row, COST, |row| {
        let len = row.len() as f32;
        let mean = Sum::new(row).dispatch() / len;
        let variance = SumSquareSub::new(row, mean).dispatch() / len;
        let options = NormalizeOptions {
            pre_scale_bias: mean,
            scale: 1.0 / (variance + eps).sqrt(),
            element_scale: weight,
            bias: 0.0,
            element_bias: bias,
        };
        Normalize::new_mut(row, options).dispatch();
    });
}
