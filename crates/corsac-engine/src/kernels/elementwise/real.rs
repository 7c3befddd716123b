//! Kernels of floating-point numbers that differ between single and double precision.

use std::cell::Cell;
use std::thread::LocalKey;

use multiversion::multiversion;

use super::{mapped, pairs, prelu, unary_from, whole};
use crate::aligned_buffer::AlignedBuffer;
use crate::kernels::functions::wide;
use crate::program::arithmetic::of_floats;
use crate::program::{Arithmetic, Float, Unary};

/// The floating-point types of elementwise kernels.
pub(crate) trait Real: Float {
    /// `data[i] = function(from[i])`, or in place.
    fn unary_from(function: Unary, from: Option<&[Self]>, data: &mut [Self]);

    /// `out[i] = function(a[i], b[i])`
    fn arithmetic_chunk(function: Arithmetic, a: &[Self], b: &[Self], out: &mut [Self]);

    /// `a` if `condition`, otherwise `b`: without a branch.
    fn selected(condition: bool, a: Self, b: Self) -> Self;

    /// Registers of the thread for [fused](crate::kernels::fused) steps, kept from one run to the next.
    fn registers() -> &'static LocalKey<Cell<Vec<AlignedBuffer<Self>>>>;
}

/// Implements what is the same but for the number of bits.
macro_rules! same {
    ($float:ty, $bits:ty) => {
        #[inline(always)]
        fn selected(condition: bool, a: Self, b: Self) -> Self {
            // By their bits: the compiler would select between addresses, and gather them.
            let mask = (0 as $bits).wrapping_sub(<$bits>::from(condition));
            Self::from_bits(a.to_bits() & mask | b.to_bits() & !mask)
        }

        fn registers() -> &'static LocalKey<Cell<Vec<AlignedBuffer<Self>>>> {
            thread_local! {
                static REGISTERS: Cell<Vec<AlignedBuffer<$float>>> = const { Cell::new(Vec::new()) };
            }
            &REGISTERS
        }
    };
}

impl Real for f32 {
    fn unary_from(function: Unary, from: Option<&[Self]>, data: &mut [Self]) {
        unary_from(function, from, data);
    }

    fn arithmetic_chunk(function: Arithmetic, a: &[Self], b: &[Self], out: &mut [Self]) {
        pairs::arithmetic_chunk(function, a, b, out);
    }

    same!(f32, u32);
}

impl Real for f64 {
    fn unary_from(function: Unary, from: Option<&[Self]>, data: &mut [Self]) {
        if !quick(function, from, data) {
            single_calls(function, from, data);
        }
    }

    fn arithmetic_chunk(function: Arithmetic, a: &[Self], b: &[Self], out: &mut [Self]) {
        arithmetic_chunk(function, a, b, out);
    }

    same!(f64, u64);
}

/// Computes a function that is vectorised. Returns false for others.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn quick(function: Unary, from: Option<&[f64]>, data: &mut [f64]) -> bool {
    macro_rules! map {
        ($($function:tt)*) => { mapped!(f64, from, data, $($function)*) };
    }
    // Comparisons with NaN are false, so that NaN is kept.
    match function {
        Unary::Relu => map!(|x: f64| if x < 0.0 { 0.0 } else { x }),
        Unary::Clamp(low, high) => map!(|x: f64| {
            let x = if x < low { low } else { x };
            if x > high { high } else { x }
        }),
        Unary::LeakyRelu(slope) => map!(|x: f64| prelu(x, slope)),
        Unary::Elu(alpha) => map!(|x: f64| {
            let below = alpha * wide::expm1_of_negative(if x > 0.0 { 0.0 } else { x });
            if x > 0.0 { x } else { below }
        }),
        Unary::Hardswish => map!(|x: f64| x * gate(x)),
        Unary::Hardsigmoid => map!(gate),
        Unary::Sigmoid => map!(wide::sigmoid),
        Unary::Silu => map!(wide::silu),
        Unary::Tanh => map!(wide::tanh),
        Unary::Tanhshrink => map!(|x: f64| x - wide::tanh(x)),
        Unary::Gelu => map!(wide::gelu),
        Unary::GeluTanh => map!(wide::gelu_tanh),
        Unary::Erf => map!(wide::erf),
        Unary::Exp => map!(wide::exp),
        Unary::Log => map!(wide::ln),
        Unary::Sqrt => map!(f64::sqrt),
        Unary::Rsqrt => map!(|x: f64| 1.0 / x.sqrt()),
        Unary::Abs => map!(f64::abs),
        Unary::Affine(scale, offset) => map!(|x: f64| scale * x + offset),
        Unary::DivideBy(divisor) => map!(|x: f64| x / divisor),
        Unary::DivideInto(numerator) => map!(|x: f64| numerator / x),
        Unary::Power(1.0) => map!(|x: f64| x),
        Unary::Power(2.0) => map!(|x: f64| x * x),
        // As in PyTorch.
        Unary::Power(3.0) => map!(|x: f64| x * x * x),
        Unary::Power(-1.0) => map!(|x: f64| 1.0 / x),
        Unary::Power(-2.0) => map!(|x: f64| 1.0 / (x * x)),
        Unary::Floor => map!(f64::floor),
        Unary::Ceil => map!(f64::ceil),
        Unary::Round => map!(f64::round_ties_even),
        Unary::Trunc => map!(f64::trunc),
        Unary::Frac => map!(|x: f64| x - x.trunc()),
        Unary::Sign => map!(|x: f64| match x {
            x if x > 0.0 => 1.0,
            x if x < 0.0 => -1.0,
            _ => 0.0,
        }),
        Unary::Softsign => map!(|x: f64| x / (1.0 + x.abs())),
        Unary::Softshrink(by) => map!(|x: f64| match x {
            x if x > by => x - by,
            x if x < -by => x + by,
            x if x.is_nan() => x,
            _ => 0.0,
        }),
        Unary::Hardshrink(by) => map!(|x: f64| if x >= -by && x <= by { 0.0 } else { x }),
        Unary::Threshold(least, value) => map!(|x: f64| if x <= least { value } else { x }),
        Unary::NanTo(other) => map!(|x: f64| if x.is_nan() { other } else { x }),
        _ => return false,
    }
    true
}

