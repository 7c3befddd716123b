//! Kernels that move elements.

use corsac_kernels::gather::Places;
use corsac_kernels::transpose::transpose;
use rayon::prelude::*;
use smallvec::SmallVec;

use super::GRAIN;
use crate::parallel::{Parallel, thread_count};

/// A dimension of a result: its size, its stride there, and its stride in the source.
#[derive(Clone, Copy, Debug)]
struct Dim {
    size: usize,
    to: usize,
    from: isize,
}

/// Number of elements of a dimension that are copied at a time if the source is contiguous along it
/// and the result is not: they fill cache lines of the result.
const TURNED: usize = 16;

/// Element types that can be moved.
pub trait Moved: Copy + Send + Sync {
    /// `to[i * to_step + j] = from[j * from_step + i]` for `rows` of `columns` elements of the
    /// result.
    fn turn(
        from: &[Self],
        from_step: usize,
        to: &mut [Self],
        to_step: usize,
        [rows, columns]: [usize; 2],
    ) {
        turn(from, from_step, to, to_step, [rows, columns]);
    }
}

impl Moved for f64 {}
impl Moved for i64 {}
impl Moved for u8 {}
impl Moved for f32 {
    fn turn(
        from: &[Self],
        from_step: usize,
        to: &mut [Self],
        to_step: usize,
        [rows, columns]: [usize; 2],
    ) {
        transpose(from, from_step, to, to_step, [columns, rows]);
    }
}

/// Strided copy: element `i` of a result of shape `shape` lies `offset` plus `i` times `strides`
/// from the first of `input`. Strides may be negative.
pub fn copy<T: Moved>(
    input: &[T],
    offset: usize,
    strides: &[isize],
    shape: &[usize],
    out: &mut [T],
) {
    if out.is_empty() {
        return;
    }
    let mut dims = merged(strides, shape);
    let row = dims.pop().unwrap_or(Dim {
        size: 1,
        to: 1,
        from: 1,
    });
    // If rows of the result are not contiguous in the source, a dimension that is.
    let is_run = |dim: &Dim| dim.from == 1 && row.from != 1 && row.from != 0;
    let run = match dims.iter().rposition(is_run) {
        Some(at) => dims.remove(at),
        None => dims.pop().unwrap_or(Dim {
            size: 1,
            to: row.size,
            from: 0,
        }),
    };
    // The dimensions inside the runs of the result are iterated for each part.
    let within = dims
        .iter()
        .position(|dim| dim.to < run.to)
        .unwrap_or(dims.len());
    let inside: SmallVec<[Dim; 6]> = dims.drain(within..).collect();
    // A number that divides them, so that there is work for several threads.
    let most = match thread_count() {
        1 => run.size,
        _ => (GRAIN / run.to).clamp(1, run.size),
    };
    let divides = |&count: &usize| run.size.is_multiple_of(count);
    let count = (1..=most).rev().find(divides).unwrap_or(1);
    let parts = run.size / count;
    out.par_chunks_mut(run.to * count)
        .enumerate()
        .with_min_len(GRAIN.div_ceil(run.to * count))
        .run_parallel(|(index, out)| {
            let first = (index % parts * count) as isize * run.from;
            let from = offset as isize + first + start(&dims, index / parts);
            let run = Dim { size: count, ..run };
            let all: usize = inside.iter().map(|dim| dim.size).product();
            for index in 0..all {
                let to = inside_start(&inside, index);
                plane(
                    input,
                    from + start(&inside, index),
                    run,
                    row,
                    &mut out[to..],
                );
            }
        });
}

/// Dimensions of more than one element, merged where possible.
fn merged(strides: &[isize], shape: &[usize]) -> SmallVec<[Dim; 6]> {
    let mut dims: SmallVec<[Dim; 6]> = SmallVec::new();
    let mut to = 1;
    for (&size, &from) in shape.iter().zip(strides).rev() {
        if size == 1 {
            continue;
        }
        match dims.last_mut() {
            Some(last) if from == last.size as isize * last.from => last.size *= size,
            _ => dims.push(Dim { size, to, from }),
        }
        to *= size;
    }
    dims.reverse();
    dims
}

/// Offset in the source of the element with this number in `dims`.
fn start(dims: &[Dim], mut index: usize) -> isize {
    let mut at = 0;
    for dim in dims.iter().rev() {
        at += (index % dim.size) as isize * dim.from;
        index /= dim.size;
    }
    at
}

/// Offset in the result of the element with this number in `dims`.
fn inside_start(dims: &[Dim], mut index: usize) -> usize {
    let mut at = 0;
    for dim in dims.iter().rev() {
        at += index % dim.size * dim.to;
        index /= dim.size;
    }
    at
}

