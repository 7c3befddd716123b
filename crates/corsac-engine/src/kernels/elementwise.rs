//! Functions of single elements and of pairs.

use multiversion::multiversion;
use rayon::prelude::*;
use rten_simd::SimdUnaryOp;
use rten_vecmath::{ApproxGelu, Elu, Erf, Exp, Gelu, LeakyRelu, Sigmoid, Silu, Tanh};
use smallvec::SmallVec;

use super::GRAIN;
use super::over::Over;
use crate::program::{Binary, Unary};
use crate::spread::Spread;

/// Applies `function` to each element.
pub fn unary(over: &Over<'_>, function: Unary, out: &mut [f32]) {
    over.pieces(out, GRAIN, |_, piece| unary_chunk(function, piece));
}

/// Applies `function` to each element of a piece that fits a cache.
pub(crate) fn unary_chunk(function: Unary, data: &mut [f32]) {
    match function {
        Unary::LeakyRelu(slope) => LeakyRelu { alpha: slope }.map_mut(data),
        // Near zero what is lost is the whole.
        Unary::Elu(alpha) => mended(
            data,
            |x| Elu { alpha }.map_mut(x),
            |x, y| match x <= 0.0 && x > -0.02 {
                true => alpha * x * (1.0 + x * (0.5 + x * (1.0 / 6.0))),
                false => y,
            },
        ),
        Unary::Sigmoid => Sigmoid {}.map_mut(data),
        Unary::Silu => Silu {}.map_mut(data),
        // Odd functions: a zero keeps its sign.
        Unary::Tanh => mended(data, |x| Tanh {}.map_mut(x), |x, y| y.copysign(x)),
        Unary::Gelu => Gelu {}.map_mut(data),
        Unary::GeluTanh => ApproxGelu {}.map_mut(data),
        Unary::Erf => mended(
            data,
            |x| Erf {}.map_mut(x),
            |x, y| match x.abs() < 0.02 {
                true => erf_near_zero(x),
                false => y,
            },
        ),
        Unary::Exp => Exp {}.map_mut(data),
        simple => simple_unary(simple, data),
    }
}

/// Applies a function that is wrong in some places: `mend` makes of an element and what came out what should.
fn mended(data: &mut [f32], function: impl Fn(&mut [f32]), mend: impl Fn(f32, f32) -> f32) {
    let mut given = [0.0; 256];
    for piece in data.chunks_mut(given.len()) {
        let given = &mut given[..piece.len()];
        given.copy_from_slice(piece);
        function(piece);
        for (y, &x) in piece.iter_mut().zip(&*given) {
            *y = mend(x, *y);
        }
    }
}

