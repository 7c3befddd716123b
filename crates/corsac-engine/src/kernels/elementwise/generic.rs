//! Elementwise kernels over elements of any type.

use multiversion::multiversion;
use rayon::prelude::*;

use super::{Operand, Real, arithmetic};
use crate::kernels::GRAIN;
use crate::kernels::rows::{BroadcastRows, by_rows};
use crate::parallel::Parallel;
use crate::program::arithmetic::of_integers;
use crate::program::{Arithmetic, Comparison};

/// `out[i] = f(a[i])`
pub fn map<A: Copy + Sync, O: Send>(a: &[A], out: &mut [O], f: impl Fn(A) -> O + Sync) {
    out.par_chunks_mut(GRAIN)
        .zip(a.par_chunks(GRAIN))
        .run_parallel(|(out, a)| map_chunk(a, out, &f));
}

/// Integers, as PyTorch casts numbers on x86: the smallest for those that do not fit.
pub fn to_integers(a: &[f32], out: &mut [i64]) {
    out.par_chunks_mut(GRAIN)
        .zip(a.par_chunks(GRAIN))
        .run_parallel(|(out, a)| corsac_kernels::cast::to_integers(a, out));
}

/// A function of its own, so that the compiler sees that `out` and `a` do not overlap.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+fma"))]
fn map_chunk<A: Copy, O, F: Fn(A) -> O>(a: &[A], out: &mut [O], f: &F) {
    for (out, &a) in out.iter_mut().zip(a) {
        *out = f(a);
    }
}

/// As [`map_chunk`], for pairs.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+fma"))]
fn zip_chunk<A: Copy, B: Copy, O, F: Fn(A, B) -> O>(a: &[A], b: &[B], out: &mut [O], f: &F) {
    for (out, (&a, &b)) in out.iter_mut().zip(a.iter().zip(b)) {
        *out = f(a, b);
    }
}

/// `out[i] = condition[i] ? a[i] : b[i]`: selected without branches, since conditions are hard to
/// predict.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+fma"))]
fn choose_chunk<T: Copy>(condition: &[u8], a: &[T], b: &[T], out: &mut [T]) {
    let numbers = condition.iter().zip(a.iter().zip(b));
    for (out, (&condition, (&a, &b))) in out.iter_mut().zip(numbers) {
        *out = if condition != 0 { a } else { b };
    }
}

/// `out[i] = f(a[i], b[i])`, after broadcasting to `shape`.
pub fn zip<A: Copy + Sync, B: Copy + Sync, O: Send>(
    a: Operand<'_, A>,
    b: Operand<'_, B>,
    shape: &[usize],
    out: &mut [O],
    f: impl Fn(A, B) -> O + Sync,
) {
    let shapes = [a.shape, b.shape];
    let (a, b) = (a.data, b.data);
    if a.len() == out.len() && b.len() == out.len() {
        let chunks = out.par_chunks_mut(GRAIN).zip(a.par_chunks(GRAIN));
        let chunks = chunks.zip(b.par_chunks(GRAIN));
        return chunks.run_parallel(|((out, a), b)| zip_chunk(a, b, out, &f));
    }
    let rows = BroadcastRows::of(shape, shapes);
    by_rows(rows.row, out, |index, out| {
        let [at_a, at_b] = rows.starts(index);
        let (a, b) = (&a[at_a..], &b[at_b..]);
        match rows.steps {
            [0, 0] => out.iter_mut().for_each(|out| *out = f(a[0], b[0])),
            [0, _] => map_chunk(b, out, &|b| f(a[0], b)),
            [_, 0] => map_chunk(a, out, &|a| f(a, b[0])),
            _ => zip_chunk(a, b, out, &f),
        }
    });
}

/// Whether a comparison of `a[i]` with `b[i]` is true, after broadcasting to `shape`.
pub fn compare<T: Copy + Sync + PartialOrd>(
    comparison: Comparison,
    a: Operand<'_, T>,
    b: Operand<'_, T>,
    shape: &[usize],
    out: &mut [u8],
) {
    match comparison {
        Comparison::Eq => zip(a, b, shape, out, |a, b| u8::from(a == b)),
        Comparison::Ne => zip(a, b, shape, out, |a, b| u8::from(a != b)),
        Comparison::Lt => zip(a, b, shape, out, |a, b| u8::from(a < b)),
        Comparison::Le => zip(a, b, shape, out, |a, b| u8::from(a <= b)),
        Comparison::Gt => zip(a, b, shape, out, |a, b| u8::from(a > b)),
        Comparison::Ge => zip(a, b, shape, out, |a, b| u8::from(a >= b)),
    }
}

