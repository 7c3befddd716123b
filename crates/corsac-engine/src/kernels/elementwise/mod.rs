//! Elementwise functions: of one number; of [pairs] and of three numbers.

pub mod generic;
mod pairs;
mod real;

use std::borrow::Cow;
use std::iter::repeat_n;

use multiversion::multiversion;

use crate::kernels::functions::{double, single};
use crate::kernels::result_tiles::ResultTiles;
use crate::program::{Half, Unary};

pub(crate) use real::Real;

pub use pairs::{Operand, binary, binary_in_place, binary_over};
pub(crate) use pairs::{
    arithmetic, binary_chunk, binary_rows, maximum, prelu, ternary, ternary_chunk,
};

/// Length of results that, with their operands, exceed the second-level cache, or nearly so. Stores
/// of 32 bytes reach memory and the third-level cache up to a tenth faster than those of 64 (AMD
/// EPYC, Zen 4), so that loops that do little else use AVX2.
const STREAMED: usize = 48 * 1024;

/// Applies `function` to each element.
pub fn unary(tiles: &ResultTiles<'_>, function: Unary, out: &mut [f32]) {
    match out.len() < STREAMED {
        true => tiles.elements(out, |from, piece| unary_from(function, from, piece)),
        false => tiles.elements(out, |from, piece| {
            if !streamed(function, from, piece) {
                unary_from(function, from, piece);
            }
        }),
    }
}

/// Applies `function` to each element of a piece that fits a cache.
pub(crate) fn unary_chunk(function: Unary, data: &mut [f32]) {
    unary_from(function, None, data);
}

/// `data[i] = function(from[i])`, or in place.
pub(crate) fn unary_from(function: Unary, from: Option<&[f32]>, data: &mut [f32]) {
    if !partial(function, from, data) {
        total(function, from, data);
    }
}

/// Expands `$do` for functions with a fast version that is valid for some numbers only: with its
/// domain, itself, and the version for other numbers. `$otherwise` for all other functions.
macro_rules! partial_functions {
    ($function:expr, $do:ident, $otherwise:expr) => {
        match $function {
            Unary::Exp => $do!(single::is_exponent, single::exp, double::exp),
            Unary::Exp2 => $do!(single::is_exponent_of_2, single::exp2, double::exp2),
            Unary::Sigmoid => $do!(single::is_exponent, single::sigmoid, double::sigmoid),
            Unary::Silu => $do!(single::is_exponent, single::silu, double::silu),
            Unary::Log => $do!(single::is_usual, single::ln, double::ln),
            Unary::Log2 => $do!(single::is_usual, single::log2, double::log2),
            Unary::Log10 => $do!(single::is_usual, single::log10, double::log10),
            Unary::Log1p => $do!(single::is_usual_with_1, single::ln_1p, double::ln_1p),
            Unary::Atanh => $do!(single::is_below_1, single::atanh, double::atanh),
            Unary::Sin => $do!(single::is_angle, single::sin, double::sin),
            Unary::Cos => $do!(single::is_angle, single::cos, double::cos),
            Unary::Tan => $do!(single::is_angle, single::tan, double::tan),
            Unary::Rsqrt => $do!(single::is_usual, single::rsqrt, double::rsqrt),
            Unary::Power(exponent)
                if (exponent as f32).is_finite() && whole(exponent).is_none() =>
            {
                let exponent = exponent as f32;
                let of_negative = sign_of_negative(exponent);
                $do!(
                    is_usual_of_any_sign,
                    |x: f32| {
                        let sign = if x < 0.0 { of_negative } else { 1.0 };
                        sign * double::power_of_usual(x.abs(), exponent)
                    },
                    |x: f32| double::power(x, exponent)
                )
            }
            _ => $otherwise,
        }
    };
}

#[inline(always)]
fn is_usual_of_any_sign(x: f32) -> bool {
    single::is_usual(x.abs())
}

