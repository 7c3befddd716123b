//! Numbers that are rounded to levels, in one pass.

use multiversion::multiversion;

use super::{Operand, each};
use crate::aligned_buffer::AlignedBuffer;
use crate::program::Float;
use crate::program::fused::{LevelFunction, Levels};

/// Computes `function` of `x` and `inverse`, in any order, `zero` and `scale`.
pub(super) fn compute<T: Float>(
    function: LevelFunction,
    [mut x, mut inverse, zero, scale]: [Operand<'_, T>; 4],
    row: usize,
    spare: &mut [AlignedBuffer<T>; 4],
    to: &mut [T],
) {
    if !matches!(x, Operand::Each(_)) {
        std::mem::swap(&mut x, &mut inverse);
    }
    let bounds = function.bounds.map(T::of);
    let parameters = [inverse, zero, scale];
    let of_row = |at: usize| {
        let number = |operand: &Operand<'_, T>| match operand {
            Operand::Number(number) => Some(*number),
            Operand::Rows(numbers) => Some(numbers[at]),
            Operand::Each(_) | Operand::Target => None,
        };
        let [inverse, zero, scale] = parameters.each_ref().map(number);
        Some([inverse?, zero?, scale?])
    };
    if let (Operand::Each(x), Some(_)) = (x, of_row(0)) {
        let alike = parameters
            .iter()
            .all(|own| !matches!(own, Operand::Rows(_)));
        let row = if alike { to.len() } else { row }.max(1);
        for (at, (to, x)) in to.chunks_mut(row).zip(x.chunks(row)).enumerate() {
            if let Some(parameters) = of_row(at) {
                match function.gives {
                    Levels::AreInside => are_inside(x, parameters, bounds, to),
                    Levels::AsNumbers => as_numbers(x, parameters, bounds, to),
                }
            }
        }
        return;
    }
    let len = to.len();
    let [own_x, own_inverse, own_zero, own_scale] = spare;
    let operands = [
        each(x, row, own_x, len),
        each(inverse, row, own_inverse, len),
        each(zero, row, own_zero, len),
        each(scale, row, own_scale, len),
    ];
    match function.gives {
        Levels::AreInside => are_inside_each(operands, bounds, to),
        Levels::AsNumbers => as_numbers_each(operands, bounds, to),
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn are_inside_each<T: Float>([x, inverse, zero, _]: [&[T]; 4], bounds: [T; 2], to: &mut [T]) {
    for (((to, &x), &inverse), &zero) in to.iter_mut().zip(x).zip(inverse).zip(zero) {
        *to = is_inside(x, [inverse, zero, zero], bounds);
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn as_numbers_each<T: Float>([x, inverse, zero, scale]: [&[T]; 4], bounds: [T; 2], to: &mut [T]) {
    let parameters = inverse.iter().zip(zero).zip(scale);
    for ((to, &x), ((&inverse, &zero), &scale)) in to.iter_mut().zip(x).zip(parameters) {
        *to = as_number(x, [inverse, zero, scale], bounds);
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn are_inside<T: Float>(x: &[T], parameters: [T; 3], bounds: [T; 2], to: &mut [T]) {
    for (to, &x) in to.iter_mut().zip(x) {
        *to = is_inside(x, parameters, bounds);
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn as_numbers<T: Float>(x: &[T], parameters: [T; 3], bounds: [T; 2], to: &mut [T]) {
    for (to, &x) in to.iter_mut().zip(x) {
        *to = as_number(x, parameters, bounds);
    }
}

#[inline(always)]
fn is_inside<T: Float>(x: T, [inverse, zero, _]: [T; 3], [low, high]: [T; 2]) -> T {
    let level = (x * inverse).round_ties_even() + zero;
    // False for NaN, without a branch.
    T::of(f64::from(u8::from((level >= low) & (level <= high))))
}

#[inline(always)]
fn as_number<T: Float>(x: T, [inverse, zero, scale]: [T; 3], [low, high]: [T; 2]) -> T {
    let level = (x * inverse).round_ties_even() + zero;
    // NaN stays.
    let level = if level < low { low } else { level };
    let level = if level > high { high } else { level };
    (level - zero) * scale
}
