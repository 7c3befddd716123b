//! Numbers that are rounded to levels, in one pass.

use std::array;

use multiversion::multiversion;

use super::{OPERANDS, Operand, each, put};
use crate::aligned_buffer::AlignedBuffer;
use crate::kernels::elementwise::Real;
use crate::program::fused::{LevelFunction, Levels};

/// Computes `function` of its operands, of which the first two may be exchanged unless NaN is ordered.
pub(super) fn compute<T: Real>(
    function: LevelFunction,
    mut operands: [Operand<'_, T>; OPERANDS],
    row: usize,
    spare: &mut [AlignedBuffer<T>; OPERANDS],
    to: &mut [T],
) {
    if !function.ordered && !matches!(operands[0], Operand::Each(_)) {
        operands.swap(0, 1);
    }
    if is_by_rows(function.gives, &operands) {
        let alike = operands.iter().all(|own| !matches!(own, Operand::Rows(_)));
        let row = if alike { to.len() } else { row }.max(1);
        for (at, to) in to.chunks_mut(row).enumerate() {
            of_row(function, operands.map(|own| of_part(own, at, row)), to);
        }
        return;
    }
    let len = to.len();
    let mut spare = spare.iter_mut();
    let operands = operands.map(|own| match spare.next() {
        Some(spare) => each(own, row, spare, len),
        None => &[],
    });
    of_each(function, operands, to);
}

/// Whether all but the numbers that are rounded, kept or taken instead are one for each row at most.
fn is_by_rows<T>(gives: Levels, operands: &[Operand<'_, T>; OPERANDS]) -> bool {
    let by_rows = |own: &Operand<'_, T>| matches!(own, Operand::Rows(_) | Operand::Number(_));
    let [x, inverse, zero, fourth, fifth, sixth] = operands;
    let rounded = matches!(x, Operand::Each(_)) && by_rows(inverse) && by_rows(zero);
    rounded
        && match gives {
            Levels::AreInside => true,
            Levels::KeepInside => {
                by_rows(fourth) && matches!(fifth, Operand::Each(_)) && by_rows(sixth)
            }
            Levels::AsNumbers => by_rows(fourth) && by_rows(fifth),
        }
}

/// The part of an operand for a row.
fn of_part<T: Copy>(operand: Operand<'_, T>, at: usize, row: usize) -> Operand<'_, T> {
    match operand {
        Operand::Each(data) => Operand::Each(&data[at * row..][..row]),
        Operand::Rows(numbers) => Operand::Number(numbers[at]),
        other => other,
    }
}

fn of_row<T: Real>(function: LevelFunction, operands: [Operand<'_, T>; OPERANDS], to: &mut [T]) {
    let [x, inverse, zero, fourth, fifth, sixth] = operands;
    let (Operand::Each(x), Operand::Number(inverse), Operand::Number(zero)) = (x, inverse, zero)
    else {
        return;
    };
    let levels = Rounding::of(function, inverse, zero);
    match (function.gives, fourth, fifth, sixth) {
        (Levels::AreInside, ..) => are_inside(x, levels, to),
        (Levels::KeepInside, Operand::Number(always), kept, _) if always != T::of(0.0) => {
            put(kept, to.len(), to);
        }
        (Levels::KeepInside, _, Operand::Each(kept), Operand::Number(other)) => {
            keep_inside(x, levels, kept, other, to);
        }
        (Levels::AsNumbers, _, Operand::Number(enabled), other) if enabled == T::of(0.0) => {
            put(other, to.len(), to);
        }
        (Levels::AsNumbers, Operand::Number(scale), ..) => as_numbers(x, levels, scale, to),
        _ => {}
    }
}

/// What rounds numbers to levels.
#[derive(Clone, Copy)]
struct Rounding<T> {
    inverse: T,
    zero: T,
    low: T,
    high: T,
    /// Whether negative infinity is rounded in place of NaN.
    ordered: bool,
}

impl<T: Real> Rounding<T> {
    #[inline(always)]
    fn of(function: LevelFunction, inverse: T, zero: T) -> Self {
        let [low, high] = function.bounds.map(T::of);
        Self {
            inverse,
            zero,
            low,
            high,
            ordered: function.ordered,
        }
    }

    #[inline(always)]
    fn level(self, x: T) -> T {
        let x = T::selected(self.ordered & x.is_nan(), T::of(f64::NEG_INFINITY), x);
        (x * self.inverse).round_ties_even() + self.zero
    }

    /// False for NaN, without a branch.
    #[inline(always)]
    fn is_inside(self, x: T) -> bool {
        let level = self.level(x);
        (level >= self.low) & (level <= self.high)
    }

    /// The number of the level of `x`.
    #[inline(always)]
    fn number(self, x: T, scale: T) -> T {
        let level = self.level(x);
        // NaN stays.
        let level = if level < self.low { self.low } else { level };
        let level = if level > self.high { self.high } else { level };
        (level - self.zero) * scale
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn are_inside<T: Real>(x: &[T], levels: Rounding<T>, to: &mut [T]) {
    let [zero, one] = [0.0, 1.0].map(T::of);
    for (to, &x) in to.iter_mut().zip(x) {
        *to = T::selected(levels.is_inside(x), one, zero);
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn keep_inside<T: Real>(x: &[T], levels: Rounding<T>, kept: &[T], other: T, to: &mut [T]) {
    for ((to, &x), &kept) in to.iter_mut().zip(x).zip(kept) {
        *to = T::selected(levels.is_inside(x), kept, other);
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn as_numbers<T: Real>(x: &[T], levels: Rounding<T>, scale: T, to: &mut [T]) {
    for (to, &x) in to.iter_mut().zip(x) {
        *to = levels.number(x, scale);
    }
}

/// The same, of operands that all have one number for each element.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn of_each<T: Real>(function: LevelFunction, operands: [&[T]; OPERANDS], to: &mut [T]) {
    let [none, one] = [0.0, 1.0].map(T::of);
    for (at, to) in to.iter_mut().enumerate() {
        let [x, inverse, zero, fourth, fifth, sixth] = array::from_fn(|own| operands[own][at]);
        let levels = Rounding::of(function, inverse, zero);
        *to = match function.gives {
            Levels::AreInside => T::selected(levels.is_inside(x), one, none),
            Levels::KeepInside => T::selected(levels.is_inside(x) | (fourth != none), fifth, sixth),
            Levels::AsNumbers => T::selected(fifth != none, levels.number(x, fourth), sixth),
        };
    }
}