/// Sign of a power of a negative number: the factor of the power of its absolute value.
fn sign_of_negative(exponent: f32) -> f32 {
    match exponent % 2.0 {
        0.0 => 1.0,
        1.0 | -1.0 => -1.0,
        _ => f32::NAN,
    }
}

/// The exponent of a power that is a product of a few factors.
#[inline(always)]
pub(super) fn whole(exponent: f64) -> Option<i32> {
    const MOST: f64 = 32.0;
    (exponent.fract() == 0.0 && exponent.abs() <= MOST).then_some(exponent as i32)
}

/// `data[i] = from[i] ^ exponent`, or in place: by products in double precision, which do not
/// overflow where the power is a number of single precision.
#[inline(always)]
fn whole_powers(exponent: i32, from: Option<&[f32]>, data: &mut [f32]) {
    let power = |piece: &mut [f32; PIECE]| {
        let mut factors = piece.map(f64::from);
        let mut products = [1.0; PIECE];
        let mut rest = exponent.unsigned_abs();
        while rest > 0 {
            if rest % 2 == 1 {
                let pairs = products.iter_mut().zip(&factors);
                pairs.for_each(|(product, factor)| *product *= factor);
            }
            rest /= 2;
            factors.iter_mut().for_each(|factor| *factor *= *factor);
        }
        for (x, product) in piece.iter_mut().zip(products) {
            *x = (if exponent < 0 { 1.0 / product } else { product }) as f32;
        }
    };
    if let Some(from) = from {
        data.copy_from_slice(from);
    }
    let (pieces, rest) = data.as_chunks_mut::<PIECE>();
    pieces.iter_mut().for_each(power);
    let mut last = [1.0; PIECE];
    last[..rest.len()].copy_from_slice(rest);
    power(&mut last);
    rest.copy_from_slice(&last[..rest.len()]);
}

/// Number of elements for which one test decides whether the fast version is valid.
const PIECE: usize = 64;

/// Computes a function with a fast version for some numbers only. Returns false for other
/// functions.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn partial(function: Unary, from: Option<&[f32]>, data: &mut [f32]) -> bool {
    macro_rules! quick {
        ($known:path, $quick:expr, $other:expr) => {{
            let (pieces, rest) = data.as_chunks_mut::<PIECE>();
            match from {
                None => {
                    for piece in pieces {
                        match all(piece, $known) {
                            true => for_each(None, piece, $quick),
                            false => partial_of_any(function, None, piece),
                        }
                    }
                    partial_of_any(function, None, rest);
                }
                Some(from) => {
                    let (from, from_rest) = from.as_chunks::<PIECE>();
                    for (piece, from) in pieces.iter_mut().zip(from) {
                        match all(from, $known) {
                            true => for_each(Some(from), piece, $quick),
                            false => partial_of_any(function, Some(from), piece),
                        }
                    }
                    partial_of_any(function, Some(from_rest), rest);
                }
            }
        }};
    }
    partial_functions!(function, quick, return false);
    true
}

/// Whether the fast version is valid for all elements.
#[inline(always)]
fn all(piece: &[f32; PIECE], known: impl Fn(f32) -> bool) -> bool {
    let mut all = true;
    for &x in piece {
        all &= known(x);
    }
    all
}

/// The version for pieces with other numbers, a function of its own so that the fast one has the
/// registers.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn partial_of_any(function: Unary, from: Option<&[f32]>, data: &mut [f32]) {
    macro_rules! either {
        ($known:path, $quick:expr, $other:expr) => {
            for_each(
                from,
                data,
                #[inline(always)]
                |x| if $known(x) { ($quick)(x) } else { ($other)(x) },
            )
        };
    }
    partial_functions!(function, either, unreachable!("it is quick for all"));
}

/// Applies a closure, which is inlined into the loop, or a function.
macro_rules! mapped {
    ($type:ty, $from:expr, $data:expr, |$x:ident: $own:ty| $f:expr) => {
        $crate::kernels::elementwise::for_each(
            $from,
            $data,
            #[inline(always)]
            |$x: $type| $f,
        )
    };
    ($type:ty, $from:expr, $data:expr, $f:path) => {
        $crate::kernels::elementwise::for_each::<$type>($from, $data, $f)
    };
}
pub(super) use mapped;

