//! Reads and writes of indexed elements.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use corsac_kernels::scatter::are_inside;
use smallvec::SmallVec;

use super::rows::{broadcast_strides, by_rows, start};
use crate::program::arithmetic::of_floats;
use crate::program::{Arithmetic, Combination, Float, IndexPut, Strides};

/// Element types that are combined at indexed places.
pub trait Combined: Copy + Send + Sync {
    /// The combination of an element with another one.
    fn combined(combination: Combination, old: Self, new: Self) -> Self;
}

impl<T: Float> Combined for T {
    #[inline(always)]
    fn combined(combination: Combination, old: Self, new: Self) -> Self {
        match combination {
            Combination::Replace => new,
            Combination::Add => old + new,
            Combination::Multiply => old * new,
            Combination::Largest => of_floats(Arithmetic::Maximum)(old, new),
            Combination::Smallest => of_floats(Arithmetic::Minimum)(old, new),
        }
    }
}

impl Combined for i64 {
    #[inline(always)]
    fn combined(combination: Combination, old: Self, new: Self) -> Self {
        match combination {
            Combination::Replace => new,
            Combination::Add => old.wrapping_add(new),
            Combination::Multiply => old.wrapping_mul(new),
            Combination::Largest => old.max(new),
            Combination::Smallest => old.min(new),
        }
    }
}

impl Combined for u8 {
    #[inline(always)]
    fn combined(combination: Combination, old: Self, new: Self) -> Self {
        match combination {
            Combination::Replace => new,
            Combination::Add | Combination::Largest => old | new,
            Combination::Multiply | Combination::Smallest => old & new,
        }
    }
}

/// Expands `$run` with `$f` as the function of each combination, so that it is known in the loop.
macro_rules! by_combination {
    ($combination:expr, $f:ident => $run:expr) => {
        by_combination!($combination, $f => $run, Replace, Add, Multiply, Largest, Smallest)
    };
    ($combination:expr, $f:ident => $run:expr, $($own:ident),*) => {
        match $combination {
            $(Combination::$own => {
                let $f = |old, new| Combined::combined(Combination::$own, old, new);
                $run
            })*
        }
    };
}

/// An index as a position among `size` elements; the index itself as an error if it is out of
/// range.
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

/// Selects rows by `indices` from each block of `size` rows of `inner` elements.
///
/// # Errors
/// If an index is out of range.
pub fn index_select<T: Copy + Send + Sync>(
    input: &[T],
    size: usize,
    inner: usize,
    indices: &[i64],
    wraps: bool,
    out: &mut [T],
) -> Result<(), i64> {
    let places = indices.iter().map(|&index| place(index, size, wraps));
    let places = places.collect::<Result<Vec<usize>, i64>>()?;
    by_rows(inner, out, |row, out| {
        let (block, at) = (row / places.len(), places[row % places.len()]);
        out.copy_from_slice(&input[(block * size + at) * inner..][..inner]);
    });
    Ok(())
}

/// Element types that can be gathered.
pub trait Gathered: Copy + Send + Sync {
    /// `to[i] = from[places[i]]`. Returns false if a place is out of range.
    fn gather(from: &[Self], places: &[i64], to: &mut [Self]) -> bool {
        let inside = are_inside(places, from.len());
        if inside {
            for (to, &place) in to.iter_mut().zip(places) {
                *to = from[place as usize];
            }
        }
        inside
    }
}

impl Gathered for f64 {}
impl Gathered for i64 {}
impl Gathered for u8 {}
impl Gathered for f32 {
    fn gather(from: &[Self], places: &[i64], to: &mut [Self]) -> bool {
        corsac_kernels::gather::gather(from, places, to)
    }
}

/// `out[i][j][k] = input[i][index[i][j][k]][k]` along dimension `dim`.
///
/// # Errors
/// If an index is out of range.
pub fn gather<T: Gathered>(
    input: &[T],
    shape: &[usize],
    dim: usize,
    (indices, index_shape, wraps): (&[i64], &[usize], bool),
    out: &mut [T],
) -> Result<(), i64> {
    let size = shape[dim];
    let mut steps = broadcast_strides(shape, shape.len());
    // Dimensions of size 1 are not broadcast here: indices reach no further.
    let step = shape[dim + 1..].iter().product::<usize>();
    steps[dim] = 0;
    let last = index_shape.len() - 1;
    let outer = &index_shape[..last];
    let from = |row: usize| start(outer, &steps, row);
    let own = |row: usize| &indices[row * index_shape[last]..][..index_shape[last]];
    if dim == last {
        // The indices are checked on the way.
        let all = AtomicBool::new(true);
        by_rows(index_shape[last], out, |row, out| {
            if !T::gather(&input[from(row)..][..size], own(row), out) {
                all.store(false, Relaxed);
            }
        });
        if all.into_inner() {
            return Ok(());
        }
    }
    if !are_inside(indices, size)
        && let Some(index) = indices.iter().find_map(|&i| place(i, size, wraps).err())
    {
        return Err(index);
    }
    let along = steps[last].unsigned_abs();
    by_rows(index_shape[last], out, |row, out| {
        let from = from(row);
        for (at, (out, &index)) in out.iter_mut().zip(own(row)).enumerate() {
            let place = place(index, size, wraps).unwrap_or(0);
            *out = input[from + at * along + place * step];
        }
    });
    Ok(())
}

