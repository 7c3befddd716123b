//! Kernels over elements of any type.

use std::cmp::Ordering;

use rayon::prelude::*;
use smallvec::SmallVec;

use super::GRAIN;
use crate::spread::Spread;

/// Steps along the dimensions of a tensor.
pub type Steps = SmallVec<[isize; 6]>;

/// Steps of a row-major tensor of shape `shape` along the dimensions of one of rank `rank` that it
/// is broadcast to: none where it is repeated.
#[must_use]
pub fn broadcast_steps(shape: &[usize], rank: usize) -> Steps {
    let mut steps: Steps = SmallVec::from_elem(0, rank);
    let mut step = 1;
    for (at, &size) in shape.iter().enumerate().rev() {
        if size != 1 {
            steps[at + rank - shape.len()] = step;
        }
        step *= size as isize;
    }
    steps
}

/// Where row `index` of a tensor of shape `outer` begins.
fn start(outer: &[usize], steps: &[isize], mut index: usize) -> isize {
    let mut at = 0;
    for (&size, &step) in outer.iter().zip(steps).rev() {
        at += (index % size) as isize * step;
        index /= size;
    }
    at
}

/// Writes rows of a tensor of shape `shape`: `write` gets the number of a row and the row.
fn by_rows<T: Send>(shape: &[usize], out: &mut [T], write: impl Fn(usize, &mut [T]) + Sync) {
    let row = shape.last().copied().unwrap_or(1);
    if row == 0 || out.is_empty() {
        return;
    }
    out.par_chunks_mut(row)
        .enumerate()
        .with_min_len(GRAIN.div_ceil(row))
        .spread(|(index, out)| write(index, out));
}

/// `out[i] = f(a[i])`
pub fn map<A: Copy + Sync, O: Send>(a: &[A], out: &mut [O], f: impl Fn(A) -> O + Sync) {
    out.par_chunks_mut(GRAIN)
        .zip(a.par_chunks(GRAIN))
        .spread(|(out, a)| out.iter_mut().zip(a).for_each(|(out, &a)| *out = f(a)));
}

/// `out[i] = f(a[i], b[i])`, after broadcasting to `shape`.
pub fn zip<A: Copy + Sync, B: Copy + Sync, O: Send>(
    (a, a_shape): (&[A], &[usize]),
    (b, b_shape): (&[B], &[usize]),
    shape: &[usize],
    out: &mut [O],
    f: impl Fn(A, B) -> O + Sync,
) {
    let rank = shape.len();
    let (a_steps, b_steps) = (
        broadcast_steps(a_shape, rank),
        broadcast_steps(b_shape, rank),
    );
    let last = |steps: &[isize]| steps.last().copied().unwrap_or(0).unsigned_abs();
    let outer = &shape[..rank.saturating_sub(1)];
    by_rows(shape, out, |index, out| {
        let from = |steps: &[isize]| start(outer, &steps[..outer.len()], index).unsigned_abs();
        let (a, b) = (&a[from(&a_steps)..], &b[from(&b_steps)..]);
        match (last(&a_steps), last(&b_steps)) {
            (0, 0) => out.iter_mut().for_each(|out| *out = f(a[0], b[0])),
            (0, _) => out
                .iter_mut()
                .zip(b)
                .for_each(|(out, &b)| *out = f(a[0], b)),
            (_, 0) => out
                .iter_mut()
                .zip(a)
                .for_each(|(out, &a)| *out = f(a, b[0])),
            _ => out
                .iter_mut()
                .zip(a.iter().zip(b))
                .for_each(|(out, (&a, &b))| *out = f(a, b)),
        }
    });
}

