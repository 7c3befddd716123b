//! Kernels over elements of any type.

use std::cmp::Ordering;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use corsac_kernels::scatter::are_inside;
use multiversion::multiversion;
use rayon::prelude::*;
use smallvec::SmallVec;

use super::GRAIN;
use super::elementwise::{self, Operand};
use crate::parallel::Parallel;
use crate::program::arithmetic::{of_floats, of_integers};
use crate::program::{Arithmetic, Combination, Comparison, Strides};

/// Expands `$run` with `$f` as the function of each combination, so that it is known in the loop.
macro_rules! by_combination {
    ($combination:expr, $f:ident => $run:expr) => {
        by_combination!($combination, $f => $run, Replace, Add, Multiply, Largest, Smallest)
    };
    ($combination:expr, $f:ident => $run:expr, $($own:ident),*) => {
        match $combination {
            $(Combination::$own => {
                let $f = |old, new| Paired::combined(Combination::$own, old, new);
                $run
            })*
        }
    };
}
pub(super) use by_combination;

/// Strides of a row-major tensor of shape `shape` along the dimensions of one of rank `rank` that
/// it is broadcast to: 0 where it is repeated.
#[must_use]
pub fn broadcast_strides(shape: &[usize], rank: usize) -> Strides {
    let mut steps: Strides = SmallVec::from_elem(0, rank);
    let mut step = 1;
    for (at, &size) in shape.iter().enumerate().rev() {
        if size != 1 {
            steps[at + rank - shape.len()] = step;
        }
        step *= size as isize;
    }
    steps
}

/// Offset of row `index` of a tensor of shape `outer`.
fn start(outer: &[usize], steps: &[isize], mut index: usize) -> isize {
    let mut at = 0;
    for (&size, &step) in outer.iter().zip(steps).rev() {
        at += (index % size) as isize * step;
        index /= size;
    }
    at
}

/// Writes rows of a tensor of shape `shape`: calls `write` with the number of each row and the row.
fn by_rows<T: Send>(shape: &[usize], out: &mut [T], write: impl Fn(usize, &mut [T]) + Sync) {
    let row = shape.last().copied().unwrap_or(1);
    if row == 0 || out.is_empty() {
        return;
    }
    out.par_chunks_mut(row)
        .enumerate()
        .with_min_len(GRAIN.div_ceil(row))
        .run_parallel(|(index, out)| write(index, out));
}

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
    (a, a_shape): (&[A], &[usize]),
    (b, b_shape): (&[B], &[usize]),
    shape: &[usize],
    out: &mut [O],
    f: impl Fn(A, B) -> O + Sync,
) {
    let rank = shape.len();
    let (a_steps, b_steps) = (
        broadcast_strides(a_shape, rank),
        broadcast_strides(b_shape, rank),
    );
    let last = |steps: &[isize]| steps.last().copied().unwrap_or(0).unsigned_abs();
    if a.len() == out.len() && b.len() == out.len() {
        let chunks = out.par_chunks_mut(GRAIN).zip(a.par_chunks(GRAIN));
        let chunks = chunks.zip(b.par_chunks(GRAIN));
        return chunks.run_parallel(|((out, a), b)| zip_chunk(a, b, out, &f));
    }
    let outer = &shape[..rank.saturating_sub(1)];
    by_rows(shape, out, |index, out| {
        let from = |steps: &[isize]| start(outer, &steps[..outer.len()], index).unsigned_abs();
        let (a, b) = (&a[from(&a_steps)..], &b[from(&b_steps)..]);
        match (last(&a_steps), last(&b_steps)) {
            (0, 0) => out.iter_mut().for_each(|out| *out = f(a[0], b[0])),
            (0, _) => map_chunk(b, out, &|b| f(a[0], b)),
            (_, 0) => map_chunk(a, out, &|a| f(a, b[0])),
            _ => zip_chunk(a, b, out, &f),
        }
    });
}

/// Whether a comparison of `a[i]` with `b[i]` is true, after broadcasting to `shape`.
pub fn compare<T: Copy + Sync + PartialOrd>(
    comparison: Comparison,
    a: (&[T], &[usize]),
    b: (&[T], &[usize]),
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
        a: (&[Self], &[usize]),
        b: (&[Self], &[usize]),
        shape: &[usize],
        out: &mut [Self],
    );

    /// The combination of an element with another one.
    fn combined(combination: Combination, old: Self, new: Self) -> Self;
}