/// The first terms of the series, which are exact in single precision up to 0.02.
#[inline(always)]
fn erf_near_zero(x: f32) -> f32 {
    let square = x * x;
    std::f32::consts::FRAC_2_SQRT_PI * x * (1.0 - square * (1.0 / 3.0 - square * 0.1))
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn simple_unary(function: Unary, data: &mut [f32]) {
    macro_rules! map {
        ($f:expr) => {
            data.iter_mut().for_each(|x| *x = $f(*x))
        };
    }
    // Comparisons that are false for NaN keep it.
    match function {
        Unary::Relu => map!(|x: f32| if x < 0.0 { 0.0 } else { x }),
        Unary::Clamp(low, high) => map!(|x: f32| {
            let x = if x < low { low } else { x };
            if x > high { high } else { x }
        }),
        Unary::Hardswish => map!(|x: f32| x * gate(x)),
        Unary::Hardsigmoid => map!(gate),
        Unary::Sqrt => map!(f32::sqrt),
        Unary::Rsqrt => map!(|x: f32| 1.0 / x.sqrt()),
        Unary::Abs => map!(f32::abs),
        Unary::Affine(scale, offset) => map!(|x: f32| scale * x + offset),
        Unary::Power(2.0) => map!(|x: f32| x * x),
        Unary::Power(exponent) => map!(|x: f32| x.powf(exponent)),
        Unary::DivideInto(numerator) => map!(|x: f32| numerator / x),
        Unary::DivideBy(divisor) => map!(|x: f32| x / divisor),
        Unary::Log => map!(f32::ln),
        Unary::Sin => map!(f32::sin),
        Unary::Cos => map!(f32::cos),
        Unary::Tan => map!(f32::tan),
        Unary::Asin => map!(f32::asin),
        Unary::Acos => map!(f32::acos),
        Unary::Atan => map!(f32::atan),
        Unary::Sinh => map!(f32::sinh),
        Unary::Cosh => map!(f32::cosh),
        // The standard library's lose digits of small and large numbers in single precision.
        Unary::Asinh => map!(|x: f32| f64::from(x).asinh() as f32),
        Unary::Acosh => map!(|x: f32| f64::from(x).acosh() as f32),
        Unary::Atanh => map!(|x: f32| f64::from(x).atanh() as f32),
        Unary::Exp2 => map!(f32::exp2),
        Unary::Expm1 => map!(f32::exp_m1),
        Unary::Log1p => map!(f32::ln_1p),
        Unary::Log2 => map!(f32::log2),
        Unary::Log10 => map!(f32::log10),
        Unary::Floor => map!(f32::floor),
        Unary::Ceil => map!(f32::ceil),
        Unary::Round => map!(f32::round_ties_even),
        Unary::Trunc => map!(f32::trunc),
        Unary::Frac => map!(|x: f32| x - x.trunc()),
        Unary::Sign => map!(|x: f32| match x {
            x if x > 0.0 => 1.0,
            x if x < 0.0 => -1.0,
            _ => 0.0,
        }),
        Unary::Softplus(beta, threshold) => map!(|x: f32| {
            let scaled = x * beta;
            if scaled > threshold {
                x
            } else {
                scaled.exp().ln_1p() / beta
            }
        }),
        Unary::Mish => map!(|x: f32| x * x.exp().ln_1p().tanh()),
        Unary::Softsign => map!(|x: f32| x / (1.0 + x.abs())),
        Unary::LogSigmoid => map!(|x: f32| {
            let least = if x > 0.0 { 0.0 } else { x };
            least - (-x.abs()).exp().ln_1p()
        }),
        Unary::Softshrink(by) => map!(|x: f32| match x {
            x if x > by => x - by,
            x if x < -by => x + by,
            x if x.is_nan() => x,
            _ => 0.0,
        }),
        Unary::Hardshrink(by) => map!(|x: f32| if x >= -by && x <= by { 0.0 } else { x }),
        Unary::Tanhshrink => map!(|x: f32| x - x.tanh()),
        Unary::Threshold(least, value) => map!(|x: f32| if x <= least { value } else { x }),
        Unary::Celu(alpha) => map!(|x: f32| {
            if x > 0.0 {
                x
            } else {
                alpha * (x / alpha).exp_m1()
            }
        }),
        Unary::LeakyRelu(_)
        | Unary::Elu(_)
        | Unary::Sigmoid
        | Unary::Silu
        | Unary::Tanh
        | Unary::Gelu
        | Unary::GeluTanh
        | Unary::Erf
        | Unary::Exp => unreachable!("these have kernels of their own"),
    }
}

/// `min(max(x + 3, 0), 6) / 6`
#[inline(always)]
fn gate(x: f32) -> f32 {
    let x = x + 3.0;
    let x = if x < 0.0 { 0.0 } else { x };
    (if x > 6.0 { 6.0 } else { x }) / 6.0
}

/// `data[i] = function(data[i], other[i])`
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub fn binary_in_place(function: Binary, data: &mut [f32], other: &[f32]) {
    macro_rules! zip {
        ($f:expr) => {
            data.iter_mut()
                .zip(other)
                .for_each(|(x, &y)| *x = $f(*x, y))
        };
    }
    match function {
        Binary::Add => zip!(|x: f32, y: f32| x + y),
        Binary::Sub => zip!(|x: f32, y: f32| x - y),
        Binary::Mul => zip!(|x: f32, y: f32| x * y),
        Binary::Div => zip!(|x: f32, y: f32| x / y),
        Binary::Maximum => zip!(maximum),
        Binary::Minimum => zip!(|x: f32, y: f32| -maximum(-x, -y)),
    }
}

/// The larger one; NaN if one is.
#[inline(always)]
pub(crate) fn maximum(x: f32, y: f32) -> f32 {
    if x > y || x.is_nan() { x } else { y }
}

/// The same for any number of elements.
pub fn binary_over(function: Binary, data: &mut [f32], other: &[f32]) {
    data.par_chunks_mut(GRAIN)
        .zip(other.par_chunks(GRAIN))
        .spread(|(data, other)| binary_in_place(function, data, other));
}

/// `out[i] = function(a[i], b[i])`
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub(crate) fn binary_chunk(function: Binary, a: &[f32], b: &[f32], out: &mut [f32]) {
    macro_rules! zip {
        ($f:expr) => {
            out.iter_mut()
                .zip(a.iter().zip(b))
                .for_each(|(out, (&x, &y))| *out = $f(x, y))
        };
    }
    match function {
        Binary::Add => zip!(|x: f32, y: f32| x + y),
        Binary::Sub => zip!(|x: f32, y: f32| x - y),
        Binary::Mul => zip!(|x: f32, y: f32| x * y),
        Binary::Div => zip!(|x: f32, y: f32| x / y),
        Binary::Maximum => zip!(maximum),
        Binary::Minimum => zip!(|x: f32, y: f32| -maximum(-x, -y)),
    }
}

/// `data[i] = function(data[i], number)` with one of `numbers` for each row of `row` elements, or
/// `function(number, data[i])`.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub(crate) fn binary_rows(
    function: Binary,
    data: &mut [f32],
    numbers: &[f32],
    row: usize,
    reversed: bool,
) {
    macro_rules! rows {
        ($f:expr) => {
            for (row, &y) in data.chunks_mut(row.max(1)).zip(numbers) {
                if reversed {
                    row.iter_mut().for_each(|x| *x = $f(y, *x));
                } else {
                    row.iter_mut().for_each(|x| *x = $f(*x, y));
                }
            }
        };
    }
    match function {
        Binary::Add => rows!(|x: f32, y: f32| x + y),
        Binary::Sub => rows!(|x: f32, y: f32| x - y),
        Binary::Mul => rows!(|x: f32, y: f32| x * y),
        Binary::Div => rows!(|x: f32, y: f32| x / y),
        Binary::Maximum => rows!(maximum),
        Binary::Minimum => rows!(|x: f32, y: f32| -maximum(-x, -y)),
    }
}