/// `out[i] = condition[i] ? a[i] : b[i]`, after broadcasting to `shape`.
pub fn choose<T: Copy + Send + Sync>(
    (condition, condition_shape): (&[u8], &[usize]),
    (a, a_shape): (&[T], &[usize]),
    (b, b_shape): (&[T], &[usize]),
    shape: &[usize],
    out: &mut [T],
) {
    let rank = shape.len();
    let steps = [condition_shape, a_shape, b_shape].map(|own| broadcast_steps(own, rank));
    let outer = &shape[..rank.saturating_sub(1)];
    by_rows(shape, out, |index, out| {
        let [c, x, y] = [0, 1, 2].map(|number| {
            let steps: &Steps = &steps[number];
            let from = start(outer, &steps[..outer.len()], index).unsigned_abs();
            (from, steps.last().copied().unwrap_or(0).unsigned_abs())
        });
        for (at, out) in out.iter_mut().enumerate() {
            *out = match condition[c.0 + at * c.1] != 0 {
                true => a[x.0 + at * x.1],
                false => b[y.0 + at * y.1],
            };
        }
    });
}

/// Copies a view: element `i` of a result of shape `shape` lies `offset` plus `i` times `steps`
/// from the first of `input`. Steps may be negative.
pub fn copy<T: Copy + Send + Sync>(
    input: &[T],
    offset: usize,
    steps: &[isize],
    shape: &[usize],
    out: &mut [T],
) {
    let outer = &shape[..shape.len().saturating_sub(1)];
    let step = steps.last().copied().unwrap_or(0);
    by_rows(shape, out, |index, out| {
        let from = offset as isize + start(outer, &steps[..outer.len()], index);
        for (at, out) in out.iter_mut().enumerate() {
            *out = input[(from + at as isize * step).unsigned_abs()];
        }
    });
}

/// Puts tensors one behind the other: each with how many elements it has before the next one
/// begins.
pub fn concat<T: Copy>(parts: &[(&[T], usize)], out: &mut [T]) {
    let row: usize = parts.iter().map(|(_, row)| row).sum();
    if row == 0 {
        return;
    }
    for (index, out) in out.chunks_mut(row).enumerate() {
        let mut at = 0;
        for (part, own) in parts {
            out[at..at + own].copy_from_slice(&part[index * own..(index + 1) * own]);
            at += own;
        }
    }
}

/// An index as a place among `size` elements.
#[inline(always)]
fn place(index: i64, size: usize, wraps: bool) -> Result<usize, i64> {
    let at = if index < 0 && wraps {
        index + size as i64
    } else {
        index
    };
    match usize::try_from(at) {
        Ok(at) if at < size => Ok(at),
        _ => Err(index),
    }
}

/// For each block of `size` rows of `inner` elements, the rows that `indices` say.
///
/// # Errors
/// An index that is out of range.
pub fn select<T: Copy + Send + Sync>(
    input: &[T],
    size: usize,
    inner: usize,
    indices: &[i64],
    wraps: bool,
    out: &mut [T],
) -> Result<(), i64> {
    let places = indices.iter().map(|&index| place(index, size, wraps));
    let places = places.collect::<Result<Vec<usize>, i64>>()?;
    if inner == 0 || out.is_empty() {
        return Ok(());
    }
    out.par_chunks_mut(inner)
        .enumerate()
        .with_min_len(GRAIN.div_ceil(inner))
        .spread(|(row, out)| {
            let (block, at) = (row / places.len(), places[row % places.len()]);
            out.copy_from_slice(&input[(block * size + at) * inner..][..inner]);
        });
    Ok(())
}

/// `out[i][j][k] = input[i][index[i][j][k]][k]` along dimension `dim`.
///
/// # Errors
/// An index that is out of range.
pub fn gather<T: Copy + Send + Sync>(
    input: &[T],
    shape: &[usize],
    dim: usize,
    (indices, index_shape, wraps): (&[i64], &[usize], bool),
    out: &mut [T],
) -> Result<(), i64> {
    let size = shape[dim];
    if let Some(index) = indices.iter().find_map(|&i| place(i, size, wraps).err()) {
        return Err(index);
    }
    let mut steps = broadcast_steps(shape, shape.len());
    // Dimensions of size 1 are not repeated here: indices reach no further.
    let step = shape[dim + 1..].iter().product::<usize>();
    steps[dim] = 0;
    let last = index_shape.len() - 1;
    let outer = &index_shape[..last];
    by_rows(index_shape, out, |row, out| {
        let from = start(outer, &steps[..last], row).unsigned_abs();
        let own = steps[last].unsigned_abs();
        let indices = &indices[row * index_shape[last]..];
        for (at, (out, &index)) in out.iter_mut().zip(indices).enumerate() {
            let place = place(index, size, wraps).unwrap_or(0);
            *out = input[from + at * own + place * step];
        }
    });
    Ok(())
}