/// Combines `out[i][index[i][j][k]][k]` with `source[i][j][k]` along dimension `dim`, one after the
/// other.
///
/// # Errors
/// If an index is out of range; if `may_end` is false, nothing is written then.
pub fn scatter<T: Combined>(
    shape: &[usize],
    dim: usize,
    indices: (&[i64], &[usize]),
    source: (&[T], &[usize]),
    out: (&mut [T], bool),
    combination: Combination,
) -> Result<(), i64> {
    by_combination!(combination, f => scatter_by(shape, dim, indices, source, out, f))
}

fn scatter_by<T: Copy>(
    shape: &[usize],
    dim: usize,
    (indices, index_shape): (&[i64], &[usize]),
    (source, source_shape): (&[T], &[usize]),
    (out, may_end): (&mut [T], bool),
    f: impl Fn(T, T) -> T,
) -> Result<(), i64> {
    let size = shape[dim];
    let outside = |indices: &[i64]| indices.iter().find_map(|&i| place(i, size, false).err());
    let is_of_rows = dim + 1 == shape.len();
    // Rows are checked one by one, while they are in a cache.
    let is_looked_at_later = is_of_rows && may_end;
    if !is_looked_at_later
        && !are_inside(indices, size)
        && let Some(index) = outside(indices)
    {
        return Err(index);
    }
    let steps = |shape: &[usize]| {
        let mut steps: Strides = SmallVec::from_elem(1, shape.len());
        for at in (1..shape.len()).rev() {
            steps[at - 1] = steps[at] * shape[at] as isize;
        }
        steps
    };
    let (mut to, from) = (steps(shape), steps(source_shape));
    let along = to[dim].unsigned_abs();
    to[dim] = 0;
    let (Some((&row, outer)), Some((&own, to))) = (index_shape.split_last(), to.split_last())
    else {
        return Ok(());
    };
    let own = own.unsigned_abs();
    for (number, indices) in indices.chunks(row.max(1)).enumerate() {
        let (read, at) = (start(outer, &from, number), start(outer, to, number));
        if is_of_rows {
            let out = &mut out[at..at + size];
            if !corsac_kernels::scatter::scatter(&source[read..], indices, out, &f) {
                return outside(indices).map_or(Ok(()), Err);
            }
            continue;
        }
        for (place, (&index, &x)) in indices.iter().zip(&source[read..]).enumerate() {
            let out = &mut out[at + place * own + index.unsigned_abs() as usize * along];
            *out = f(*out, x);
        }
    }
    Ok(())
}

impl IndexPut {
    /// Puts elements of `source` into `out`; duplicate places are written in the order of the
    /// indices.
    ///
    /// # Errors
    /// An index that is out of range, and the size of its dimension; nothing is written then.
    pub(crate) fn run<T: Combined>(
        &self,
        indices: &[&[i64]],
        source: &[T],
        out: &mut [T],
    ) -> Result<(), (i64, usize)> {
        by_combination!(self.combination, f => self.run_by(indices, source, out, f))
    }

    fn run_by<T: Copy>(
        &self,
        indices: &[&[i64]],
        source: &[T],
        out: &mut [T],
        f: impl Fn(T, T) -> T,
    ) -> Result<(), (i64, usize)> {
        let places = self.places(indices)?;
        if source.is_empty() || self.rest.iter().any(|&(size, ..)| size == 0) {
            return Ok(());
        }
        let (&(row, to_step, from_step), outer) = match self.rest.split_last() {
            Some((row, outer)) => (row, outer),
            None => (&(1, 1, 1), &[][..]),
        };
        let count: usize = outer.iter().map(|&(size, ..)| size).product();
        let mut at: SmallVec<[usize; 6]> = SmallVec::from_elem(0, outer.len());
        let (mut to, mut from) = (0, 0);
        for _ in 0..count {
            for &(place, read) in &places {
                let (to, from) = (place + to, read + from);
                match (to_step, from_step) {
                    (1, 1) => {
                        let out = &mut out[to..to + row];
                        for (out, &x) in out.iter_mut().zip(&source[from..from + row]) {
                            *out = f(*out, x);
                        }
                    }
                    _ => {
                        for number in 0..row {
                            let out = &mut out[to + number * to_step];
                            *out = f(*out, source[from + number * from_step]);
                        }
                    }
                }
            }
            for (at, &(size, to_step, from_step)) in at.iter_mut().zip(outer).rev() {
                *at += 1;
                to += to_step;
                from += from_step;
                if *at < size {
                    break;
                }
                *at = 0;
                to -= size * to_step;
                from -= size * from_step;
            }
        }
        Ok(())
    }

    /// For each index in order, the offsets in the tensor and in the source.
    fn places(&self, indices: &[&[i64]]) -> Result<Vec<(usize, usize)>, (i64, usize)> {
        let count: usize = self.along.iter().map(|&(size, _)| size).product();
        let mut places = Vec::with_capacity(count);
        for number in 0..count {
            let mut to = self.offset;
            for (index, &(size, step)) in indices.iter().zip(&self.indexed) {
                let at = place(index[number], size, self.wraps);
                to += at.map_err(|index| (index, size))? * step;
            }
            let (mut from, mut rest) = (0, number);
            for &(size, step) in self.along.iter().rev() {
                from += rest % size * step;
                rest /= size;
            }
            places.push((to, from));
        }
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_is_out_of_range_is_named() {
        let mut out = [0.0; 2];
        assert_eq!(
            index_select(&[1.0, 2.0], 2, 1, &[1, -1], true, &mut out),
            Ok(())
        );
        assert_eq!(out, [2.0, 2.0]);
        assert_eq!(
            index_select(&[1.0, 2.0], 2, 1, &[1, -1], false, &mut out),
            Err(-1)
        );
        assert_eq!(
            index_select(&[1.0, 2.0], 2, 1, &[2, 0], true, &mut out),
            Err(2)
        );
    }
}