/// Computes a function with one version for all numbers.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn total(function: Unary, from: Option<&[f32]>, data: &mut [f32]) {
    if brief(function, from, data) {
        return;
    }
    macro_rules! map {
        ($($function:tt)*) => { mapped!(f32, from, data, $($function)*) };
    }
    match function {
        Unary::Tanh => map!(single::tanh),
        Unary::Tanhshrink => map!(single::tanhshrink),
        Unary::Erf => map!(single::erf),
        Unary::Gelu => map!(single::gelu),
        Unary::GeluTanh => map!(single::gelu_tanh),
        Unary::Softplus(1.0, threshold) => {
            let threshold = threshold as f32;
            map!(|x: f32| single::softplus(x, 1.0, threshold))
        }
        Unary::Softplus(beta, threshold) => {
            let beta = beta as f32;
            let threshold = threshold as f32;
            map!(|x: f32| single::softplus(x, beta, threshold))
        }
        Unary::Elu(alpha) => {
            let alpha = alpha as f32;
            map!(|x: f32| single::elu(x, alpha))
        }
        Unary::Asin => map!(single::asin),
        Unary::Acos => map!(single::acos),
        Unary::Atan => map!(single::atan),
        Unary::Power(exponent) => match whole(exponent) {
            Some(exponent) => whole_powers(exponent, from, data),
            None => {
                let exponent = exponent as f32;
                map!(|x: f32| double::power(x, exponent))
            }
        },
        Unary::Sinh => map!(double::sinh),
        Unary::Cosh => map!(double::cosh),
        Unary::Asinh => map!(double::asinh),
        Unary::Acosh => map!(double::acosh),
        Unary::Expm1 => map!(double::expm1),
        Unary::Mish => map!(double::mish),
        Unary::LogSigmoid => map!(double::log_sigmoid),
        Unary::Celu(alpha) => {
            let alpha = alpha as f32;
            map!(|x: f32| double::celu(x, alpha))
        }
        _ => unreachable!("it is not the same for all"),
    }
}

/// Computes a function of one or a few instructions, for long results. Returns false for other
/// functions.
#[multiversion(targets("x86_64+avx2+fma"))]
fn streamed(function: Unary, from: Option<&[f32]>, data: &mut [f32]) -> bool {
    brief(function, from, data)
}