/// Copies rows, which follow each other along `run`.
#[inline(always)]
fn plane<T: Moved>(input: &[T], from: isize, run: Dim, row: Dim, out: &mut [T]) {
    let source = |at: isize| &input[at.unsigned_abs()..];
    let begins = |at: usize| from + at as isize * run.from;
    let rows = out.chunks_mut(run.to).take(run.size).enumerate();
    match row.from {
        0 => rows.for_each(|(at, out)| out[..row.size].fill(source(begins(at))[0])),
        1 => match row.size {
            // Fixed lengths: a call takes longer than copying such rows.
            1 => rows.for_each(|(at, out)| out[0] = source(begins(at))[0]),
            2 => rows.for_each(|(at, out)| copy_array::<T, 2>(source(begins(at)), out)),
            3 => rows.for_each(|(at, out)| copy_array::<T, 3>(source(begins(at)), out)),
            4 => rows.for_each(|(at, out)| copy_array::<T, 4>(source(begins(at)), out)),
            8 => rows.for_each(|(at, out)| copy_array::<T, 8>(source(begins(at)), out)),
            size => {
                rows.for_each(|(at, out)| out[..size].copy_from_slice(&source(begins(at))[..size]));
            }
        },
        -1 => rows.for_each(|(at, out)| {
            let last = (begins(at) + 1).unsigned_abs();
            let own = input[last - row.size..last].iter().rev();
            out.iter_mut().zip(own).for_each(|(out, x)| *out = *x);
        }),
        step if run.from == 1 && step > 0 => match (row.size, run.to) {
            (2, 2) => interleave::<T, 2>(source(from), step.unsigned_abs(), run.size, out),
            (3, 3) => interleave::<T, 3>(source(from), step.unsigned_abs(), run.size, out),
            (4, 4) => interleave::<T, 4>(source(from), step.unsigned_abs(), run.size, out),
            _ => {
                let sizes = [run.size, row.size];
                T::turn(source(from), step.unsigned_abs(), out, run.to, sizes);
            }
        },
        2 => rows.for_each(|(at, out)| {
            let own = source(begins(at)).chunks(2).map(|pair| pair[0]);
            out[..row.size]
                .iter_mut()
                .zip(own)
                .for_each(|(out, x)| *out = x);
        }),
        step => rows.for_each(|(at, out)| {
            let mut at = begins(at);
            for out in &mut out[..row.size] {
                *out = input[at.unsigned_abs()];
                at += step;
            }
        }),
    }
}

#[inline(always)]
fn copy_array<T: Copy, const N: usize>(from: &[T], to: &mut [T]) {
    if let (Some(from), Some(to)) = (from.first_chunk::<N>(), to.first_chunk_mut::<N>()) {
        *to = *from;
    }
}

/// `out[i][j] = input[j * step + i]` for `N` runs of `len` elements.
#[inline(always)]
fn interleave<T: Copy, const N: usize>(input: &[T], step: usize, len: usize, out: &mut [T]) {
    let runs: [&[T]; N] = std::array::from_fn(|run| &input[run * step..][..len]);
    for (at, out) in out.as_chunks_mut::<N>().0.iter_mut().enumerate().take(len) {
        *out = std::array::from_fn(|run| runs[run][at]);
    }
}

/// Default of [`Moved::turn`].
fn turn<T: Copy>(
    from: &[T],
    from_step: usize,
    to: &mut [T],
    to_step: usize,
    [rows, columns]: [usize; 2],
) {
    for first in (0..rows).step_by(TURNED) {
        let count = TURNED.min(rows - first);
        let to = &mut to[first * to_step..];
        for across in (0..columns).step_by(TURNED) {
            let width = TURNED.min(columns - across);
            if count == TURNED && width == TURNED {
                let from = &from[across * from_step + first..];
                turn_square(from, from_step, to_step, &mut to[across..]);
                continue;
            }
            for j in across..across + width {
                let from = &from[j * from_step + first..][..count];
                for (i, x) in from.iter().enumerate() {
                    to[i * to_step + j] = *x;
                }
            }
        }
    }
}

/// [`turn`] for a square whose size the compiler knows.
#[inline(always)]
fn turn_square<T: Copy>(input: &[T], step: usize, to: usize, out: &mut [T]) {
    let rows: [&[T]; TURNED] = std::array::from_fn(|row| &input[row * step..][..TURNED]);
    for i in 0..TURNED {
        let out = &mut out[i * to..][..TURNED];
        for (out, row) in out.iter_mut().zip(&rows) {
            *out = row[i];
        }
    }
}