/// Element types with functions of pairs.
pub trait Paired: Copy + Send + Sync {
    /// `out[i] = function(a[i], b[i])`, after broadcasting to `shape`. Integers are not divided by 0.
    fn arithmetic(
        function: Arithmetic,
        a: Operand<'_, Self>,
        b: Operand<'_, Self>,
        shape: &[usize],
        out: &mut [Self],
    );
}

impl<T: Real> Paired for T {
    fn arithmetic(
        function: Arithmetic,
        a: Operand<'_, Self>,
        b: Operand<'_, Self>,
        shape: &[usize],
        out: &mut [Self],
    ) {
        arithmetic(function, a, b, shape, out);
    }
}

impl Paired for i64 {
    fn arithmetic(
        function: Arithmetic,
        a: Operand<'_, Self>,
        b: Operand<'_, Self>,
        shape: &[usize],
        out: &mut [Self],
    ) {
        // Functions that are one instruction have loops of their own, which the compiler
        // vectorises.
        match function {
            Arithmetic::Add => zip(a, b, shape, out, i64::wrapping_add),
            Arithmetic::Sub => zip(a, b, shape, out, i64::wrapping_sub),
            Arithmetic::Mul => zip(a, b, shape, out, i64::wrapping_mul),
            Arithmetic::Maximum => zip(a, b, shape, out, i64::max),
            Arithmetic::Minimum => zip(a, b, shape, out, i64::min),
            Arithmetic::And => zip(a, b, shape, out, |a, b| a & b),
            Arithmetic::Or => zip(a, b, shape, out, |a, b| a | b),
            Arithmetic::Xor => zip(a, b, shape, out, |a, b| a ^ b),
            _ => zip(a, b, shape, out, of_integers(function)),
        }
    }
}

impl Paired for u8 {
    fn arithmetic(
        function: Arithmetic,
        a: Operand<'_, Self>,
        b: Operand<'_, Self>,
        shape: &[usize],
        out: &mut [Self],
    ) {
        match function {
            Arithmetic::And | Arithmetic::Mul | Arithmetic::Minimum | Arithmetic::Fmin => {
                zip(a, b, shape, out, |a, b| a & b);
            }
            Arithmetic::Xor => zip(a, b, shape, out, |a, b| a ^ b),
            _ => zip(a, b, shape, out, |a, b| a | b),
        }
    }
}

/// `out[i] = condition[i] ? a[i] : b[i]`, after broadcasting to `shape`.
pub fn choose<T: Copy + Send + Sync>(
    condition: Operand<'_, u8>,
    a: Operand<'_, T>,
    b: Operand<'_, T>,
    shape: &[usize],
    out: &mut [T],
) {
    let shapes = [condition.shape, a.shape, b.shape];
    let (condition, a, b) = (condition.data, a.data, b.data);
    if [condition.len(), a.len(), b.len()] == [out.len(); 3] {
        let numbers = condition.par_chunks(GRAIN);
        let numbers = numbers.zip(a.par_chunks(GRAIN).zip(b.par_chunks(GRAIN)));
        let chunks = out.par_chunks_mut(GRAIN).zip(numbers);
        return chunks
            .run_parallel(|(out, (condition, (a, b)))| choose_chunk(condition, a, b, out));
    }
    let rows = BroadcastRows::of(shape, shapes);
    by_rows(rows.row, out, |index, out| {
        let [c, x, y] = rows.starts(index);
        let pick = |condition: u8, a: T, b: T| if condition != 0 { a } else { b };
        let len = out.len();
        match rows.steps {
            [1, 1, 1] => {
                let (a, b) = (&a[x..][..len], &b[y..][..len]);
                choose_chunk(&condition[c..][..len], a, b, out);
            }
            [1, 1, 0] => {
                let b = b[y];
                zip_chunk(&condition[c..], &a[x..], out, &|c, a| pick(c, a, b));
            }
            [1, 0, 1] => {
                let a = a[x];
                zip_chunk(&condition[c..], &b[y..], out, &|c, b| pick(c, a, b));
            }
            [c_step, x_step, y_step] => {
                for (at, out) in out.iter_mut().enumerate() {
                    let (a, b) = (a[x + at * x_step], b[y + at * y_step]);
                    *out = pick(condition[c + at * c_step], a, b);
                }
            }
        }
    });
}
