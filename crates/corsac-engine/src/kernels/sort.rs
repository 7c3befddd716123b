//! Sorting, and the positions of extremes.

use std::cmp::Ordering;

use multiversion::multiversion;
use rayon::prelude::*;

use super::GRAIN;
use crate::parallel::Parallel;

/// Numbers with a total order: NaN is larger than all others.
pub trait Ordered: Copy + Send + Sync {
    /// A number with its position, in the same order; equal numbers are ordered by position.
    type Placed: Placed<Of = Self>;

    /// Compares two numbers.
    fn order(&self, other: &Self) -> Ordering;
}

/// A number with its position.
pub trait Placed: Copy + Ord + Send + Sync {
    /// Type of the number.
    type Of;

    /// The number `x` at `place`; in reverse order if `descending`.
    fn new(x: Self::Of, place: usize, descending: bool) -> Self;

    /// Its position.
    fn place(self) -> usize;

    /// Sorts numbers, which are in the order of their positions.
    fn sort(line: &mut [Self], _spare: &mut Vec<Self>) {
        line.sort_unstable();
    }
}

impl Ordered for f32 {
    type Placed = Packed;

    fn order(&self, other: &Self) -> Ordering {
        match self.partial_cmp(other) {
            Some(order) => order,
            None => self.is_nan().cmp(&other.is_nan()),
        }
    }
}

impl Ordered for f64 {
    type Placed = (u64, u32);

    fn order(&self, other: &Self) -> Ordering {
        match self.partial_cmp(other) {
            Some(order) => order,
            None => self.is_nan().cmp(&other.is_nan()),
        }
    }
}

