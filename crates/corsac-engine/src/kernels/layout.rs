//! Moving elements.

use rayon::prelude::*;

use super::GRAIN;
use crate::spread::Spread;

/// Copies a view: element `i` of a result of shape `shape` lies `offset` plus `i` times `strides`
/// from the first of `input`.
pub fn copy(input: &[f32], offset: usize, strides: &[isize], shape: &[usize], out: &mut [f32]) {
    let (Some((&row, outer)), Some((&step, outer_strides))) =
        (shape.split_last(), strides.split_last())
    else {
        out[0] = input[offset];
        return;
    };
    if row == 0 {
        return;
    }
    let start = |mut index: usize| {
        let mut at = offset as isize;
        for (&size, &stride) in outer.iter().zip(outer_strides).rev() {
            at += (index % size) as isize * stride;
            index /= size;
        }
        at.unsigned_abs()
    };
    let step = step.unsigned_abs();
    out.par_chunks_mut(row)
        .enumerate()
        .with_min_len(GRAIN.div_ceil(row))
        .spread(|(index, out)| {
            let at = start(index);
            match step {
                0 => out.fill(input[at]),
                1 => out.copy_from_slice(&input[at..at + row]),
                _ => {
                    let from = input[at..].iter().step_by(step);
                    out.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                }
            }
        });
}

/// Puts `part`, of rows of `row` elements, into rows of `out_row` elements from `at` on.
pub fn place(part: &[f32], row: usize, out: &mut [f32], out_row: usize, at: usize) {
    if row == 0 {
        return;
    }
    for (from, to) in part.chunks(row).zip(out.chunks_mut(out_row)) {
        to[at..at + row].copy_from_slice(from);
    }
}

/// Surrounds `input` by `value`.
pub fn pad<T: Copy>(input: &[T], shape: &[usize], widths: &[[usize; 2]], value: T, out: &mut [T]) {
    out.fill(value);
    let Some((&row, outer)) = shape.split_last() else {
        out.copy_from_slice(input);
        return;
    };
    if row == 0 {
        return;
    }
    let padded = |at: usize| shape[at] + widths[at][0] + widths[at][1];
    for (index, from) in input.chunks(row).enumerate() {
        let (mut rest, mut at, mut step) = (index, widths[outer.len()][0], padded(outer.len()));
        for dim in (0..outer.len()).rev() {
            at += (rest % shape[dim] + widths[dim][0]) * step;
            step *= padded(dim);
            rest /= shape[dim];
        }
        out[at..at + row].copy_from_slice(from);
    }
}
