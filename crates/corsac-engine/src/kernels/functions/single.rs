//! Functions in single precision, for those that programs use most: a vector holds twice as many
//! numbers.
//!
//! Coefficients minimise the largest error (Remez), and are rounded to single precision one after
//! another; comments give the error of the exact ones. Some functions are valid for a part of the
//! numbers only, as the comments say; other numbers are left to the functions in double precision.

use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_PI, FRAC_PI_2, LN_2, LOG2_E, LOG10_E};

use super::multiply_add::MultiplyAdd;

/// Adding it leaves the nearest integer plus 127 in the lowest bits: 1.5 * 2^23 + 127.
pub(super) const ROUND: f32 = 12_583_039.0;
/// ln(2) minus the number nearest to it.
const LN_2_REST: f32 = -1.904_654_3e-9;
/// Two numbers whose sum is ln(2): products of the first with integers of eight bits are exact.
pub(super) const LN_2_PARTS: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
/// Three positive numbers whose sum is π/2; positive, so that -0 stays -0.
const QUARTER: [f32; 3] = [f32::from_bits(0x3fc9_0fda), 7.549_789_4e-8, 5.390_302_5e-15];

/// `sum(coefficients[i] * x ** i)`
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[N - 1];
    for at in (0..N - 1).rev() {
        sum = sum.multiply_add(x, coefficients[at]);
    }
    sum
}

/// Approximation of `1 / √x` of positive, finite numbers that are not subnormal; the error is
/// 2^-15.6.
#[inline(always)]
fn about_rsqrt(x: f32) -> f32 {
    // The bits of a number are nearly its logarithm: the product is 0.875 to 0.993.
    let found = f32::from_bits(0x5f30_0000_u32.wrapping_sub(x.to_bits() >> 1));
    let product = x * found * found;
    found * polynomial(product, [1.942_503_9, -1.388_891_6, 0.446_433_4])
}

/// `√x` of such numbers and 0: the nearest number or one next to it, in half the time of the
/// instruction.
#[inline(always)]
fn root(x: f32) -> f32 {
    let inverse = about_rsqrt(x);
    let found = x * inverse;
    let rest = (-found).multiply_add(found, x);
    rest.multiply_add(0.5 * inverse, found)
}

/// `1 / √x` of [usual](is_usual) numbers, as [`root`].
#[inline(always)]
pub(in crate::kernels) fn rsqrt(x: f32) -> f32 {
    let found = about_rsqrt(x);
    let rest = (-found * x).multiply_add(found, 1.0);
    (0.5 * found).multiply_add(rest, found)
}

/// The smaller of `x` and `most`; NaN for NaN.
#[inline(always)]
fn at_most(x: f32, most: f32) -> f32 {
    if x > most { most } else { x }
}

/// `2 ** n` for an integer, which was found by adding [`ROUND`]; `n` from -126 to 127.
#[inline(always)]
fn power_of_two(rounded: f32) -> f32 {
    f32::from_bits(rounded.to_bits() << 23)
}

/// Whether [`exp`], [`sigmoid`] and [`silu`] are valid for a number.
#[inline(always)]
pub(in crate::kernels) fn is_exponent(x: f32) -> bool {
    x.abs() <= EXPONENT
}

/// Whether [`exp2`] is valid for a number.
#[inline(always)]
pub(in crate::kernels) fn is_exponent_of_2(x: f32) -> bool {
    x.abs() <= 126.0
}

/// Whether [`sin`], [`cos`] and [`tan`] are valid for a number.
#[inline(always)]
pub(in crate::kernels) fn is_angle(x: f32) -> bool {
    x.abs() <= ANGLE
}

/// Whether [`ln_1p`] is valid for a number.
#[inline(always)]
pub(in crate::kernels) fn is_usual_with_1(x: f32) -> bool {
    is_usual(1.0 + x)
}

/// Whether [`atanh`] is valid for a number.
#[inline(always)]
pub(in crate::kernels) fn is_below_1(x: f32) -> bool {
    x.abs() < 1.0
}

