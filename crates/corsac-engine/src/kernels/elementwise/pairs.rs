//! Functions of two and of three numbers.

use multiversion::multiversion;
use rayon::prelude::*;
use smallvec::SmallVec;

use crate::kernels::GRAIN;
use crate::kernels::functions::{double, single};
use crate::kernels::rows::broadcast_strides;
use crate::parallel::Parallel;
use crate::program::Binary;
use crate::program::arithmetic::{floor_divide, of_floats};
use crate::program::fused::Access;
use crate::program::{Arithmetic, Float, Ternary};

use super::{Real, STREAMED};

/// Expands `$do` with the closure of `$function`.
macro_rules! binary_functions {
    ($function:expr, $do:ident) => {
        match $function {
            Binary::Add => $do!(|x: T, y: T| x + y),
            Binary::Sub => $do!(|x: T, y: T| x - y),
            Binary::Mul => $do!(|x: T, y: T| x * y),
            Binary::Div => $do!(|x: T, y: T| x / y),
            Binary::Maximum => $do!(maximum),
            Binary::Minimum => $do!(|x: T, y: T| -maximum(-x, -y)),
            Binary::Prelu => $do!(prelu),
        }
    };
}

/// `data[i] = function(data[i], other[i])`
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub fn binary_in_place<T: Float>(function: Binary, data: &mut [T], other: &[T]) {
    macro_rules! zip {
        ($f:expr) => {
            data.iter_mut()
                .zip(other)
                .for_each(|(x, &y)| *x = $f(*x, y))
        };
    }
    binary_functions!(function, zip);
}

/// The larger number; NaN if one is.
#[inline(always)]
pub(crate) fn maximum<T: Float>(x: T, y: T) -> T {
    if x > y || x.is_nan() { x } else { y }
}

/// `x` if positive, otherwise times the slope.
#[inline(always)]
pub(crate) fn prelu<T: Float>(x: T, slope: T) -> T {
    let scaled = x * slope;
    if x > T::of(0.0) { x } else { scaled }
}

/// [`binary_in_place`] for any number of elements, on several threads.
pub fn binary_over<T: Float>(function: Binary, data: &mut [T], other: &[T]) {
    data.par_chunks_mut(GRAIN)
        .zip(other.par_chunks(GRAIN))
        .run_parallel(|(data, other)| binary_in_place(function, data, other));
}

/// `out[i] = function(a[i], b[i])`
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub(crate) fn binary_chunk<T: Float>(function: Binary, a: &[T], b: &[T], out: &mut [T]) {
    pairs(function, a, b, out);
}

/// [`binary_chunk`] for [long](STREAMED) results.
#[multiversion(targets("x86_64+avx2+fma"))]
fn binary_streamed<T: Float>(function: Binary, a: &[T], b: &[T], out: &mut [T]) {
    pairs(function, a, b, out);
}

#[inline(always)]
fn pairs<T: Float>(function: Binary, a: &[T], b: &[T], out: &mut [T]) {
    macro_rules! zip {
        ($f:expr) => {
            out.iter_mut()
                .zip(a.iter().zip(b))
                .for_each(|(out, (&x, &y))| *out = $f(x, y))
        };
    }
    binary_functions!(function, zip);
}

/// `data[i] = function(from[i], number)`, or in place, with one of `numbers` for each row of `row`
/// elements; or `function(number, from[i])`.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub(crate) fn binary_rows<T: Float>(
    function: Binary,
    from: Option<&[T]>,
    data: &mut [T],
    numbers: &[T],
    row: usize,
    reversed: bool,
) {
    let row = row.max(1);
    macro_rules! map {
        ($f:expr) => {
            match from {
                None => {
                    for (own, &number) in data.chunks_mut(row).zip(numbers) {
                        own.iter_mut().for_each(|x| *x = $f(*x, number));
                    }
                }
                Some(from) => {
                    let rows = data.chunks_mut(row).zip(from.chunks(row));
                    for ((own, from), &number) in rows.zip(numbers) {
                        let pairs = own.iter_mut().zip(from);
                        pairs.for_each(|(to, &x)| *to = $f(x, number));
                    }
                }
            }
        };
    }
    macro_rules! rows {
        ($f:expr) => {
            match reversed {
                false => map!($f),
                true => map!(|x: T, number: T| $f(number, x)),
            }
        };
    }
    binary_functions!(function, rows);
}

/// An operand that is broadcast to a result.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a, T = f32> {
    /// Its elements.
    pub data: &'a [T],
    /// Its sizes.
    pub shape: &'a [usize],
}