/// `out[…, i, j] = input[…, rows[i], columns[j]]` for planes of `plane` elements of the input.
pub(crate) fn arrange(
    input: &[f32],
    plane: usize,
    rows: &[u32],
    columns: &Places,
    out: &mut [f32],
) {
    let row = columns.count();
    if out.is_empty() || plane == 0 {
        return;
    }
    // A number of rows that divides those of a plane, so that there is work for several threads.
    let most = match thread_count() {
        1 => rows.len(),
        _ => GRAIN.div_ceil(row).min(rows.len()),
    };
    let count = (1..=most)
        .rev()
        .find(|&count| rows.len().is_multiple_of(count));
    let count = count.unwrap_or(1);
    let parts = rows.len() / count;
    out.par_chunks_exact_mut(count * row)
        .enumerate()
        .with_min_len(GRAIN.div_ceil(count * row))
        .run_parallel(|(at, out)| {
            let input = &input[at / parts * plane..][..plane];
            columns.read_rows(input, &rows[at % parts * count..][..count], out);
        });
}

/// Concatenates `parts`, each given with the length of its rows and their position in rows of
/// `out_row` elements, into `out`.
pub fn place_all<T: Copy>(parts: &[(&[T], usize, usize)], out: &mut [T], out_row: usize) {
    /// From this length on, the rows of all parts are written in the order of the result.
    const LONG: usize = 64;
    if out_row == 0 || parts.iter().any(|&(_, row, _)| row < LONG) {
        for &(part, row, at) in parts {
            place(part, row, out, out_row, at);
        }
        return;
    }
    for (number, out) in out.chunks_exact_mut(out_row).enumerate() {
        for &(part, row, at) in parts {
            out[at..at + row].copy_from_slice(&part[number * row..][..row]);
        }
    }
}

/// Puts `part`, of rows of `row` elements, into rows of `out_row` elements from `at` on.
fn place<T: Copy>(part: &[T], row: usize, out: &mut [T], out_row: usize, at: usize) {
    if row == 0 {
        return;
    }
    // Fixed lengths: a call takes longer than copying such rows.
    match row {
        1 => place_arrays::<T, 1>(part, out, out_row, at),
        2 => place_arrays::<T, 2>(part, out, out_row, at),
        3 => place_arrays::<T, 3>(part, out, out_row, at),
        4 => place_arrays::<T, 4>(part, out, out_row, at),
        8 => place_arrays::<T, 8>(part, out, out_row, at),
        16 => place_arrays::<T, 16>(part, out, out_row, at),
        _ => {
            for (from, to) in part.chunks(row).zip(out.chunks_mut(out_row)) {
                to[at..at + row].copy_from_slice(from);
            }
        }
    }
}

fn place_arrays<T: Copy, const N: usize>(part: &[T], out: &mut [T], out_row: usize, at: usize) {
    let rows = part.as_chunks::<N>().0.iter();
    for (from, to) in rows.zip(out.chunks_exact_mut(out_row)) {
        copy_array::<T, N>(from, &mut to[at..]);
    }
}

/// Pads `input` with `value`.
pub fn pad<T: Copy>(input: &[T], shape: &[usize], widths: &[[usize; 2]], value: T, out: &mut [T]) {
    let Some((&row, outer)) = shape.split_last() else {
        out.copy_from_slice(input);
        return;
    };
    if row == 0 || input.is_empty() {
        out.fill(value);
        return;
    }
    let [left, right] = widths[outer.len()];
    let padded = |at: usize| shape[at] + widths[at][0] + widths[at][1];
    let width = left + row + right;
    // Rows of a plane follow each other; the place of a plane is computed once for all of them.
    let (rows, planes) = outer
        .split_last()
        .map_or((1, outer), |(&rows, planes)| (rows, planes));
    let above = widths[..outer.len()].last().map_or(0, |own| own[0]);
    let height = outer.len().checked_sub(1).map_or(1, padded);
    // The elements between the last row written and the next are filled at that time.
    let mut written = 0;
    for (plane, from) in input.chunks_exact(rows * row).enumerate() {
        let (mut rest, mut at, mut step) = (plane, above * width + left, height * width);
        for dim in (0..planes.len()).rev() {
            at += (rest % shape[dim] + widths[dim][0]) * step;
            step *= padded(dim);
            rest /= shape[dim];
        }
        for from in from.chunks_exact(row) {
            let between = &mut out[written..at];
            match between.len() {
                // A call takes longer than filling so few elements.
                0..=8 => between.iter_mut().for_each(|out| *out = value),
                _ => between.fill(value),
            }
            out[at..at + row].copy_from_slice(from);
            written = at + row;
            at += width;
        }
    }
    out[written..].fill(value);
}
