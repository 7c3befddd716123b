//! Reductions and cumulative sums along dimensions.

use multiversion::multiversion;
use rayon::prelude::*;
use rten_simd::SimdOp;
use rten_vecmath::Sum;
use smallvec::SmallVec;

use super::GRAIN;
use super::elementwise::Real;
use super::normalise::long_sum;
use super::rows::{reduced_strides, row_len, start};
use crate::parallel::Parallel;
use crate::program::{Float, Reduction};

/// Element types that are reduced along dimensions.
pub trait Reduced: Copy {
    /// Reduces `input`, of shape `shape`, along `dims`, which are sorted. `None` if the reduction is
    /// not defined for the type.
    fn reduce(
        reduction: Reduction,
        input: &[Self],
        shape: &[usize],
        dims: &[usize],
        out: &mut [Self],
    ) -> Option<()>;
}

impl<T: OfRow> Reduced for T {
    fn reduce(
        reduction: Reduction,
        input: &[Self],
        shape: &[usize],
        dims: &[usize],
        out: &mut [Self],
    ) -> Option<()> {
        floats(reduction, input, shape, dims, out);
        Some(())
    }
}

/// Implements [`Reduced`] by the neutral element and the function of each reduction but means.
macro_rules! reduced {
    ($type:ty: $($($reduction:ident)|+ => ($zero:expr, $f:expr),)*) => {
        impl Reduced for $type {
            fn reduce(
                reduction: Reduction,
                input: &[Self],
                shape: &[usize],
                dims: &[usize],
                out: &mut [Self],
            ) -> Option<()> {
                match reduction {
                    $($(Reduction::$reduction)|+ => fold(input, shape, dims, ($zero, $f), out),)*
                    Reduction::Mean => return None,
                }
                Some(())
            }
        }
    };
}

reduced! { i64:
    Sum => (0, i64::wrapping_add),
    Product => (1, i64::wrapping_mul),
    Max => (i64::MIN, i64::max),
    Min => (i64::MAX, i64::min),
}

reduced! { u8:
    Sum | Max => (0, |a, b| a | b),
    Product | Min => (1, |a, b| a & b),
}

/// Reduces floating-point numbers; products in their precision, as PyTorch multiplies them.
fn floats<T: OfRow>(
    reduction: Reduction,
    input: &[T],
    shape: &[usize],
    dims: &[usize],
    out: &mut [T],
) {
    let count: usize = dims.iter().map(|&dim| shape[dim]).product();
    if count == 0 {
        // Empty reductions; extremes of them are refused when a program is made.
        return out.fill(match reduction {
            Reduction::Sum => T::of(0.0),
            Reduction::Product => T::of(1.0),
            Reduction::Mean | Reduction::Max | Reduction::Min => T::of(f64::NAN),
        });
    }
    if out.is_empty() {
        return;
    }
    let (shape, dims) = merged(shape, dims);
    match (&dims[..], shape.len()) {
        ([], _) => {
            let is_sum = matches!(reduction, Reduction::Sum | Reduction::Mean);
            for (to, &x) in out.iter_mut().zip(input) {
                // Sums begin with 0, which is not -0.
                *to = if is_sum { T::of(0.0) + x } else { x };
            }
            return;
        }
        // Rows.
        ([dim], rank) if dim + 1 == rank => {
            out.par_iter_mut()
                .zip(input.par_chunks(count))
                .with_min_len(GRAIN.div_ceil(count))
                .run_parallel(|(out, row)| *out = T::of_row(reduction, row));
            return;
        }
        _ => {}
    }
    out.fill(T::of(match reduction {
        Reduction::Sum | Reduction::Mean => 0.0,
        Reduction::Product => 1.0,
        Reduction::Max => f64::NEG_INFINITY,
        Reduction::Min => f64::INFINITY,
    }));
    if dims[..] == [0] {
        combine_many(reduction, out, input);
        return mean(reduction, count, out);
    }
    let strides = reduced_strides(&shape, &dims);
    match (&shape[..], &strides[..]) {
        // The number of a row of the input is that of an element of the result.
        ([outer @ .., rows, row], [.., 1, 0]) => {
            for (index, block) in input.chunks(rows * row).enumerate() {
                let at = start(outer, &strides, index);
                combine_each_row(reduction, &mut out[at..at + rows], block, *row);
            }
        }
        ([outer @ .., row], _) => {
            for (index, row) in input.chunks(*row).enumerate() {
                let at = start(outer, &strides, index);
                combine_rows(reduction, &mut out[at..at + row.len()], row);
            }
        }
        ([], _) => {}
    }
    mean(reduction, count, out);
}

