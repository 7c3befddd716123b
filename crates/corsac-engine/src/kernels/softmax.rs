//! Softmax.

use multiversion::multiversion;
use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, Simd, SimdOp};

use super::blocked::attention::largest_lane;
use super::elementwise::binary_in_place;
use super::functions::vectors::exp_of_negative;
use super::functions::{double, single};
use super::normalise::{COST, LANES, SHORT, TOGETHER, each, folded, sum};
use super::result_tiles::ResultTiles;
use crate::program::Binary;

/// Number of columns that are computed together.
const COLUMNS: usize = 256;

/// Softmax of each row of `row` elements.
pub fn softmax_rows(tiles: &ResultTiles<'_>, out: &mut [f32], row: usize, log: bool) {
    if row == 0 {
        return;
    }
    if row >= SHORT {
        return tiles.rows_from(out, row, COST, |from, row| {
            LongRow { from, row, log }.dispatch();
        });
    }
    let together = TOGETHER.div_ceil(row) * row;
    tiles.rows(out, together, COST, |rows| {
        move_below_zero(rows, row);
        if log {
            let mut powers = [0.0; TOGETHER + SHORT];
            let powers = &mut powers[..rows.len()];
            powers.copy_from_slice(rows);
            to_powers(powers);
            subtract_logarithms(rows, powers, row);
        } else {
            to_powers(rows);
            divide_by_sums(rows, row);
        }
    });
}

/// Softmax of one row: of `from`, or in place.
struct LongRow<'a> {
    from: Option<&'a [f32]>,
    row: &'a mut [f32],
    log: bool,
}

/// Number of vectors that are processed at a time, so that none waits for another.
const ABREAST: usize = 4;

impl SimdOp for LongRow<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { from, row, log } = self;
        let ops = isa.f32();
        let (len, total) = (ops.len(), row.len());
        let whole = total / (ABREAST * len) * ABREAST * len;
        let infinity = ops.splat(f32::NEG_INFINITY);

        // NaN may be ignored here: it makes the sum NaN.
        let mut most = [infinity; ABREAST];
        for at in (0..whole).step_by(ABREAST * len) {
            let all = ops.load_many::<ABREAST>(&from.unwrap_or(row)[at..]);
            for (most, x) in most.iter_mut().zip(all) {
                *most = ops.max(x, *most);
            }
        }
        for at in (whole..total).step_by(len) {
            let (x, is_there) = ops.load_pad(&from.unwrap_or(row)[at..]);
            most[0] = ops.max(ops.select(x, infinity, is_there), most[0]);
        }
        let [a, b, c, d] = most;
        let most = ops.max(ops.max(a, b), ops.max(c, d));
        let most = ops.splat(largest_lane(most.to_array().as_ref()));

        let mut sums = [ops.zero(); ABREAST];
        for at in (0..whole).step_by(ABREAST * len) {
            let all = ops.load_many::<ABREAST>(&from.unwrap_or(row)[at..]);
            for (number, (sum, x)) in sums.iter_mut().zip(all).enumerate() {
                let power = exp_of_negative(isa, ops.sub(x, most));
                *sum = ops.add(*sum, power);
                if !log {
                    ops.store(power, &mut row[at + number * len..]);
                }
            }
        }
        for at in (whole..total).step_by(len) {
            let (x, is_there) = ops.load_pad(&from.unwrap_or(row)[at..]);
            let power = exp_of_negative(isa, ops.sub(x, most));
            sums[0] = ops.add(sums[0], ops.select(power, ops.zero(), is_there));
            if !log {
                put(&mut row[at..], power);
            }
        }
        let [a, b, c, d] = sums;
        let sum = ops.sum(ops.add(ops.add(a, b), ops.add(c, d)));

        let (factor, logarithm) = (ops.splat(1.0 / sum), ops.splat(sum.ln()));
        let scaled = |x| match log {
            true => ops.sub(ops.sub(x, most), logarithm),
            false => ops.mul(x, factor),
        };
        let whole = total / len * len;
        for at in (0..whole).step_by(len) {
            let x = match from {
                Some(from) if log => ops.load(&from[at..]),
                _ => ops.load(&row[at..]),
            };
            ops.store(scaled(x), &mut row[at..]);
        }
        if whole < total {
            let (x, _) = match from {
                Some(from) if log => ops.load_pad(&from[whole..]),
                _ => ops.load_pad(&row[whole..]),
            };
            put(&mut row[whole..], scaled(x));
        }
    }
}

/// Writes a vector, or as much of it as fits.
#[inline(always)]
fn put<S: Simd<Elem = f32>>(to: &mut [f32], vector: S) {
    let vector = vector.to_array();
    let count = to.len().min(vector.as_ref().len());
    to[..count].copy_from_slice(&vector.as_ref()[..count]);
}

/// Powers of e of numbers that are not positive.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn to_powers(data: &mut [f32]) {
    data.iter_mut()
        .for_each(|x| *x = single::exp_of_negative(*x));
}

/// Subtracts the largest element of each row.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn move_below_zero(rows: &mut [f32], row: usize) {
    // As integers with the same order, whose maximum is the same in any order of evaluation: NaN is
    // beyond infinity, or makes the sum NaN.
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

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn divide_by_sums(rows: &mut [f32], row: usize) {
    for row in rows.chunks_exact_mut(row) {
        let factor = 1.0 / sum(row);
        each(row, |x| x * factor);
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn subtract_logarithms(rows: &mut [f32], powers: &[f32], row: usize) {
    // All logarithms at once: a single one takes as long as a row.
    let mut logarithms = [0.0; TOGETHER];
    let logarithms = &mut logarithms[..rows.len() / row];
    for (logarithm, powers) in logarithms.iter_mut().zip(powers.chunks_exact(row)) {
        *logarithm = sum(powers);
    }
    logarithms.iter_mut().for_each(|x| *x = double::ln(*x));
    for (row, logarithm) in rows.chunks_exact_mut(row).zip(&*logarithms) {
        each(row, |x| x - logarithm);
    }
}

/// Softmax along a dimension of `size` elements with stride `inner`.
pub fn softmax_strided(
    tiles: &ResultTiles<'_>,
    out: &mut [f32],
    size: usize,
    inner: usize,
    log: bool,
) {
    if inner == 1 {
        return softmax_rows(tiles, out, size, log);
    }
    tiles.rows(out, size * inner, COST, |block| {
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
        to_powers(powers);
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