impl Ordered for i64 {
    type Placed = (i64, u32);

    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl Ordered for u8 {
    type Placed = (u8, u32);

    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

/// The position in 32 bits: [`sort`] refuses lines with more elements.
fn short(place: usize) -> u32 {
    place as u32
}

/// A number of double precision, as an integer with the same order.
impl Placed for (u64, u32) {
    type Of = f64;

    #[inline(always)]
    fn new(x: f64, place: usize, descending: bool) -> Self {
        // Both zeros are equal, and so are all NaN.
        let bits = (x + 0.0).to_bits();
        let negative = (bits.cast_signed() >> 63).cast_unsigned();
        let key = bits ^ (negative | 1 << 63);
        let key = if x.is_nan() { u64::MAX } else { key };
        (if descending { !key } else { key }, short(place))
    }

    fn place(self) -> usize {
        self.1 as usize
    }
}

impl Placed for (i64, u32) {
    type Of = i64;

    fn new(x: i64, place: usize, descending: bool) -> Self {
        // `!x` has the reverse order.
        (if descending { !x } else { x }, short(place))
    }

    fn place(self) -> usize {
        self.1 as usize
    }
}

impl Placed for (u8, u32) {
    type Of = u8;

    fn new(x: u8, place: usize, descending: bool) -> Self {
        (if descending { !x } else { x }, short(place))
    }

    fn place(self) -> usize {
        self.1 as usize
    }
}

/// A floating-point number, as an integer with the same order, in the upper half, and its position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packed(u64);

impl Packed {
    /// From this many numbers on, radix sort is used.
    const MANY: usize = 128;

    fn digit(self, number: u32) -> usize {
        (self.0 >> (32 + 8 * number)) as usize & 0xff
    }
}

impl Placed for Packed {
    type Of = f32;

    #[inline(always)]
    fn new(x: f32, place: usize, descending: bool) -> Self {
        // Both zeros are equal, and so are all NaN.
        let bits = (x + 0.0).to_bits();
        let negative = (bits.cast_signed() >> 31).cast_unsigned();
        let key = bits ^ (negative | 1 << 31);
        let key = if x.is_nan() { u32::MAX } else { key };
        let key = if descending { !key } else { key };
        Self(u64::from(key) << 32 | u64::from(short(place)))
    }

    fn place(self) -> usize {
        self.0 as u32 as usize
    }

    /// Radix sort by digits of eight bits, the lowest first: each pass is stable.
    fn sort(line: &mut [Self], spare: &mut Vec<Self>) {
        if line.len() < Self::MANY {
            return line.sort_unstable();
        }
        let mut counts = [[0_u32; 256]; 4];
        for own in &*line {
            for (number, counts) in (0..).zip(&mut counts) {
                counts[own.digit(number)] += 1;
            }
        }
        spare.clear();
        spare.resize(line.len(), Self(0));
        let (mut from, mut to) = (line, &mut spare[..]);
        let mut is_spare = false;
        for (number, counts) in (0..).zip(&mut counts) {
            if counts[from[0].digit(number)] as usize == from.len() {
                continue;
            }
            let mut before = 0;
            for count in counts.iter_mut() {
                before += std::mem::replace(count, before);
            }
            for &own in &*from {
                let at = &mut counts[own.digit(number)];
                to[*at as usize] = own;
                *at += 1;
            }
            std::mem::swap(&mut from, &mut to);
            is_spare = !is_spare;
        }
        if is_spare {
            to.copy_from_slice(from);
        }
    }
}

/// The positions of the `keep` smallest, or largest, elements along a dimension of `size` elements
/// with stride `inner`, in order. Of equal elements the first comes first.
///
/// # Panics
/// If there are more elements than 32 bits can count.
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
    assert!(u32::try_from(size).is_ok(), "{size} elements are sorted");
    let blocks = out.par_chunks_mut(keep * inner);
    let scratch = || (Vec::with_capacity(size), Vec::new());
    blocks
        .enumerate()
        .with_min_len(GRAIN.div_ceil(16 * size * inner))
        .run_parallel_with(scratch, |(line, spare), (block, out)| {
            let input = &input[block * size * inner..];
            for at in 0..inner {
                let own = input[at..].iter().step_by(inner).take(size);
                if keep <= (size / FEW).max(FEW / 2) && keep < size && inner == 1 {
                    smallest(&input[..size], descending, keep, line);
                } else {
                    let placed = own
                        .enumerate()
                        .map(|(place, &x)| T::Placed::new(x, place, descending));
                    line.clear();
                    line.extend(placed);
                    if keep < size {
                        line.select_nth_unstable(keep);
                        line[..keep].sort_unstable();
                    } else {
                        T::Placed::sort(line, spare);
                    }
                }
                for (to, own) in out[at..].iter_mut().step_by(inner).zip(&line[..keep]) {
                    *to = own.place() as i64;
                }
            }
        });
}

/// Largest part of a line that is kept in order while the rest goes by: one in this many.
const FEW: usize = 32;

/// Number of elements for which one test decides whether any is small enough.
const PASSED: usize = 32;

/// The `keep` smallest, or largest, elements of a line, in order.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn smallest<T: Ordered>(line: &[T], descending: bool, keep: usize, kept: &mut Vec<T::Placed>) {
    let (first, rest) = line.split_at(keep);
    let placed = |(place, &x): (usize, &T)| T::Placed::new(x, place, descending);
    kept.clear();
    kept.extend(first.iter().enumerate().map(placed));
    kept.sort_unstable();
    let Some(&last) = kept.last() else { return };
    let mut largest = last;
    for (number, piece) in rest.chunks(PASSED).enumerate() {
        // Of equal elements the earlier ones come first, so that none of these is kept.
        let mut any = false;
        for &x in piece {
            any |= T::Placed::new(x, 0, descending) < largest;
        }
        if !any {
            continue;
        }
        for (at, &x) in piece.iter().enumerate() {
            let own = T::Placed::new(x, keep + number * PASSED + at, descending);
            if own < largest {
                let mut at = keep - 1;
                while at > 0 && own < kept[at - 1] {
                    kept[at] = kept[at - 1];
                    at -= 1;
                }
                kept[at] = own;
                largest = kept[keep - 1];
            }
        }
    }
}

/// The position of the largest, or smallest, element along a dimension: the first of several, or
/// the first NaN if there is one.
pub fn arg_reduce<T: Ordered + PartialEq>(
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
        .run_parallel(|(block, out)| {
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
        arg_reduce(&[2.0, f32::NAN, 1.0], [3, 1], false, &mut out);
        assert_eq!(out, [1]);
    }
}