/// A shape without sizes of 1, and its reduced dimensions, with neighbours merged that are both reduced or both not.
fn merged(shape: &[usize], dims: &[usize]) -> (SmallVec<[usize; 6]>, SmallVec<[usize; 6]>) {
    let mut own: SmallVec<[usize; 6]> = SmallVec::new();
    let mut reduced: SmallVec<[usize; 6]> = SmallVec::new();
    let mut before = None;
    for (dim, &size) in shape.iter().enumerate().filter(|(_, size)| **size != 1) {
        let is_reduced = dims.contains(&dim);
        match own.last_mut() {
            Some(last) if before == Some(is_reduced) => *last *= size,
            _ => {
                if is_reduced {
                    reduced.push(own.len());
                }
                own.push(size);
            }
        }
        before = Some(is_reduced);
    }
    (own, reduced)
}

/// Divides sums of `count` elements by that, if means are wanted.
fn mean<T: Float>(reduction: Reduction, count: usize, out: &mut [T]) {
    if reduction == Reduction::Mean {
        let count = T::of(count as f64);
        out.iter_mut().for_each(|x| *x /= count);
    }
}

/// Floating-point types whose rows are reduced.
pub(crate) trait OfRow: Real {
    /// Reduces a row.
    fn of_row(reduction: Reduction, row: &[Self]) -> Self;
}

impl OfRow for f32 {
    fn of_row(reduction: Reduction, row: &[Self]) -> Self {
        of_row(reduction, row)
    }
}

impl OfRow for f64 {
    fn of_row(reduction: Reduction, row: &[Self]) -> Self {
        of_doubles(reduction, row)
    }
}

/// Reduces the squares of a row.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub(crate) fn of_squares<T: Float>(reduction: Reduction, row: &[T]) -> T {
    let sum = long_sum(row, |x| x * x);
    match reduction {
        Reduction::Mean => sum / T::of(row.len() as f64),
        _ => sum,
    }
}

/// Reduces a row.
pub(crate) fn of_row(reduction: Reduction, row: &[f32]) -> f32 {
    match reduction {
        Reduction::Sum => Sum::new(row).dispatch(),
        Reduction::Mean => Sum::new(row).dispatch() / row.len() as f32,
        Reduction::Product => fold_row(row, 1.0, &|a, b| a * b),
        Reduction::Max | Reduction::Min => extreme(reduction, row),
    }
}

/// Reduces a row of numbers of double precision.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub(crate) fn of_doubles(reduction: Reduction, row: &[f64]) -> f64 {
    match reduction {
        Reduction::Sum => long_sum(row, |x| x),
        Reduction::Mean => long_sum(row, |x| x) / row.len() as f64,
        Reduction::Product => fold_row(row, 1.0, &|a, b| a * b),
        Reduction::Max | Reduction::Min => extreme(reduction, row),
    }
}