/// Computes a function of one or a few instructions. Returns false for other functions.
#[inline(always)]
fn brief(function: Unary, from: Option<&[f32]>, data: &mut [f32]) -> bool {
    macro_rules! map {
        ($($function:tt)*) => { mapped!(f32, from, data, $($function)*) };
    }
    // Comparisons with NaN are false, so that NaN is kept.
    match function {
        Unary::Relu => map!(|x: f32| if x < 0.0 { 0.0 } else { x }),
        Unary::Clamp(low, high) => {
            let (low, high) = (low as f32, high as f32);
            map!(|x: f32| {
                let x = if x < low { low } else { x };
                if x > high { high } else { x }
            })
        }
        Unary::Hardswish => map!(|x: f32| x * gate(x)),
        Unary::Hardsigmoid => map!(gate),
        Unary::Sqrt => map!(f32::sqrt),
        Unary::Abs => map!(f32::abs),
        Unary::Affine(scale, offset) => {
            let scale = scale as f32;
            let offset = offset as f32;
            map!(|x: f32| scale * x + offset)
        }
        Unary::Power(2.0) => map!(|x: f32| x * x),
        // As in PyTorch.
        Unary::Power(3.0) => map!(|x: f32| x * x * x),
        Unary::Power(1.0) => map!(|x: f32| x),
        Unary::Power(-1.0) => map!(|x: f32| 1.0 / x),
        Unary::Power(-2.0) => map!(|x: f32| 1.0 / (x * x)),
        Unary::DivideInto(numerator) => {
            let numerator = numerator as f32;
            map!(|x: f32| numerator / x)
        }
        Unary::DivideBy(divisor) => {
            let divisor = divisor as f32;
            map!(|x: f32| x / divisor)
        }
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
        Unary::Softsign => map!(|x: f32| x / (1.0 + x.abs())),
        Unary::Softshrink(by) => {
            let by = by as f32;
            map!(|x: f32| match x {
                x if x > by => x - by,
                x if x < -by => x + by,
                x if x.is_nan() => x,
                _ => 0.0,
            })
        }
        Unary::Hardshrink(by) => {
            let by = by as f32;
            map!(|x: f32| if x >= -by && x <= by { 0.0 } else { x })
        }
        Unary::Threshold(least, value) => {
            let least = least as f32;
            let value = value as f32;
            map!(|x: f32| if x <= least { value } else { x })
        }
        Unary::LeakyRelu(slope) => {
            let slope = slope as f32;
            map!(|x: f32| prelu(x, slope))
        }
        Unary::RoundTo(Half::Bf16) => map!(|x: f32| Half::Bf16.nearest(x)),
        Unary::RoundTo(Half::F16) => map!(|x: f32| Half::F16.nearest(x)),
        Unary::NanTo(other) => {
            let other = other as f32;
            map!(|x: f32| if x.is_nan() { other } else { x })
        }
        Unary::Quantise(levels) => map!(|x: f32| levels.of(x)),
        Unary::Dequantise { zero, scale } => map!(|x: f32| (x - zero) * scale),
        _ => return false,
    }
    true
}

/// `data[i] = function(from[i])`, or in place.
#[inline(always)]
pub(super) fn for_each<T: Copy>(from: Option<&[T]>, data: &mut [T], function: impl Fn(T) -> T) {
    match from {
        None => {
            for x in data {
                *x = function(*x);
            }
        }
        Some(from) => {
            for (y, &x) in data.iter_mut().zip(from) {
                *y = function(x);
            }
        }
    }
}

/// `min(max(x + 3, 0), 6) / 6`
#[inline(always)]
fn gate(x: f32) -> f32 {
    let x = x + 3.0;
    let x = if x < 0.0 { 0.0 } else { x };
    (if x > 6.0 { 6.0 } else { x }) / 6.0
}

/// Channels of fewer elements have no loop of their own.
const SHORT: usize = 32;

/// `x * factor + offset` by channel: `out` has rows of `row` elements, whose channels repeat.
pub fn channel_affine(
    tiles: &ResultTiles<'_>,
    out: &mut [f32],
    factors: &[f32],
    offsets: &[f32],
    row: usize,
) {
    if row < SHORT {
        let (factors, offsets) = (for_elements(factors, row), for_elements(offsets, row));
        let all = factors.len();
        let several = (super::result_tiles::TILE / all.max(1)).max(1);
        return tiles.rows(out, several * all, 1, |rows| {
            affine(rows, &factors, &offsets)
        });
    }
    tiles.pieces_from(out, row, |number, from, piece| {
        let channel = number % factors.len();
        unary_from(
            Unary::Affine(f64::from(factors[channel]), f64::from(offsets[channel])),
            from,
            piece,
        );
    });
}

/// Repeats each number `count` times.
fn for_elements(numbers: &[f32], count: usize) -> Cow<'_, [f32]> {
    match count {
        1 => Cow::Borrowed(numbers),
        _ => numbers
            .iter()
            .flat_map(|&number| repeat_n(number, count))
            .collect(),
    }
}

/// `x * factor + offset` for each element of rows.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub(super) fn affine(rows: &mut [f32], factors: &[f32], offsets: &[f32]) {
    for row in rows.chunks_exact_mut(factors.len()) {
        for (x, (factor, offset)) in row.iter_mut().zip(factors.iter().zip(offsets)) {
            *x = *x * factor + offset;
        }
    }
}