/// `out[i][index[i][j][k]][k] = f(out[…], source[i][j][k])` along dimension `dim`, one after the other.
///
/// # Errors
/// An index that is out of range; nothing is written then.
pub fn scatter<T: Copy>(
    shape: &[usize],
    dim: usize,
    (indices, index_shape): (&[i64], &[usize]),
    (source, source_shape): (&[T], &[usize]),
    out: &mut [T],
    f: impl Fn(T, T) -> T,
) -> Result<(), i64> {
    let size = shape[dim];
    if let Some(index) = indices.iter().find_map(|&i| place(i, size, false).err()) {
        return Err(index);
    }
    let steps = |shape: &[usize]| {
        let mut steps: Steps = SmallVec::from_elem(1, shape.len());
        for at in (1..shape.len()).rev() {
            steps[at - 1] = steps[at] * shape[at] as isize;
        }
        steps
    };
    let (mut to, from) = (steps(shape), steps(source_shape));
    let along = to[dim].unsigned_abs();
    to[dim] = 0;
    for (number, &index) in indices.iter().enumerate() {
        let read = start(index_shape, &from, number).unsigned_abs();
        let at =
            start(index_shape, &to, number).unsigned_abs() + index.unsigned_abs() as usize * along;
        out[at] = f(out[at], source[read]);
    }
    Ok(())
}