/// The position of the largest or smallest element of each row of `row` elements: the first of
/// several, or the first NaN if there is one.
pub(crate) fn places<T: Float>(reduction: Reduction, input: &[T], row: usize, out: &mut [i64]) {
    out.par_iter_mut()
        .zip(input.par_chunks(row))
        .with_min_len(GRAIN.div_ceil(row))
        .run_parallel(|(out, row)| {
            let extreme = extreme(reduction, row);
            let is_it = |x: T| x == extreme || x.is_nan();
            // A piece at a time: a test for its presence is faster than a search.
            let has = |piece: &[T]| piece.iter().fold(false, |has, &x| has | is_it(x));
            let pieces = row.chunks(64);
            let before = pieces.take_while(|piece| !has(piece)).count() * 64;
            let place = row[before.min(row.len())..].iter().position(|&x| is_it(x));
            *out = (before + place.unwrap_or(0)) as i64;
        });
}

/// The largest or smallest element of a row; NaN if there is one.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn extreme<T: Float>(reduction: Reduction, row: &[T]) -> T {
    const LANES: usize = 64;
    /// Combines the second half of the lanes with the first, until there is one.
    macro_rules! halved {
        ($lanes:expr, $f:expr) => {{
            for half in [32, 16, 8, 4, 2, 1] {
                let (low, high) = $lanes.split_at_mut(half);
                for (a, &b) in low.iter_mut().zip(&*high) {
                    *a = $f(*a, b);
                }
            }
            $lanes[0]
        }};
    }
    macro_rules! of {
        ($f:expr) => {{
            let (whole, rest) = row.as_chunks::<LANES>();
            let (mut own, mut all) = (None, T::default());
            // NaN is found by sums, so that an extreme is one instruction: a sum with NaN is NaN.
            if let Some((first, more)) = whole.split_first() {
                let (mut lanes, mut sums) = (*first, *first);
                for chunk in more {
                    for ((lane, sum), &x) in lanes.iter_mut().zip(&mut sums).zip(chunk) {
                        *lane = $f(*lane, x);
                        *sum += x;
                    }
                }
                own = Some(halved!(lanes, $f));
                all = halved!(sums, |a: T, b: T| a + b);
            }
            for &x in rest {
                all += x;
                own = Some(own.map_or(x, |own| $f(own, x)));
            }
            (own.unwrap_or(T::of(f64::NAN)), all)
        }};
    }
    let (own, sum) = match reduction {
        Reduction::Min => of!(|a: T, b: T| if b < a { b } else { a }),
        _ => of!(|a: T, b: T| if b > a { b } else { a }),
    };
    // The sum of opposite infinities is NaN, too.
    match sum.is_nan() && row.iter().fold(false, |is_nan, x| is_nan | x.is_nan()) {
        true => T::of(f64::NAN),
        false => own,
    }
}

/// Combines rows of as many elements as `out` has with it.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn combine_many<T: Float>(reduction: Reduction, out: &mut [T], rows: &[T]) {
    /// Number of rows that are combined with each other first: `out` is read and written once for
    /// all of them, and sums have smaller errors.
    const TOGETHER: usize = 8;
    let row = out.len();
    macro_rules! each {
        ($f:expr) => {
            for rows in rows.chunks(TOGETHER * row) {
                if rows.len() < TOGETHER * row {
                    for row in rows.chunks_exact(row) {
                        for (to, &x) in out.iter_mut().zip(row) {
                            *to = $f(*to, x);
                        }
                    }
                    continue;
                }
                let (low, high) = rows.split_at(4 * row);
                let [(a, b), (c, d)] = [low, high].map(|half| half.split_at(2 * row));
                let [a, b, c, d] = [a, b, c, d].map(|pair| {
                    let (first, second) = pair.split_at(row);
                    first.iter().zip(second)
                });
                let pairs = a.zip(b).zip(c.zip(d));
                for (to, ((a, b), (c, d))) in out.iter_mut().zip(pairs) {
                    let [a, b, c, d] = [a, b, c, d].map(|(&x, &y)| $f(x, y));
                    *to = $f(*to, $f($f(a, b), $f(c, d)));
                }
            }
        };
    }
    match reduction {
        Reduction::Sum | Reduction::Mean => each!(|a: T, b: T| a + b),
        Reduction::Product => each!(|a: T, b: T| a * b),
        Reduction::Max => each!(|a, b| combine(Reduction::Max, a, b)),
        Reduction::Min => each!(|a, b| combine(Reduction::Min, a, b)),
    }
}