impl<T> Operand<'_, T> {
    /// Strides along the dimensions of a result of rank `rank`: 0 where it is broadcast.
    fn strides(&self, rank: usize) -> SmallVec<[usize; 6]> {
        let strides = broadcast_strides(self.shape, rank);
        strides.iter().map(|stride| stride.unsigned_abs()).collect()
    }

    /// Sizes of a result, and the strides of both operands; dimensions are merged where that is
    /// possible for both.
    fn together(self, other: Self, shape: &[usize]) -> (Steps, Steps, Steps) {
        let (a, b) = (self.strides(shape.len()), other.strides(shape.len()));
        let (mut sizes, mut own, mut others) = (Steps::new(), Steps::new(), Steps::new());
        for at in (0..shape.len()).rev().filter(|&at| shape[at] != 1) {
            if let Some(last) = sizes.len().checked_sub(1)
                // Rows that are long enough are not merged, so that threads divide them.
                && sizes[last] < GRAIN
                && a[at] == own[last] * sizes[last]
                && b[at] == others[last] * sizes[last]
            {
                sizes[last] *= shape[at];
                continue;
            }
            sizes.push(shape[at]);
            own.push(a[at]);
            others.push(b[at]);
        }
        if sizes.is_empty() {
            sizes.push(1);
            own.push(0);
            others.push(0);
        }
        for all in [&mut sizes, &mut own, &mut others] {
            all.reverse();
        }
        (sizes, own, others)
    }
}

/// Sizes or strides of dimensions.
type Steps = SmallVec<[usize; 6]>;

/// `out[i] = function(a[i], b[i])`, after broadcasting to `shape`.
pub fn binary<T: Float>(
    function: Binary,
    a: Operand<'_, T>,
    b: Operand<'_, T>,
    shape: &[usize],
    out: &mut [T],
) {
    if a.data.len() == out.len() && b.data.len() == out.len() {
        let is_long = out.len() >= STREAMED;
        let chunks = out.par_chunks_mut(GRAIN).zip(a.data.par_chunks(GRAIN));
        chunks
            .zip(b.data.par_chunks(GRAIN))
            .run_parallel(|((out, a), b)| match is_long {
                true => binary_streamed(function, a, b, out),
                false => binary_chunk(function, a, b, out),
            });
        return;
    }
    let (shape, a_strides, b_strides) = a.together(b, shape);
    let Some((&row, outer)) = shape.split_last() else {
        return;
    };
    let inner = shape.len() - 1;
    let (a, b) = ((a.data, a_strides[inner]), (b.data, b_strides[inner]));
    // Several rows at a time: choosing the loop takes as long as a short row.
    let together = (GRAIN / 2 / row.max(1)).max(1);
    let is_long = out.len() >= STREAMED;
    out.par_chunks_mut((together * row).max(1))
        .enumerate()
        .with_min_len(2)
        .run_parallel(|(index, out)| {
            let starts = Starts::from(index * together, outer, [&a_strides, &b_strides]);
            match is_long {
                true => binary_lines_streamed(function, a, b, starts, row, out),
                false => binary_lines(function, a, b, starts, row, out),
            }
        });
}

/// Offsets of the rows of two tensors that are broadcast to one shape.
struct Starts<'a> {
    outer: &'a [usize],
    strides: [&'a [usize]; 2],
    index: Steps,
    at: [usize; 2],
}

impl<'a> Starts<'a> {
    /// The offsets of row `first` and all after it, of a result whose dimensions but the last are
    /// `outer`.
    fn from(first: usize, outer: &'a [usize], strides: [&'a [usize]; 2]) -> Self {
        let mut index: Steps = SmallVec::from_elem(0, outer.len());
        let (mut rest, mut at) = (first, [0; 2]);
        for (dim, &size) in outer.iter().enumerate().rev() {
            index[dim] = rest % size;
            rest /= size;
            at = [0, 1].map(|own| at[own] + index[dim] * strides[own][dim]);
        }
        Self {
            outer,
            strides,
            index,
            at,
        }
    }
}

impl Iterator for Starts<'_> {
    type Item = (usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, usize)> {
        let own = (self.at[0], self.at[1]);
        if let ([_], [a, b]) = (self.outer, self.strides.map(|own| own.first())) {
            self.at = [
                self.at[0] + a.copied().unwrap_or(0),
                self.at[1] + b.copied().unwrap_or(0),
            ];
            return Some(own);
        }
        for dim in (0..self.outer.len()).rev() {
            let steps = self.strides.map(|strides| strides[dim]);
            self.index[dim] += 1;
            if self.index[dim] < self.outer[dim] {
                self.at = [0, 1].map(|own| self.at[own] + steps[own]);
                break;
            }
            self.at = [0, 1].map(|own| self.at[own] - steps[own] * (self.outer[dim] - 1));
            self.index[dim] = 0;
        }
        Some(own)
    }
}