/// `min(max(x + 3, 0), 6) / 6`
#[inline(always)]
fn gate(x: f64) -> f64 {
    let x = x + 3.0;
    let x = if x < 0.0 { 0.0 } else { x };
    (if x > 6.0 { 6.0 } else { x }) / 6.0
}

/// Computes a function by a call for each number.
fn single_calls(function: Unary, from: Option<&[f64]>, data: &mut [f64]) {
    let f: fn(f64) -> f64 = match function {
        Unary::Sin => f64::sin,
        Unary::Cos => f64::cos,
        Unary::Tan => f64::tan,
        Unary::Asin => f64::asin,
        Unary::Acos => f64::acos,
        Unary::Atan => f64::atan,
        Unary::Sinh => f64::sinh,
        Unary::Cosh => f64::cosh,
        Unary::Asinh => wide::asinh,
        Unary::Acosh => wide::acosh,
        Unary::Atanh => wide::atanh,
        Unary::Exp2 => f64::exp2,
        Unary::Expm1 => f64::exp_m1,
        Unary::Log1p => f64::ln_1p,
        Unary::Log2 => f64::log2,
        Unary::Log10 => f64::log10,
        Unary::Mish => |x| x * wide::softplus(x).tanh(),
        Unary::LogSigmoid => |x| x.min(0.0) - (-x.abs()).exp().ln_1p(),
        Unary::Celu(alpha) => {
            return mapped!(f64, from, data, |x: f64| match x > 0.0 {
                true => x,
                false => alpha * (x / alpha).exp_m1(),
            });
        }
        Unary::Softplus(beta, threshold) => {
            return mapped!(f64, from, data, |x: f64| match beta * x {
                scaled if scaled > threshold => x,
                scaled => wide::softplus(scaled) / beta,
            });
        }
        Unary::Power(exponent) => {
            return match whole(exponent) {
                Some(whole) => mapped!(f64, from, data, |x: f64| x.powi(whole)),
                None => mapped!(f64, from, data, |x: f64| x.powf(exponent)),
            };
        }
        // Those above, and functions of other types.
        _ => unreachable!("functions of double precision are checked when a program is made"),
    };
    mapped!(f64, from, data, f);
}

/// Functions of two numbers.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn arithmetic_chunk(function: Arithmetic, a: &[f64], b: &[f64], out: &mut [f64]) {
    macro_rules! zip {
        ($f:expr) => {
            for ((out, &x), &y) in out.iter_mut().zip(a).zip(b) {
                *out = $f(x, y);
            }
        };
    }
    match function {
        Arithmetic::Add => zip!(|x: f64, y: f64| x + y),
        Arithmetic::Sub => zip!(|x: f64, y: f64| x - y),
        Arithmetic::Mul => zip!(|x: f64, y: f64| x * y),
        Arithmetic::TruncDivide => zip!(|x: f64, y: f64| (x / y).trunc()),
        function => zip!(of_floats(function)),
    }
}