impl Paired for f32 {
    fn arithmetic(
        function: Arithmetic,
        (a, a_shape): (&[Self], &[usize]),
        (b, b_shape): (&[Self], &[usize]),
        shape: &[usize],
        out: &mut [Self],
    ) {
        let operand = |data, shape| Operand { data, shape };
        let (a, b) = (operand(a, a_shape), operand(b, b_shape));
        elementwise::arithmetic(function, a, b, shape, out);
    }

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

impl Paired for i64 {
    fn arithmetic(
        function: Arithmetic,
        a: (&[Self], &[usize]),
        b: (&[Self], &[usize]),
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

impl Paired for u8 {
    fn arithmetic(
        function: Arithmetic,
        a: (&[Self], &[usize]),
        b: (&[Self], &[usize]),
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

    #[inline(always)]
    fn combined(combination: Combination, old: Self, new: Self) -> Self {
        match combination {
            Combination::Replace => new,
            Combination::Add | Combination::Largest => old | new,
            Combination::Multiply | Combination::Smallest => old & new,
        }
    }
}

/// `out[i] = condition[i] ? a[i] : b[i]`, after broadcasting to `shape`.
pub fn choose<T: Copy + Send + Sync>(
    (condition, condition_shape): (&[u8], &[usize]),
    (a, a_shape): (&[T], &[usize]),
    (b, b_shape): (&[T], &[usize]),
    shape: &[usize],
    out: &mut [T],
) {
    if [condition.len(), a.len(), b.len()] == [out.len(); 3] {
        let numbers = condition.par_chunks(GRAIN);
        let numbers = numbers.zip(a.par_chunks(GRAIN).zip(b.par_chunks(GRAIN)));
        let chunks = out.par_chunks_mut(GRAIN).zip(numbers);
        return chunks
            .run_parallel(|(out, (condition, (a, b)))| choose_chunk(condition, a, b, out));
    }
    let rank = shape.len();
    let steps = [condition_shape, a_shape, b_shape].map(|own| broadcast_strides(own, rank));
    let outer = &shape[..rank.saturating_sub(1)];
    by_rows(shape, out, |index, out| {
        let [c, x, y] = [0, 1, 2].map(|number| {
            let steps: &Strides = &steps[number];
            let from = start(outer, &steps[..outer.len()], index).unsigned_abs();
            (from, steps.last().copied().unwrap_or(0).unsigned_abs())
        });
        let pick = |condition: u8, a: T, b: T| if condition != 0 { a } else { b };
        let len = out.len();
        match [c.1, x.1, y.1] {
            [1, 1, 1] => {
                let (a, b) = (&a[x.0..][..len], &b[y.0..][..len]);
                choose_chunk(&condition[c.0..][..len], a, b, out);
            }
            [1, 1, 0] => {
                let b = b[y.0];
                zip_chunk(&condition[c.0..], &a[x.0..], out, &|c, a| pick(c, a, b));
            }
            [1, 0, 1] => {
                let a = a[x.0];
                zip_chunk(&condition[c.0..], &b[y.0..], out, &|c, b| pick(c, a, b));
            }
            _ => {
                for (at, out) in out.iter_mut().enumerate() {
                    let (a, b) = (a[x.0 + at * x.1], b[y.0 + at * y.1]);
                    *out = pick(condition[c.0 + at * c.1], a, b);
                }
            }
        }
    });
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
    if inner == 0 || out.is_empty() {
        return Ok(());
    }
    out.par_chunks_mut(inner)
        .enumerate()
        .with_min_len(GRAIN.div_ceil(inner))
        .run_parallel(|(row, out)| {
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
    let from = |row: usize| start(outer, &steps[..last], row).unsigned_abs();
    let own = |row: usize| &indices[row * index_shape[last]..][..index_shape[last]];
    if dim == last {
        // The indices are checked on the way.
        let all = AtomicBool::new(true);
        by_rows(index_shape, out, |row, out| {
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
    by_rows(index_shape, out, |row, out| {
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
pub fn scatter<T: Paired>(
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
        let read = start(outer, &from[..outer.len()], number).unsigned_abs();
        let at = start(outer, to, number).unsigned_abs();
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

/// Reduces elements along `dims` by `f`, beginning with `zero`.
pub fn fold<T: Copy>(
    input: &[T],
    shape: &[usize],
    dims: &[usize],
    (zero, f): (T, impl Fn(T, T) -> T),
    out: &mut [T],
) {
    out.fill(zero);
    let mut strides: Strides = SmallVec::from_elem(0, shape.len());
    let mut stride = 1;
    for at in (0..shape.len()).rev() {
        if !dims.contains(&at) {
            strides[at] = stride;
            stride *= shape[at] as isize;
        }
    }
    let row = shape.last().copied().unwrap_or(1);
    if row == 0 || input.is_empty() {
        return;
    }
    let outer = &shape[..shape.len().saturating_sub(1)];
    let own = strides.last().copied().unwrap_or(0).unsigned_abs();
    for (index, input) in input.chunks(row).enumerate() {
        let from = start(outer, &strides[..outer.len()], index).unsigned_abs();
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
pub(super) fn fold_row<T: Copy, F: Fn(T, T) -> T>(row: &[T], zero: T, f: &F) -> T {
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