/// `function` of elements of `a` and `b`, for each row of `row` elements, with the offsets of the
/// row in both; the strides of both are 0 or 1.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn binary_lines<T: Float, S: Iterator<Item = (usize, usize)>>(
    function: Binary,
    a: (&[T], usize),
    b: (&[T], usize),
    starts: S,
    row: usize,
    out: &mut [T],
) {
    lines(function, a, b, starts, row, out);
}

/// [`binary_lines`] for [long](STREAMED) results.
#[multiversion(targets("x86_64+avx2+fma"))]
fn binary_lines_streamed<T: Float, S: Iterator<Item = (usize, usize)>>(
    function: Binary,
    a: (&[T], usize),
    b: (&[T], usize),
    starts: S,
    row: usize,
    out: &mut [T],
) {
    lines(function, a, b, starts, row, out);
}

#[inline(always)]
fn lines<T: Float, S: Iterator<Item = (usize, usize)>>(
    function: Binary,
    (a, a_step): (&[T], usize),
    (b, b_step): (&[T], usize),
    starts: S,
    row: usize,
    out: &mut [T],
) {
    macro_rules! lines {
        ($f:expr) => {{
            let rows = out.chunks_mut(row).zip(starts);
            match (a_step, b_step) {
                (0, 0) => rows.for_each(|(out, (at_a, at_b))| out.fill($f(a[at_a], b[at_b]))),
                (0, _) => {
                    for (out, (at_a, at_b)) in rows {
                        let x = a[at_a];
                        let pairs = out.iter_mut().zip(&b[at_b..][..row]);
                        pairs.for_each(|(out, &y)| *out = $f(x, y));
                    }
                }
                (_, 0) => {
                    for (out, (at_a, at_b)) in rows {
                        let y = b[at_b];
                        let pairs = out.iter_mut().zip(&a[at_a..][..row]);
                        pairs.for_each(|(out, &x)| *out = $f(x, y));
                    }
                }
                (_, _) => {
                    for (out, (at_a, at_b)) in rows {
                        let pairs = a[at_a..][..row].iter().zip(&b[at_b..][..row]);
                        let all = out.iter_mut().zip(pairs);
                        all.for_each(|(out, (&x, &y))| *out = $f(x, y));
                    }
                }
            }
        }};
    }
    binary_functions!(function, lines);
}

/// Functions of two numbers that are not in [`Binary`]: `out[i] = function(a[i], b[i])`.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub(crate) fn arithmetic_chunk(function: Arithmetic, a: &[f32], b: &[f32], out: &mut [f32]) {
    macro_rules! zip {
        ($f:expr, $a:expr, $b:expr, $out:expr) => {
            for ((out, &x), &y) in $out.iter_mut().zip($a).zip($b) {
                *out = $f(x, y);
            }
        };
        ($f:expr) => {
            zip!($f, a, b, out)
        };
    }
    // Quotients that are too large for the fast version, infinities and NaN are rare.
    macro_rules! quotients {
        ($f:expr) => {
            let pieces = a.chunks(64).zip(b.chunks(64)).zip(out.chunks_mut(64));
            for ((a, b), out) in pieces {
                let known = |known, (&a, &b)| known & double::is_small_quotient(a, b);
                match a.iter().zip(b).fold(true, known) {
                    true => zip!($f, a, b, out),
                    false => zip!(of_floats(function), a, b, out),
                }
            }
        };
    }
    match function {
        Arithmetic::Add => zip!(|x: f32, y: f32| x + y),
        Arithmetic::Sub => zip!(|x: f32, y: f32| x - y),
        Arithmetic::Mul => zip!(|x: f32, y: f32| x * y),
        Arithmetic::Maximum => zip!(maximum),
        Arithmetic::Minimum => zip!(|x: f32, y: f32| -maximum(-x, -y)),
        Arithmetic::TruncDivide => zip!(|x: f32, y: f32| (x / y).trunc()),
        Arithmetic::Fmod => {
            quotients!(double::fmod);
        }
        Arithmetic::Remainder => {
            quotients!(double::remainder);
        }
        Arithmetic::FloorDivide => {
            quotients!(|x, y| floor_divide(x, y, double::fmod(x, y)));
        }
        Arithmetic::Power => {
            let pieces = a.chunks(64).zip(b.chunks(64)).zip(out.chunks_mut(64));
            for ((a, b), out) in pieces {
                let mut known = true;
                for (&x, &y) in a.iter().zip(b) {
                    known &= single::is_usual(x) & y.is_finite();
                }
                match known {
                    true => zip!(double::power_of_usual, a, b, out),
                    false => zip!(double::power, a, b, out),
                }
            }
        }
        Arithmetic::Atan2 => zip!(double::atan2),
        Arithmetic::Hypot => zip!(double::hypot),
        Arithmetic::Fmax
        | Arithmetic::Fmin
        | Arithmetic::And
        | Arithmetic::Or
        | Arithmetic::Xor => zip!(of_floats(function)),
    }
}

