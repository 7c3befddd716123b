//! Functions in double precision, where short series are accurate enough and little is lost by
//! cancellation: results are the nearest number of single precision, or one next to it.

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, LN_2, LOG2_E, LOG10_E, SQRT_2};

/// Adding it leaves the nearest integer in the lowest bits: 1.5 * 2^52.
pub(super) const ROUND: f64 = 6_755_399_441_055_744.0;
/// π/2 minus the number nearest to it.
const FRAC_PI_2_REST: f64 = 6.123_233_995_736_766e-17;
/// Powers of e beyond these are 0 and infinity in single precision.
const EXPONENTS: [f64; 2] = [-110.0, 90.0];

/// Largest magnitude for which [`quarter`] is valid.
const LARGEST_ANGLE: f32 = 268_435_456.0;

/// `sum(coefficients[i] * x ** i)`
#[inline(always)]
pub(super) fn polynomial<const N: usize>(x: f64, coefficients: [f64; N]) -> f64 {
    let mut sum = coefficients[N - 1];
    for at in (0..N - 1).rev() {
        sum = sum.mul_add(x, coefficients[at]);
    }
    sum
}

/// The first terms of `2 artanh(x) / x`, of which `x * x` is the variable.
const fn twice_artanh<const N: usize>() -> [f64; N] {
    let mut terms = [2.0; N];
    let mut at = 1;
    while at < N {
        terms[at] = 2.0 / (2 * at + 1) as f64;
        at += 1;
    }
    terms
}

/// `2 ** n` for an integer, which was found by adding [`ROUND`]; `n` from -1022 to 1023.
#[inline(always)]
pub(super) fn power_of_two(rounded: f64) -> f64 {
    f64::from_bits(rounded.to_bits().wrapping_add(1023) << 52)
}

/// `2 ** n`, and `exp(r) - 1` for the rest, of an exponent within [`EXPONENTS`]. The first omitted
/// term of the series is less than 6e-11 of `r`.
#[inline(always)]
fn exponent(x: f64) -> (f64, f64) {
    let rounded = x.mul_add(LOG2_E, ROUND);
    let r = (rounded - ROUND).mul_add(-LN_2, x);
    (power_of_two(rounded), of_rest(r))
}

/// `exp(x)`, with a relative error of up to 2e-10.
#[inline(always)]
fn about_exp64(x: f64) -> f64 {
    let x = clamped(x, EXPONENTS);
    let rounded = x.mul_add(LOG2_E, ROUND);
    let r = (rounded - ROUND).mul_add(-LN_2, x);
    let series = [
        1.0,
        1.0,
        1.0 / 2.0,
        1.0 / 6.0,
        1.0 / 24.0,
        1.0 / 120.0,
        1.0 / 720.0,
        1.0 / 5040.0,
        1.0 / 40320.0,
    ];
    power_of_two(rounded) * polynomial(r, series)
}

/// `exp(r) - 1` for a magnitude of up to half of `ln(2)`.
#[inline(always)]
fn of_rest(r: f64) -> f64 {
    let series = [
        1.0,
        1.0 / 2.0,
        1.0 / 6.0,
        1.0 / 24.0,
        1.0 / 120.0,
        1.0 / 720.0,
        1.0 / 5040.0,
        1.0 / 40320.0,
        1.0 / 362_880.0,
    ];
    r * polynomial(r, series)
}

/// `x` clamped to bounds, NaN for NaN.
#[inline(always)]
fn clamped(x: f64, [low, high]: [f64; 2]) -> f64 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

#[inline(always)]
fn exp64(x: f64) -> f64 {
    let (power, rest) = exponent(clamped(x, EXPONENTS));
    let found = power.mul_add(rest, power);
    if x < EXPONENTS[0] { 0.0 } else { found }
}

#[inline(always)]
fn expm1_64(x: f64) -> f64 {
    let (power, rest) = exponent(clamped(x, EXPONENTS));
    power.mul_add(rest, power - 1.0).copysign(x)
}

/// `ln(x)`, except of subnormal numbers of double precision.
#[inline(always)]
fn ln64(x: f64) -> f64 {
    // The omitted terms are less than 2e-12 of it.
    let ln = ln_of_usual::<7>(x);
    let ln = if x < f64::INFINITY { ln } else { x };
    if x > 0.0 {
        ln
    } else if x == 0.0 {
        f64::NEG_INFINITY
    } else {
        f64::NAN
    }
}