/// Combines each element of `out` with a row of `rows`.
fn combine_each_row<T: OfRow>(reduction: Reduction, out: &mut [T], rows: &[T], row: usize) {
    /// Shorter rows are reduced here: a function for each takes longer.
    const SHORT: usize = 16;
    let reduction = match reduction {
        Reduction::Mean => Reduction::Sum,
        other => other,
    };
    for (to, row) in out.iter_mut().zip(rows.chunks_exact(row)) {
        let Some((&first, rest)) = row.split_first() else {
            continue;
        };
        let own = match row.len() < SHORT {
            true => rest.iter().fold(first, |a, &b| combine(reduction, a, b)),
            false => T::of_row(reduction, row),
        };
        *to = combine(reduction, *to, own);
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn combine_rows<T: Float>(reduction: Reduction, out: &mut [T], row: &[T]) {
    macro_rules! each {
        ($reduction:expr) => {
            for (to, &x) in out.iter_mut().zip(row) {
                *to = combine($reduction, *to, x);
            }
        };
    }
    match reduction {
        Reduction::Sum | Reduction::Mean => each!(Reduction::Sum),
        Reduction::Product => each!(Reduction::Product),
        Reduction::Max => each!(Reduction::Max),
        Reduction::Min => each!(Reduction::Min),
    }
}

#[inline(always)]
fn combine<T: Float>(reduction: Reduction, a: T, b: T) -> T {
    match reduction {
        Reduction::Sum | Reduction::Mean => a + b,
        Reduction::Product => a * b,
        Reduction::Max if b > a || b.is_nan() => b,
        Reduction::Min if b < a || b.is_nan() => b,
        Reduction::Max | Reduction::Min => a,
    }
}

/// Reduces elements along `dims` by `f`, beginning with `zero`.
fn fold<T: Copy>(
    input: &[T],
    shape: &[usize],
    dims: &[usize],
    (zero, f): (T, impl Fn(T, T) -> T),
    out: &mut [T],
) {
    out.fill(zero);
    let strides = reduced_strides(shape, dims);
    let row = row_len(shape);
    if row == 0 || input.is_empty() {
        return;
    }
    let outer = &shape[..shape.len().saturating_sub(1)];
    let own = strides.last().copied().unwrap_or(0).unsigned_abs();
    for (index, input) in input.chunks(row).enumerate() {
        let from = start(outer, &strides, index);
        match own {
            0 => out[from] = f(out[from], fold_row(input, zero, &f)),
            1 => fold_into(input, &mut out[from..from + row], &f),
            _ => {
                for (at, &x) in input.iter().enumerate() {
                    let out = &mut out[from + at * own];
                    *out = f(*out, x);
                }
            }
        }
    }
}

/// Combines the elements of a row with `out`.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+fma"))]
fn fold_into<T: Copy, F: Fn(T, T) -> T>(row: &[T], out: &mut [T], f: &F) {
    for (out, &x) in out.iter_mut().zip(row) {
        *out = f(*out, x);
    }
}

/// Reduces the elements of a row, in several independent chains.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+fma"))]
fn fold_row<T: Copy, F: Fn(T, T) -> T>(row: &[T], zero: T, f: &F) -> T {
    let (whole, rest) = row.as_chunks::<64>();
    let mut all = zero;
    if let Some((first, more)) = whole.split_first() {
        let mut lanes = first.map(|x| f(zero, x));
        for chunk in more {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane = f(*lane, x);
            }
        }
        for half in [32, 16, 8, 4, 2, 1] {
            let (low, high) = lanes.split_at_mut(half);
            for (a, &b) in low.iter_mut().zip(&*high) {
                *a = f(*a, b);
            }
        }
        all = lanes[0];
    }
    rest.iter().fold(all, |all, &x| f(all, x))
}

/// Cumulative sums or products along a dimension of `size` elements with stride `inner`.
pub fn scan<T: Copy, A: Copy>(
    input: &[T],
    size: usize,
    inner: usize,
    zero: A,
    f: impl Fn(A, T) -> A,
    get: impl Fn(A) -> T,
    out: &mut [T],
) {
    if out.is_empty() {
        return;
    }
    let blocks = input.chunks(size * inner).zip(out.chunks_mut(size * inner));
    for (input, out) in blocks {
        for at in 0..inner {
            let mut so_far = zero;
            for step in 0..size {
                so_far = f(so_far, input[at + step * inner]);
                out[at + step * inner] = get(so_far);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Combines the elements one by one.
    fn one_by_one(
        reduction: Reduction,
        input: &[f32],
        shape: &[usize],
        dims: &[usize],
    ) -> Vec<f32> {
        let strides = reduced_strides(shape, dims);
        let kept = (0..shape.len()).filter(|dim| !dims.contains(dim));
        let mut out = vec![None; kept.map(|dim| shape[dim]).product()];
        for (index, &x) in input.iter().enumerate() {
            let own = &mut out[start(shape, &strides, index)];
            *own = Some(own.map_or(x, |own| combine(reduction, own, x)));
        }
        out.into_iter().flatten().collect()
    }

    #[test]
    fn all_dimensions_of_small_shapes_are_reduced() {
        let sizes = [1, 2, 3, 17];
        for rank in 1..=4_u32 {
            for shape in 0..sizes.len().pow(rank) {
                let shape: Vec<usize> = (0..rank)
                    .map(|dim| sizes[shape / sizes.len().pow(dim) % sizes.len()])
                    .collect();
                let len = shape.iter().product();
                let input: Vec<f32> = (0..len).map(|at| (at * 7 % 5) as f32 - 2.0).collect();
                for subset in 1..1_usize << rank {
                    let dims: Vec<usize> = (0..rank as usize)
                        .filter(|dim| subset >> dim & 1 == 1)
                        .collect();
                    for reduction in [Reduction::Sum, Reduction::Max, Reduction::Min] {
                        let expected = one_by_one(reduction, &input, &shape, &dims);
                        let mut out = vec![f32::NAN; expected.len()];
                        floats(reduction, &input, &shape, &dims, &mut out);
                        assert_eq!(out, expected, "{reduction:?} of {shape:?} along {dims:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn sums_of_negative_zeros_are_zero() {
        for (shape, dims) in [
            (&[1, 1][..], &[0][..]),
            (&[1, 3], &[0]),
            (&[2, 3], &[0]),
            (&[3, 2], &[1]),
            (&[2, 3, 2], &[0, 2]),
        ] {
            let input = vec![-0.0; shape.iter().product()];
            for reduction in [Reduction::Sum, Reduction::Mean] {
                let mut out = vec![f32::NAN; one_by_one(reduction, &input, shape, dims).len()];
                floats(reduction, &input, shape, dims, &mut out);
                let zeros = vec![0; out.len()];
                let bits: Vec<u32> = out.iter().map(|x| x.to_bits()).collect();
                assert_eq!(bits, zeros, "{reduction:?} of {shape:?} along {dims:?}");
            }
        }
    }

    #[test]
    fn nan_is_kept_in_all_reductions() {
        let mut input = [1.0; 24];
        input[13] = f32::NAN;
        for reduction in [
            Reduction::Sum,
            Reduction::Mean,
            Reduction::Product,
            Reduction::Max,
            Reduction::Min,
        ] {
            let mut out = [0.0; 3];
            floats(reduction, &input, &[2, 3, 4], &[0, 2], &mut out);
            assert!(out[0].is_nan(), "{reduction:?}");
            assert!(out[1..].iter().all(|own| !own.is_nan()), "{reduction:?}");
        }
    }
}
