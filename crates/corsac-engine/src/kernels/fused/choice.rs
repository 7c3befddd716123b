//! Comparisons, and choices between numbers.

use multiversion::multiversion;

use super::{OPERANDS, Operand, each, put};
use crate::aligned_buffer::AlignedBuffer;
use crate::kernels::elementwise::Real;
use crate::program::Comparison;

/// 1 where the comparison of the first two operands holds, elsewhere 0.
pub(super) fn compare<T: Real>(
    comparison: Comparison,
    [a, b, ..]: [Operand<'_, T>; OPERANDS],
    row: usize,
    [own_a, own_b, ..]: &mut [AlignedBuffer<T>; OPERANDS],
    to: &mut [T],
) {
    let len = to.len();
    match (a, b) {
        (Operand::Each(a), Operand::Number(b)) => compare_with(comparison, a, b, to),
        _ => {
            let (a, b) = (each(a, row, own_a, len), each(b, row, own_b, len));
            compare_each(comparison, a, b, to);
        }
    }
}

/// The second operand where the first is true, elsewhere the third.
pub(super) fn choose<T: Real>(
    [condition, a, b, ..]: [Operand<'_, T>; OPERANDS],
    row: usize,
    [own, own_a, own_b, ..]: &mut [AlignedBuffer<T>; OPERANDS],
    to: &mut [T],
) {
    if let Operand::Number(own) = condition {
        return put(if own == T::of(0.0) { b } else { a }, row, to);
    }
    let len = to.len();
    let condition = each(condition, row, own, len);
    match (a, b) {
        (Operand::Each(a), Operand::Number(b)) => choose_number(condition, a, b, false, to),
        (Operand::Number(a), Operand::Each(b)) => choose_number(condition, b, a, true, to),
        _ => {
            let (a, b) = (each(a, row, own_a, len), each(b, row, own_b, len));
            choose_each(condition, a, b, to);
        }
    }
}

/// The third operand where the comparison of the first two holds, elsewhere the fourth.
pub(super) fn select<T: Real>(
    comparison: Comparison,
    [a, b, x, y, ..]: [Operand<'_, T>; OPERANDS],
    row: usize,
    [own_a, own_b, own_x, own_y, ..]: &mut [AlignedBuffer<T>; OPERANDS],
    to: &mut [T],
) {
    let len = to.len();
    match (a, b, x, y) {
        (Operand::Each(a), Operand::Number(b), Operand::Each(x), Operand::Number(y)) => {
            select_by_number(comparison, (a, b), (x, y), false, to);
        }
        (Operand::Each(a), Operand::Number(b), Operand::Number(x), Operand::Each(y)) => {
            select_by_number(comparison, (a, b), (y, x), true, to);
        }
        _ => {
            let (a, b) = (each(a, row, own_a, len), each(b, row, own_b, len));
            let (x, y) = (each(x, row, own_x, len), each(y, row, own_y, len));
            select_each(comparison, [a, b, x, y], to);
        }
    }
}

/// Expands `$do` with the closure of `$comparison`.
macro_rules! comparison_functions {
    ($comparison:expr, $do:ident) => {
        match $comparison {
            Comparison::Eq => $do!(|a: T, b: T| a == b),
            Comparison::Ne => $do!(|a: T, b: T| a != b),
            Comparison::Lt => $do!(|a: T, b: T| a < b),
            Comparison::Le => $do!(|a: T, b: T| a <= b),
            Comparison::Gt => $do!(|a: T, b: T| a > b),
            Comparison::Ge => $do!(|a: T, b: T| a >= b),
        }
    };
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn compare_each<T: Real>(comparison: Comparison, a: &[T], b: &[T], to: &mut [T]) {
    let [zero, one] = [0.0, 1.0].map(T::of);
    macro_rules! all {
        ($f:expr) => {
            for ((to, &a), &b) in to.iter_mut().zip(a).zip(b) {
                *to = if $f(a, b) { one } else { zero };
            }
        };
    }
    comparison_functions!(comparison, all);
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn compare_with<T: Real>(comparison: Comparison, a: &[T], b: T, to: &mut [T]) {
    let [zero, one] = [0.0, 1.0].map(T::of);
    macro_rules! all {
        ($f:expr) => {
            for (to, &a) in to.iter_mut().zip(a) {
                *to = if $f(a, b) { one } else { zero };
            }
        };
    }
    comparison_functions!(comparison, all);
}

/// The elements where the comparison with the number holds, or where it does not if `reversed`; elsewhere the other
/// number.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn select_by_number<T: Real>(
    comparison: Comparison,
    (a, number): (&[T], T),
    (each, other): (&[T], T),
    reversed: bool,
    to: &mut [T],
) {
    macro_rules! all {
        ($f:expr) => {
            for ((to, &a), &x) in to.iter_mut().zip(a).zip(each) {
                *to = T::selected($f(a, number) != reversed, x, other);
            }
        };
    }
    comparison_functions!(comparison, all);
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn select_each<T: Real>(comparison: Comparison, [a, b, x, y]: [&[T]; 4], to: &mut [T]) {
    macro_rules! all {
        ($f:expr) => {
            for (to, ((&a, &b), (&x, &y))) in
                to.iter_mut().zip(a.iter().zip(b).zip(x.iter().zip(y)))
            {
                *to = T::selected($f(a, b), x, y);
            }
        };
    }
    comparison_functions!(comparison, all);
}

/// The elements where the condition holds, or where it does not if `reversed`; elsewhere the number.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn choose_number<T: Real>(condition: &[T], each: &[T], number: T, reversed: bool, to: &mut [T]) {
    let zero = T::of(0.0);
    for ((to, &condition), &x) in to.iter_mut().zip(condition).zip(each) {
        *to = T::selected((condition != zero) != reversed, x, number);
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn choose_each<T: Real>(condition: &[T], a: &[T], b: &[T], to: &mut [T]) {
    let zero = T::of(0.0);
    for (((to, &condition), &a), &b) in to.iter_mut().zip(condition).zip(a).zip(b) {
        *to = T::selected(condition != zero, a, b);
    }
}