/// `2 ** n` and the rest `r` of an exponent `x = n * ln(2) + r` with a magnitude of up to
/// [`EXPONENT`].
#[inline(always)]
fn exponent(x: f32) -> (f32, f32) {
    let rounded = x.multiply_add(LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = n.multiply_add(-LN_2_PARTS[0], x);
    (power_of_two(rounded), n.multiply_add(-LN_2_PARTS[1], r))
}

/// Largest magnitude for which functions with powers of e are valid.
pub(super) const EXPONENT: f32 = 87.0;

/// Largest magnitude for which [`sin`], [`cos`] and [`tan`] are valid.
const ANGLE: f32 = 65_536.0;

/// Series of `exp(x)` for a magnitude of up to half of ln(2); the error is 2^-28.
pub(super) const EXP: [f32; 7] = [
    1.0,
    1.0,
    0.499_999_94,
    0.166_665_23,
    0.041_668_22,
    0.008_367_935,
    0.001_381_844_9,
];

/// `exp(x)` for a magnitude of up to [`EXPONENT`], or NaN.
#[inline(always)]
pub(in crate::kernels) fn exp(x: f32) -> f32 {
    let (power, r) = exponent(x);
    power * polynomial(r, EXP)
}

/// `exp(x)` for numbers that are not positive, or NaN: 0 instead of subnormal numbers.
#[inline(always)]
pub(in crate::kernels) fn exp_of_negative(x: f32) -> f32 {
    let found = exp(if x < -EXPONENT { -EXPONENT } else { x });
    if x < -EXPONENT { 0.0 } else { found }
}

/// `2 ** x` for `x` from -126 to 127, or NaN.
#[inline(always)]
pub(in crate::kernels) fn exp2(x: f32) -> f32 {
    let rounded = x + ROUND;
    // The error is 2^-28.
    let series = [
        1.0,
        0.693_147_24,
        0.240_226_55,
        0.055_502_728,
        0.009_617_027,
        0.001_341_849_3,
        0.000_158_364_39,
    ];
    power_of_two(rounded) * polynomial(x - (rounded - ROUND), series)
}

/// `exp(x) - 1` for a magnitude of up to [`EXPONENT`], or NaN.
#[inline(always)]
pub(in crate::kernels) fn expm1(x: f32) -> f32 {
    let (power, r) = exponent(x);
    // The error is 2^-31.
    let series = [
        0.5,
        0.166_666_66,
        0.041_666_49,
        0.008_333_563,
        0.001_392_825,
        0.000_197_261_56,
    ];
    let rest = (r * r).multiply_add(polynomial(r, series), r);
    power.multiply_add(rest, power - 1.0).copysign(x)
}

/// `exp(x) - 1` for numbers that are not positive, or NaN.
#[inline(always)]
fn expm1_of_negative(x: f32) -> f32 {
    // It is -1 from -18 on.
    expm1(if x < -20.0 { -20.0 } else { x })
}

/// `x` if positive, otherwise `alpha * (exp(x) - 1)`
#[inline(always)]
pub(in crate::kernels) fn elu(x: f32, alpha: f32) -> f32 {
    let below = alpha * expm1_of_negative(if x > 0.0 { 0.0 } else { x });
    if x > 0.0 { x } else { below }
}

/// `1 / (1 + exp(-x))` for a magnitude of up to [`EXPONENT`], or NaN.
#[inline(always)]
pub(in crate::kernels) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x / (1 + exp(-x))` for a magnitude of up to [`EXPONENT`], or NaN.
#[inline(always)]
pub(in crate::kernels) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `tanh(x)`
#[inline(always)]
pub(in crate::kernels) fn tanh(x: f32) -> f32 {
    // 1 from there on. Below it x * P(x * x) / Q(x * x), of positive coefficients; the error is
    // 2^-29.9.
    const ONE: f32 = 9.02;
    let size = at_most(x.abs(), ONE);
    let square = size * size;
    let above = [1.0, 0.137_854_86, 0.004_008_659, 3.159_2e-5, 5.077_064e-8];
    let below = [
        1.0,
        0.471_188_2,
        0.027_738_068,
        0.000_420_766_82,
        1.617_693_2e-6,
        7.375_907_7e-10,
    ];
    let above = size * polynomial(square, above);
    at_most(above / polynomial(square, below), 1.0).copysign(x)
}

/// `x * (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2`
#[inline(always)]
pub(in crate::kernels) fn gelu_tanh(x: f32) -> f32 {
    // x / (1 + exp(-2 y)), which is x or 0 beyond 10.
    const LAST: f32 = 10.0;
    const TWICE: f32 = -1.595_769_2;
    let y = x * (x * x).multiply_add(0.044_715 * TWICE, TWICE);
    let near = x / (1.0 + exp(y));
    let far = if x > 0.0 { x } else { x * 0.0 };
    if x.abs() > LAST { far } else { near }
}

/// `erf(x)`
#[inline(always)]
pub(in crate::kernels) fn erf(x: f32) -> f32 {
    // As [`tanh`]; the error is 2^-25.5.
    const ONE: f32 = 3.95;
    let size = at_most(x.abs(), ONE);
    let square = size * size;
    let above = [
        1.131_819_7,
        0.192_082_02,
        0.053_029_478,
        0.003_817_444_7,
        0.000_285_489_05,
        2.032_303_7e-6,
    ];
    let below = [
        1.003_049_1,
        0.504_577_3,
        0.114_887_05,
        0.015_096_357,
        0.001_173_703_5,
        3.794_590_5e-5,
    ];
    let above = size * polynomial(square, above);
    at_most(above / polynomial(square, below), 1.0).copysign(x)
}

/// `x * (1 + erf(x / √2)) / 2`
#[inline(always)]
pub(in crate::kernels) fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2))
}

/// `ln(1 + y)` for `y` from 0 to 1; the error is 2^-29.3.
#[inline(always)]
fn ln_of_1_to_2(y: f32) -> f32 {
    let series = [
        1.0,
        -0.499_999_94,
        0.333_328_96,
        -0.249_909_49,
        0.199_119_34,
        -0.161_775_95,
        0.125_696_94,
        -0.084_437_31,
        0.043_085_23,
        -0.014_129_59,
        0.002_168_982,
    ];
    y * polynomial(y, series)
}

/// `ln(1 + exp(x))`
#[inline(always)]
fn softplus_of_one(x: f32) -> f32 {
    // Computed as the square of a root, since the power may be subnormal.
    let half = -0.5 * x.abs();
    let root = exp(if half < -EXPONENT { -EXPONENT } else { half });
    let least = if x < 0.0 { 0.0 } else { x };
    least + ln_of_1_to_2(root * root)
}

/// `ln(1 + exp(beta * x)) / beta`; `x` where `beta * x` is larger than the threshold.
#[inline(always)]
pub(in crate::kernels) fn softplus(x: f32, beta: f32, threshold: f32) -> f32 {
    let scaled = x * beta;
    let found = softplus_of_one(scaled);
    if scaled > threshold { x } else { found / beta }
}

/// For `1 + x = 2 ** n * m` with `m` from √½ to √2, `n * 2^23` and `m - 1`; for `x` instead of
/// `1 + x` if `own` is true.
#[inline(always)]
fn mantissa(x: f32, own: bool) -> (f32, f32) {
    const HALF: u32 = 0x3f35_04f3;
    const ONE: u32 = 0x3f80_0000;
    let whole = if own { x } else { 1.0 + x };
    let n = whole.to_bits().wrapping_sub(HALF) & 0xff80_0000;
    let scale = f32::from_bits(ONE.wrapping_sub(n));
    let less = if own { -1.0 } else { scale - 1.0 };
    (n.cast_signed() as f32, x.multiply_add(scale, less))
}

/// `ln(1 + y) - y` for `1 + y` from √½ to √2; the error is 2^-27.
#[inline(always)]
fn ln_rest(y: f32) -> f32 {
    let series = [
        -0.5,
        0.333_333_3,
        -0.250_008_23,
        0.200_012_6,
        -0.166_231_93,
        0.142_008_59,
        -0.131_629_15,
        0.127_829_42,
        -0.076_625_48,
    ];
    y * y * polynomial(y, series)
}

/// Converts `n * 2^23` to `n`.
const PER_STEP: f32 = 1.0 / 8_388_608.0;

#[inline(always)]
fn ln_of((n, y): (f32, f32)) -> f32 {
    let rest = n.multiply_add(LN_2_REST * PER_STEP, ln_rest(y));
    n.multiply_add(LN_2 * PER_STEP, y + rest)
}

/// Whether a number is positive, not subnormal and below 1e37: logarithms are valid for it.
#[inline(always)]
pub(in crate::kernels) fn is_usual(x: f32) -> bool {
    (f32::MIN_POSITIVE..1e37).contains(&x)
}

/// `ln(x)` of [usual](is_usual) numbers.
#[inline(always)]
pub(in crate::kernels) fn ln(x: f32) -> f32 {
    ln_of(mantissa(x, true))
}

/// The logarithm to base 2 of [usual](is_usual) numbers.
#[inline(always)]
pub(in crate::kernels) fn log2(x: f32) -> f32 {
    // log2(e) is 1 plus a small number.
    const MORE: f32 = LOG2_E - 1.0;
    let (n, y) = mantissa(x, true);
    let rest = ln_rest(y);
    let small = y.multiply_add(MORE, rest.multiply_add(MORE, rest));
    n.multiply_add(PER_STEP, y + small)
}

/// The logarithm to base 10 of [usual](is_usual) numbers.
#[inline(always)]
pub(in crate::kernels) fn log10(x: f32) -> f32 {
    const LOG10_2: f32 = std::f32::consts::LOG10_2;
    const LOG10_2_REST: f32 = -1.432_098_8e-8;
    let (n, y) = mantissa(x, true);
    let small = n.multiply_add(LOG10_2_REST * PER_STEP, ln_rest(y) * LOG10_E);
    n.multiply_add(LOG10_2 * PER_STEP, y.multiply_add(LOG10_E, small))
}

/// `ln(1 + x)` for `1 + x` that is [usual](is_usual), and NaN.
#[inline(always)]
pub(in crate::kernels) fn ln_1p(x: f32) -> f32 {
    ln_of(mantissa(x, false)).copysign(x)
}

/// `x` without multiples of π/2, and the number of these, in the lowest bits.
#[inline(always)]
fn quarter(x: f32) -> (f32, u32) {
    const ROUND: f32 = 12_582_912.0;
    let rounded = x.multiply_add(FRAC_2_PI, ROUND);
    let n = rounded - ROUND;
    let r = n.multiply_add(-QUARTER[0], x);
    let r = n.multiply_add(-QUARTER[1], r);
    (n.multiply_add(-QUARTER[2], r), rounded.to_bits())
}

/// Sine and cosine of a magnitude of up to π/4; the errors are 2^-27.9 and 2^-32.
#[inline(always)]
fn within_quarter(r: f32) -> (f32, f32) {
    let z = r * r;
    let sin = [-0.166_666_55, 0.008_332_189, -0.000_195_182_79];
    let cos = [1.0, -0.5, 0.041_666_653, -0.001_388_761_2, 2.446_219_7e-5];
    let sin = (r * z).multiply_add(polynomial(z, sin), r).copysign(r);
    (sin, polynomial(z, cos))
}

/// `x`, negative where the second lowest bit of `n` is 1.
#[inline(always)]
fn with_sign_of(n: u32, x: f32) -> f32 {
    f32::from_bits(x.to_bits() ^ (n & 2) << 30)
}

/// Sine of a magnitude of up to [`ANGLE`].
#[inline(always)]
pub(in crate::kernels) fn sin(x: f32) -> f32 {
    let (r, n) = quarter(x);
    let (sin, cos) = within_quarter(r);
    with_sign_of(n, if n & 1 == 0 { sin } else { cos })
}

/// Cosine of a magnitude of up to [`ANGLE`].
#[inline(always)]
pub(in crate::kernels) fn cos(x: f32) -> f32 {
    let (r, n) = quarter(x);
    let (sin, cos) = within_quarter(r);
    with_sign_of(n.wrapping_add(1), if n & 1 == 0 { cos } else { sin })
}

/// Tangent of a magnitude of up to [`ANGLE`].
#[inline(always)]
pub(in crate::kernels) fn tan(x: f32) -> f32 {
    let (r, n) = quarter(x);
    let z = r * r;
    // The error is 2^-28.6.
    let series = [
        0.333_333_43,
        0.133_328_23,
        0.054_045_71,
        0.021_343_037,
        0.010_700_296,
        0.000_240_777_1,
        0.004_309_417,
    ];
    let tan = (r * z).multiply_add(polynomial(z, series), r).copysign(r);
    if n & 1 == 0 { tan } else { -1.0 / tan }
}

/// `asin(x)` of a magnitude of up to ½, from `x` and `x * x`; the error is 2^-26.8.
#[inline(always)]
fn asin_near(x: f32, square: f32) -> f32 {
    let series = [
        0.166_667_31,
        0.074_959_54,
        0.045_402_12,
        0.024_471_587,
        0.041_724_11,
    ];
    (x * square).multiply_add(polynomial(square, series), x)
}

/// `asin(x)`
#[inline(always)]
pub(in crate::kernels) fn asin(x: f32) -> f32 {
    let size = x.abs();
    let is_near = size < 0.5;
    let square = if is_near {
        x * x
    } else {
        0.5 - 0.5 * at_most(size, 1.0)
    };
    let found = asin_near(if is_near { size } else { root(square) }, square);
    let far = (-2.0_f32).multiply_add(found, FRAC_PI_2);
    let found = if is_near { found } else { far };
    (if size <= 1.0 { found } else { f32::NAN }).copysign(x)
}

/// `acos(x)`
#[inline(always)]
pub(in crate::kernels) fn acos(x: f32) -> f32 {
    let size = x.abs();
    let is_near = size < 0.5;
    let square = if is_near {
        x * x
    } else {
        0.5 - 0.5 * at_most(size, 1.0)
    };
    let found = asin_near(if is_near { x } else { root(square) }, square);
    // π/2 is less than the number nearest to it.
    let near = FRAC_PI_2 - (found + 4.371_139e-8);
    let far = 2.0 * found;
    let far = if x < 0.0 { 2.0 * FRAC_PI_2 - far } else { far };
    let found = if is_near { near } else { far };
    if size <= 1.0 { found } else { f32::NAN }
}

/// `atan(x)`
#[inline(always)]
pub(in crate::kernels) fn atan(x: f32) -> f32 {
    let size = x.abs();
    let is_near = size <= 1.0;
    let t = if is_near { size } else { 1.0 / size };
    let z = t * t;
    // The error is 2^-25.
    let series = [
        -0.333_332_15,
        0.199_950_04,
        -0.142_200_14,
        0.106_984_26,
        -0.076_168_49,
        0.043_934_166,
        -0.016_792_137,
        0.003_022_637_8,
    ];
    let found = (t * z).multiply_add(polynomial(z, series), t);
    let far = FRAC_PI_2 - found;
    (if is_near { found } else { far }).copysign(x)
}

/// `atanh(x)` of a magnitude below 1, or NaN.
#[inline(always)]
pub(in crate::kernels) fn atanh(x: f32) -> f32 {
    let size = x.abs();
    (0.5 * ln_1p(2.0 * size / (1.0 - size))).copysign(x)
}

/// `x - tanh(x)`, with both terms rounded as in PyTorch.
#[inline(always)]
pub(in crate::kernels) fn tanhshrink(x: f32) -> f32 {
    x - tanh(x)
}