/// `ln(x)` of positive finite numbers, by a series of `N` terms.
#[inline(always)]
pub(super) fn ln_of_usual<const N: usize>(x: f64) -> f64 {
    // 2 ** n * m with m from sqrt(1/2) to sqrt(2).
    const HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    const BIAS: u64 = 1024;
    let bits = x.to_bits();
    let n = bits.wrapping_sub(HALF).wrapping_add(BIAS << 52) >> 52;
    let m = f64::from_bits(bits.wrapping_sub(n.wrapping_sub(BIAS) << 52));
    // 2^52 + n has n in its lowest bits.
    let n = f64::from_bits(n | 0x4330_0000_0000_0000) - (4_503_599_627_370_496.0 + BIAS as f64);
    // ln(m) = 2 artanh(s)
    let s = (m - 1.0) / (m + 1.0);
    n.mul_add(LN_2, s * polynomial(s * s, const { twice_artanh::<N>() }))
}

/// `ln(1 + x)`, corrected for the rounding error of `1 + x`.
#[inline(always)]
fn ln_1p64(x: f64) -> f64 {
    let sum = 1.0 + x;
    let lost = (x - (sum - 1.0)) / sum;
    let lost = if sum > 0.0 && sum < f64::INFINITY {
        lost
    } else {
        0.0
    };
    (ln64(sum) + lost).copysign(x)
}

/// `x` without multiples of π/2, and the number of these, in the lowest bits.
#[inline(always)]
fn quarter(x: f64) -> (f64, u64) {
    let rounded = x.mul_add(std::f64::consts::FRAC_2_PI, ROUND);
    let n = rounded - ROUND;
    let r = n.mul_add(-FRAC_PI_2, x);
    (n.mul_add(-FRAC_PI_2_REST, r), rounded.to_bits())
}

/// Sine and cosine of a magnitude of up to π/4. Source: `k_sinf.c` and `k_cosf.c` of FreeBSD's
/// msun.
#[inline(always)]
fn within_quarter(r: f64) -> (f64, f64) {
    let z = r * r;
    let sin = [
        1.0,
        -0.166_666_666_416_265_24,
        0.008_333_329_385_889_463,
        -0.000_198_393_348_360_966_32,
        0.000_002_718_311_493_989_822,
    ];
    let cos = [
        1.0,
        -0.499_999_997_251_031,
        0.041_666_623_323_739_06,
        -0.001_388_676_377_460_993,
        0.000_024_390_448_796_277_41,
    ];
    (r * polynomial(z, sin), polynomial(z, cos))
}

/// `x`, negative where the second lowest bit of `n` is 1.
#[inline(always)]
fn with_sign_of(n: u64, x: f64) -> f64 {
    f64::from_bits(x.to_bits() ^ (n & 2) << 62)
}

#[inline(always)]
pub(in crate::kernels) fn sin(x: f32) -> f32 {
    if x.abs() > LARGEST_ANGLE {
        return x.sin();
    }
    let (r, n) = quarter(f64::from(x));
    let (sin, cos) = within_quarter(r);
    with_sign_of(n, if n & 1 == 0 { sin } else { cos }) as f32
}

#[inline(always)]
pub(in crate::kernels) fn cos(x: f32) -> f32 {
    if x.abs() > LARGEST_ANGLE {
        return x.cos();
    }
    let (r, n) = quarter(f64::from(x));
    let (sin, cos) = within_quarter(r);
    with_sign_of(n.wrapping_add(1), if n & 1 == 0 { cos } else { sin }) as f32
}

#[inline(always)]
pub(in crate::kernels) fn tan(x: f32) -> f32 {
    if x.abs() > LARGEST_ANGLE {
        return x.tan();
    }
    let (r, n) = quarter(f64::from(x));
    let (sin, cos) = within_quarter(r);
    let (above, below) = if n & 1 == 0 { (sin, cos) } else { (-cos, sin) };
    (above / below) as f32
}

#[inline(always)]
fn atan64(x: f64) -> f64 {
    // Around 0, π/4 or π/2, so that the argument of the series is at most tan(π/8); the omitted
    // terms are less than 2e-10.
    let size = x.abs();
    let (above, below, at) = if size > SQRT_2 + 1.0 {
        (-1.0, size, FRAC_PI_2)
    } else if size > SQRT_2 - 1.0 {
        (size - 1.0, size + 1.0, FRAC_PI_4)
    } else {
        (size, 1.0, 0.0)
    };
    let t = above / below;
    let series = [
        1.0,
        -1.0 / 3.0,
        1.0 / 5.0,
        -1.0 / 7.0,
        1.0 / 9.0,
        -1.0 / 11.0,
        1.0 / 13.0,
        -1.0 / 15.0,
        1.0 / 17.0,
        -1.0 / 19.0,
        1.0 / 21.0,
    ];
    let atan = t.mul_add(polynomial(t * t, series), at);
    atan.copysign(x)
}