/// Sums, or products, of all elements up to each along a dimension of `size` elements that lie
/// `inner` apart.
pub fn cumulate<T: Copy, A: Copy>(
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

/// Numbers with an order of all of them: NaN is larger than all others.
pub trait Ordered: Copy + Send + Sync {
    /// Which one is larger.
    fn order(&self, other: &Self) -> Ordering;
}

impl Ordered for f32 {
    fn order(&self, other: &Self) -> Ordering {
        match self.partial_cmp(other) {
            Some(order) => order,
            None => self.is_nan().cmp(&other.is_nan()),
        }
    }
}

impl Ordered for i64 {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl Ordered for u8 {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

/// The places of the `keep` smallest, or largest, elements along a dimension of `size` elements
/// that lie `inner` apart, in order. Of equal ones the first comes first.
pub fn sort<T: Ordered>(
    input: &[T],
    [size, inner]: [usize; 2],
    descending: bool,
    keep: usize,
    out: &mut [i64],
) {
    if keep == 0 || inner == 0 || out.is_empty() {
        return;
    }
    let blocks = out.par_chunks_mut(keep * inner);
    blocks.enumerate().spread(|(block, out)| {
        let input = &input[block * size * inner..];
        let mut line: Vec<(T, i64)> = Vec::with_capacity(size);
        for at in 0..inner {
            line.clear();
            let own = input[at..].iter().step_by(inner).take(size);
            line.extend(own.zip(0..).map(|(&x, place)| (x, place)));
            let order = |a: &(T, i64), b: &(T, i64)| {
                let order = a.0.order(&b.0);
                let order = if descending { order.reverse() } else { order };
                order.then(a.1.cmp(&b.1))
            };
            if keep < size {
                line.select_nth_unstable_by(keep, order);
            }
            line[..keep].sort_unstable_by(order);
            for (to, (_, place)) in out[at..].iter_mut().step_by(inner).zip(&line[..keep]) {
                *to = *place;
            }
        }
    });
}

/// The place of the largest, or smallest, element along a dimension; the first of several, and the
/// first NaN where there is one.
pub fn extreme<T: Ordered + PartialEq>(
    input: &[T],
    [size, inner]: [usize; 2],
    largest: bool,
    out: &mut [i64],
) {
    if inner == 0 {
        return;
    }
    #[expect(clippy::eq_op, reason = "NaN differs from itself")]
    let is_nan = |x: &T| x != x;
    out.par_chunks_mut(inner)
        .enumerate()
        .spread(|(block, out)| {
            let input = &input[block * size * inner..];
            for (at, out) in out.iter_mut().enumerate() {
                let (mut best, mut best_at) = (input[at], 0);
                for place in 1..size {
                    let x = input[at + place * inner];
                    let order = x.order(&best);
                    let better = match largest {
                        _ if is_nan(&best) => false,
                        _ if is_nan(&x) => true,
                        true => order == Ordering::Greater,
                        false => order == Ordering::Less,
                    };
                    if better {
                        (best, best_at) = (x, place as i64);
                    }
                }
                *out = best_at;
            }
        });
}

/// Combines elements along `dims`, beginning with `zero`.
pub fn fold<T: Copy, A: Copy>(
    input: &[T],
    shape: &[usize],
    dims: &[usize],
    zero: A,
    f: impl Fn(A, T) -> A,
    out: &mut [A],
) {
    out.fill(zero);
    let mut steps: Steps = SmallVec::from_elem(0, shape.len());
    let mut step = 1;
    for at in (0..shape.len()).rev() {
        if !dims.contains(&at) {
            steps[at] = step;
            step *= shape[at] as isize;
        }
    }
    let row = shape.last().copied().unwrap_or(1);
    if row == 0 || input.is_empty() {
        return;
    }
    let outer = &shape[..shape.len().saturating_sub(1)];
    let own = steps.last().copied().unwrap_or(0).unsigned_abs();
    for (index, input) in input.chunks(row).enumerate() {
        let from = start(outer, &steps[..outer.len()], index).unsigned_abs();
        for (at, &x) in input.iter().enumerate() {
            let out = &mut out[from + at * own];
            *out = f(*out, x);
        }
    }
}

/// Weighted sums of rows of `inner` elements, of which there are `size` in a block.
pub fn resample(
    input: &[f32],
    size: usize,
    inner: usize,
    taps: &[SmallVec<[(usize, f32); 4]>],
    out: &mut [f32],
) {
    if out.is_empty() || taps.is_empty() {
        return;
    }
    out.par_chunks_mut(inner)
        .enumerate()
        .with_min_len(GRAIN.div_ceil(inner))
        .spread(|(row, out)| {
            let (block, taps) = (row / taps.len(), &taps[row % taps.len()]);
            out.fill(0.0);
            for &(at, weight) in taps {
                let from = &input[(block * size + at) * inner..][..inner];
                out.iter_mut()
                    .zip(from)
                    .for_each(|(out, x)| *out += weight * x);
            }
        });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_the_largest_and_equal_ones_keep_their_order() {
        let mut out = [0; 5];
        sort(&[2.0, f32::NAN, 1.0, 2.0, -1.0], [5, 1], false, 5, &mut out);
        assert_eq!(out, [4, 2, 0, 3, 1]);
        let mut out = [0; 3];
        sort(&[2.0, f32::NAN, 1.0, 2.0, -1.0], [5, 1], true, 3, &mut out);
        assert_eq!(out, [1, 0, 3]);
        let mut out = [0];
        extreme(&[2.0, f32::NAN, 1.0], [3, 1], false, &mut out);
        assert_eq!(out, [1]);
    }

    #[test]
    fn an_index_that_is_out_of_range_is_named() {
        let mut out = [0.0; 2];
        assert_eq!(select(&[1.0, 2.0], 2, 1, &[1, -1], true, &mut out), Ok(()));
        assert_eq!(out, [2.0, 2.0]);
        assert_eq!(
            select(&[1.0, 2.0], 2, 1, &[1, -1], false, &mut out),
            Err(-1)
        );
        assert_eq!(select(&[1.0, 2.0], 2, 1, &[2, 0], true, &mut out), Err(2));
    }

    #[test]
    fn steps_may_be_negative() {
        let mut out = [0; 4];
        copy(&[1, 2, 3, 4], 3, &[-2, -1], &[2, 2], &mut out);
        assert_eq!(out, [4, 3, 2, 1]);
    }
}