/// An operand of [`binary`]: elements, and their steps along the dimensions of the result.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// Its elements.
    pub data: &'a [f32],
    /// Its sizes.
    pub shape: &'a [usize],
}

impl Operand<'_> {
    /// Steps along the dimensions of a result of rank `rank`: none where it is repeated.
    fn strides(&self, rank: usize) -> SmallVec<[usize; 6]> {
        let mut strides = SmallVec::from_elem(0, rank);
        let mut step = 1;
        for (at, &size) in self.shape.iter().enumerate().rev() {
            if size != 1 {
                strides[at + rank - self.shape.len()] = step;
            }
            step *= size;
        }
        strides
    }
}

/// `out[i] = function(a[i], b[i])`, after broadcasting to `shape`.
pub fn binary(function: Binary, a: Operand<'_>, b: Operand<'_>, shape: &[usize], out: &mut [f32]) {
    if a.data.len() == out.len() && b.data.len() == out.len() {
        let chunks = out.par_chunks_mut(GRAIN).zip(a.data.par_chunks(GRAIN));
        chunks
            .zip(b.data.par_chunks(GRAIN))
            .spread(|((out, a), b)| binary_chunk(function, a, b, out));
        return;
    }
    let Some((&row, outer)) = shape.split_last() else {
        return;
    };
    let (a_strides, b_strides) = (a.strides(shape.len()), b.strides(shape.len()));
    let start = |strides: &[usize], mut index: usize| {
        let mut offset = 0;
        for (at, &size) in outer.iter().enumerate().rev() {
            offset += index % size * strides[at];
            index /= size;
        }
        offset
    };
    let inner = shape.len() - 1;
    out.par_chunks_mut(row.max(1))
        .enumerate()
        .with_min_len(GRAIN.div_ceil(row.max(1)))
        .spread(|(index, out)| {
            let (at_a, at_b) = (start(&a_strides, index), start(&b_strides, index));
            match (a_strides[inner], b_strides[inner]) {
                (0, 0) => {
                    out.fill(a.data[at_a]);
                    binary_rows(function, out, &[b.data[at_b]], row, false);
                }
                (0, _) => {
                    out.copy_from_slice(&b.data[at_b..at_b + row]);
                    binary_rows(function, out, &[a.data[at_a]], row, true);
                }
                (_, 0) => {
                    out.copy_from_slice(&a.data[at_a..at_a + row]);
                    binary_rows(function, out, &[b.data[at_b]], row, false);
                }
                (_, _) => {
                    let (a, b) = (&a.data[at_a..][..row], &b.data[at_b..][..row]);
                    binary_chunk(function, a, b, out);
                }
            }
        });
}

/// `x * factor + offset` by channel: `out` has rows of `row` elements, the channels of which repeat.
pub fn channel_affine(
    over: &Over<'_>,
    out: &mut [f32],
    factors: &[f32],
    offsets: &[f32],
    row: usize,
) {
    over.pieces(out, row, |number, piece| {
        let channel = number % factors.len();
        simple_unary(Unary::Affine(factors[channel], offsets[channel]), piece);
    });
}