/// The angle of the point (x, y) seen from the origin, as in IEEE 754.
#[inline(always)]
pub(in crate::kernels) fn atan2(y: f32, x: f32) -> f32 {
    let (own_y, own_x) = (f64::from(y).abs(), f64::from(x).abs());
    // Both 0 or both infinite: as if both were 1 along the diagonal, and 0 above the axis.
    let ratio = if own_y == own_x { 1.0 } else { own_y / own_x };
    let ratio = if own_y == 0.0 && !x.is_nan() {
        0.0
    } else {
        ratio
    };
    let ratio = if y.is_nan() { f64::NAN } else { ratio };
    let angle = atan64(ratio);
    let angle = if x.is_sign_negative() {
        std::f64::consts::PI - angle
    } else {
        angle
    };
    (angle as f32).copysign(y)
}

/// The remainder of a division, with the sign of `a`. It is exact if the [quotient is
/// small](is_small_quotient).
#[inline(always)]
pub(in crate::kernels) fn fmod(a: f32, b: f32) -> f32 {
    let (own_a, own_b) = (f64::from(a), f64::from(b));
    let quotient = (own_a / own_b).trunc();
    (-quotient).mul_add(own_b, own_a).copysign(own_a) as f32
}

/// The remainder of a division, with the sign of `b`. It is exact if the [quotient is
/// small](is_small_quotient).
#[inline(always)]
pub(in crate::kernels) fn remainder(a: f32, b: f32) -> f32 {
    let rest = fmod(a, b);
    let is_other = (rest < 0.0) != (b < 0.0);
    if rest != 0.0 && is_other {
        rest + b
    } else {
        rest
    }
}

/// Whether a quotient has so few bits that it is rounded as the exact one: `a` and `b` have 24
/// each.
#[inline(always)]
pub(in crate::kernels) fn is_small_quotient(a: f32, b: f32) -> bool {
    f64::from(a).abs() < f64::from(b).abs() * 134_217_728.0 && b.is_finite()
}

#[inline(always)]
pub(in crate::kernels) fn sinh(x: f32) -> f32 {
    let x = f64::from(x);
    let u = expm1_64(x.abs());
    (0.5 * (u + u / (u + 1.0))).copysign(x) as f32
}

#[inline(always)]
pub(in crate::kernels) fn cosh(x: f32) -> f32 {
    let power = exp64(f64::from(x).abs());
    (0.5 * (power + 1.0 / power)) as f32
}

#[inline(always)]
pub(in crate::kernels) fn asinh(x: f32) -> f32 {
    let x = f64::from(x);
    let size = x.abs();
    // Beyond that it is ln(2 |x|) in double precision, too; the square of infinity is not computed.
    let square = size * size;
    let more = square / (1.0 + (1.0 + square).sqrt());
    let more = if size < f64::INFINITY { more } else { size };
    ln_1p64(size + more).copysign(x) as f32
}

#[inline(always)]
pub(in crate::kernels) fn acosh(x: f32) -> f32 {
    let more = f64::from(x) - 1.0;
    let found = ln_1p64(more + (more * (more + 2.0)).sqrt());
    (if more < 0.0 { f64::NAN } else { found }) as f32
}

#[inline(always)]
pub(in crate::kernels) fn atanh(x: f32) -> f32 {
    let x = f64::from(x);
    (0.5 * ln_1p64(2.0 * x / (1.0 - x))).copysign(x) as f32
}

#[inline(always)]
pub(in crate::kernels) fn exp(x: f32) -> f32 {
    exp64(f64::from(x)) as f32
}