/// [`arithmetic_chunk`] after broadcasting to `shape`.
pub(crate) fn arithmetic<T: Real>(
    function: Arithmetic,
    a: Operand<'_, T>,
    b: Operand<'_, T>,
    shape: &[usize],
    out: &mut [T],
) {
    /// Elements of a row that are computed at a time.
    const PIECE: usize = 512;
    if a.data.len() == out.len() && b.data.len() == out.len() {
        let chunks = out.par_chunks_mut(GRAIN).zip(a.data.par_chunks(GRAIN));
        return chunks
            .zip(b.data.par_chunks(GRAIN))
            .run_parallel(|((out, a), b)| T::arithmetic_chunk(function, a, b, out));
    }
    let [a_access, b_access] = [a, b].map(|own| Access::of(own.shape, shape));
    out.par_chunks_mut(PIECE)
        .enumerate()
        .with_min_len(GRAIN / PIECE)
        .run_parallel(|(number, out)| {
            let (mut x, mut y) = ([T::default(); PIECE], [T::default(); PIECE]);
            let (x, y) = (&mut x[..out.len()], &mut y[..out.len()]);
            a_access.read(a.data, number * PIECE, x, |x| x);
            b_access.read(b.data, number * PIECE, y, |y| y);
            T::arithmetic_chunk(function, x, y, out);
        });
}

/// `out[i] = function(a[i], b[i], c[i])`
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub(crate) fn ternary_chunk<T: Float>(function: Ternary, operands: [&[T]; 3], out: &mut [T]) {
    triples(function, operands, out);
}

/// [`ternary_chunk`] for [long](STREAMED) results.
#[multiversion(targets("x86_64+avx2+fma"))]
fn ternary_streamed<T: Float>(function: Ternary, operands: [&[T]; 3], out: &mut [T]) {
    triples(function, operands, out);
}

#[inline(always)]
fn triples<T: Float>(function: Ternary, [a, b, c]: [&[T]; 3], out: &mut [T]) {
    macro_rules! zip {
        ($f:expr) => {
            for (out, (&a, (&b, &c))) in out.iter_mut().zip(a.iter().zip(b.iter().zip(c))) {
                *out = $f(a, b, c);
            }
        };
    }
    match function {
        // Source: `lerp` of PyTorch, from the nearer end.
        Ternary::Lerp => zip!(|start: T, end: T, weight: T| {
            let distance = end - start;
            let (near, far) = (
                start + weight * distance,
                end - distance * (T::of(1.0) - weight),
            );
            if weight.abs() < T::of(0.5) { near } else { far }
        }),
        Ternary::AddProduct(1.0) => zip!(|a: T, b: T, c: T| a + b * c),
        Ternary::AddProduct(by) => {
            let by = T::of(by);
            zip!(|a: T, b: T, c: T| a + by * (b * c));
        }
        Ternary::AddQuotient(by) => {
            let by = T::of(by);
            zip!(|a: T, b: T, c: T| a + by * (b / c));
        }
    }
}

/// [`ternary_chunk`] after broadcasting to `shape`.
pub(crate) fn ternary<T: Float>(
    function: Ternary,
    operands: [Operand<'_, T>; 3],
    shape: &[usize],
    out: &mut [T],
) {
    let [a, b, c] = operands.map(|own| own.data);
    let out_len = out.len();
    if [a.len(), b.len(), c.len()] == [out_len; 3] {
        let chunks = out.par_chunks_mut(GRAIN).zip(a.par_chunks(GRAIN));
        let others = b.par_chunks(GRAIN).zip(c.par_chunks(GRAIN));
        let is_long = out_len >= STREAMED;
        return chunks
            .zip(others)
            .run_parallel(|((out, a), (b, c))| match is_long {
                true => ternary_streamed(function, [a, b, c], out),
                false => ternary_chunk(function, [a, b, c], out),
            });
    }
    /// Elements that are computed at a time.
    const PIECE: usize = 512;
    let accesses = operands.map(|own| Access::of(own.shape, shape));
    out.par_chunks_mut(PIECE)
        .enumerate()
        .with_min_len(GRAIN / PIECE)
        .run_parallel(|(number, out)| {
            let mut read = [[T::default(); PIECE]; 3];
            for (access, (operand, to)) in accesses.iter().zip(operands.iter().zip(&mut read)) {
                access.read(operand.data, number * PIECE, &mut to[..out.len()], |x| x);
            }
            let [a, b, c] = &read;
            let len = out.len();
            ternary_chunk(function, [&a[..len], &b[..len], &c[..len]], out);
        });
}