/// `1 / (1 + exp(-x))`; 0 where the power is infinite in single precision, as in PyTorch.
#[inline(always)]
pub(in crate::kernels) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x / (1 + exp(-x))`; 0 where the power is infinite in single precision, as in PyTorch.
#[inline(always)]
pub(in crate::kernels) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

#[inline(always)]
pub(in crate::kernels) fn exp2(x: f32) -> f32 {
    let x = clamped(f64::from(x), [-160.0, 130.0]);
    let rounded = x + ROUND;
    let power = power_of_two(rounded);
    power.mul_add(of_rest((x - (rounded - ROUND)) * LN_2), power) as f32
}

#[inline(always)]
pub(in crate::kernels) fn expm1(x: f32) -> f32 {
    expm1_64(f64::from(x)) as f32
}

/// `1 / √x`
#[inline(always)]
pub(in crate::kernels) fn rsqrt(x: f32) -> f32 {
    (1.0 / f64::from(x).sqrt()) as f32
}

#[inline(always)]
pub(in crate::kernels) fn ln(x: f32) -> f32 {
    ln64(f64::from(x)) as f32
}

#[inline(always)]
pub(in crate::kernels) fn log2(x: f32) -> f32 {
    (ln64(f64::from(x)) * LOG2_E) as f32
}

#[inline(always)]
pub(in crate::kernels) fn log10(x: f32) -> f32 {
    (ln64(f64::from(x)) * LOG10_E) as f32
}

#[inline(always)]
pub(in crate::kernels) fn ln_1p(x: f32) -> f32 {
    ln_1p64(f64::from(x)) as f32
}

/// `ln(1 + exp(x))`
#[inline(always)]
fn softplus64(x: f64) -> f64 {
    // ln(1 + y) = 2 artanh(y / (2 + y)) for y up to 1; the omitted terms of the series are less
    // than 2e-9 of it.
    let y = exp64(-x.abs());
    let s = y / (2.0 + y);
    let least = if x < 0.0 { 0.0 } else { x };
    s.mul_add(polynomial(s * s, const { twice_artanh::<8>() }), least)
}

/// `ln(1 / (1 + exp(-x)))`
#[inline(always)]
pub(in crate::kernels) fn log_sigmoid(x: f32) -> f32 {
    // Not -0, where it underflows.
    0.0 - softplus64(-f64::from(x)) as f32
}

/// `x * tanh(softplus(x))`
#[inline(always)]
pub(in crate::kernels) fn mish(x: f32) -> f32 {
    // tanh(ln(1 + y)) = y (y + 2) / (y (y + 2) + 2)
    let own = f64::from(x);
    // 0 from where exp is 0 in single precision, as in PyTorch.
    let y = if own < -103.9 { 0.0 } else { exp64(own) };
    let n = y * (y + 2.0);
    (own * (n / (n + 2.0))) as f32
}

/// `x` if positive, otherwise `alpha * (exp(x / alpha) - 1)`
#[inline(always)]
pub(in crate::kernels) fn celu(x: f32, alpha: f32) -> f32 {
    let below = f64::from(alpha) * expm1_64(f64::from(x / alpha));
    if x > 0.0 { x } else { below as f32 }
}

/// `x ** y`, as in IEEE 754.
#[inline(always)]
pub(in crate::kernels) fn power(x: f32, y: f32) -> f32 {
    let (x, y) = (f64::from(x), f64::from(y));
    let size = exp64(y * ln64(x.abs()));
    // 1 to the power of infinity or NaN, and anything to the power of 0.
    let size = if y == 0.0 || x == 1.0 || (x == -1.0 && y.is_infinite()) {
        1.0
    } else {
        size
    };
    let half = 0.5 * y;
    let is_integer = y == y.trunc();
    let is_odd = is_integer && half != half.trunc();
    let other = if is_integer || x.is_infinite() || y == 0.0 {
        size
    } else {
        f64::NAN
    };
    let found = if x < 0.0 { other } else { size };
    let negative = found.copysign(x);
    (if is_odd { negative } else { found }) as f32
}

/// `x ** y` for positive, finite `x` that is not subnormal, and finite `y`.
#[inline(always)]
pub(in crate::kernels) fn power_of_usual(x: f32, y: f32) -> f32 {
    // The error is 6e-11 of the logarithm, times at most 104 where the power is a number of single
    // precision.
    about_exp64(f64::from(y) * ln_of_usual::<6>(f64::from(x))) as f32
}

/// `sqrt(x * x + y * y)`, infinite if one is.
#[inline(always)]
pub(in crate::kernels) fn hypot(x: f32, y: f32) -> f32 {
    let (x, y) = (f64::from(x), f64::from(y));
    let found = (x * x + y * y).sqrt();
    let infinite = x.is_infinite() || y.is_infinite();
    (if infinite { f64::INFINITY } else { found }) as f32
}
