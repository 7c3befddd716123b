//! Functions of numbers in double precision, to a few units in the last place.
//!
//! Those that models call most often are polynomials, which the compiler vectorises; the standard
//! library has the others.

use std::f64::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E};

use super::double::{ROUND, ln_of_usual, polynomial, power_of_two};

/// The first bits of `ln(2)`, whose products with small integers are exact.
const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
/// The rest of `ln(2)`. Source: `e_exp.c` of FreeBSD's msun, as the number before.
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// `x = n * ln(2) + r`: `n` after [`ROUND`] was added, and `exp(r) - 1`. The first omitted term of the
/// series is less than 2e-18 of `r`.
#[inline(always)]
fn parts(x: f64) -> (f64, f64) {
    let rounded = x.mul_add(LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, x));
    let series = const {
        let mut terms = [1.0; 13];
        let mut at = 1;
        while at < terms.len() {
            terms[at] = terms[at - 1] / (at + 1) as f64;
            at += 1;
        }
        terms
    };
    (rounded, r * polynomial(r, series))
}

/// `exp(x)`
#[inline(always)]
pub(in crate::kernels) fn exp(x: f64) -> f64 {
    // Powers of e beyond these are 0 and infinity.
    let x = if x < -750.0 { -750.0 } else { x };
    let x = if x > 710.0 { 710.0 } else { x };
    let (rounded, rest) = parts(x);
    // In two factors, since the power of two alone may be out of range.
    let n = rounded - ROUND;
    let half = n.mul_add(0.5, ROUND);
    let other = (n - (half - ROUND)) + ROUND;
    (rest * power_of_two(half) + power_of_two(half)) * power_of_two(other)
}

/// `exp(x) - 1`, for a magnitude of at most 64.
#[inline(always)]
fn small_expm1(x: f64) -> f64 {
    let (rounded, rest) = parts(x);
    let power = power_of_two(rounded);
    power.mul_add(rest, power - 1.0)
}

/// `exp(x) - 1` of a number that is not positive.
#[inline(always)]
pub(in crate::kernels) fn expm1_of_negative(x: f64) -> f64 {
    // Below that it is -1.
    small_expm1(if x < -64.0 { -64.0 } else { x })
}

/// `1 / (1 + exp(-x))`
#[inline(always)]
pub(in crate::kernels) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + exp(-x))
}

/// `x / (1 + exp(-x))`
#[inline(always)]
pub(in crate::kernels) fn silu(x: f64) -> f64 {
    x / (1.0 + exp(-x))
}

/// Hyperbolic tangent.
#[inline(always)]
pub(in crate::kernels) fn tanh(x: f64) -> f64 {
    let size = x.abs();
    // From there on it is 1.
    let size = if size > 32.0 { 32.0 } else { size };
    let e = small_expm1(2.0 * size);
    (e / (e + 2.0)).copysign(x)
}

/// The error function. From 1 on it is found by its complement, which is `exp(-x * x)` times a
/// polynomial in `(x - 4) / (x + 4)`. Coefficients are those of interpolation at Chebyshev's points,
/// with relative errors of 8e-18 and 5e-18.
#[inline(always)]
pub(in crate::kernels) fn erf(x: f64) -> f64 {
    let of_small = [
        std::f64::consts::FRAC_2_SQRT_PI,
        -0.376_126_389_031_835_43,
        0.112_837_916_709_450_06,
        -0.026_866_170_643_237_77,
        0.005_223_977_607_116_422_5,
        -0.000_854_832_597_538_969_2,
        0.000_120_552_949_048_397_07,
        -1.492_473_690_741_966e-05,
        1.644_742_470_331_736_2e-06,
        -1.620_848_380_187_170_5e-07,
        1.372_006_454_677_768_6e-08,
        -7.795_898_827_002_142e-10,
    ];
    let of_large = [
        0.136_999_457_625_061_38,
        -0.259_068_048_760_171_8,
        0.218_719_678_918_267_13,
        -0.164_257_816_697_240_77,
        0.108_963_177_398_657_45,
        -0.063_107_815_647_382_8,
        0.031_299_056_515_832_77,
        -0.012_843_945_687_071_453,
        0.004_060_264_660_151_152,
        -0.000_799_132_207_639_043_9,
        -2.179_568_166_418_796e-05,
        7.895_694_927_713_207e-05,
        -2.229_471_220_828_090_7e-05,
        -9.380_004_337_296_444e-07,
        4.460_009_108_363_892e-06,
        7.423_164_251_116_965e-07,
    ];
    let size = x.abs();
    let square = size * size;
    let small = size * polynomial(square, of_small);
    // From 6 on it is 1.
    let far = if size > 6.0 { 6.0 } else { size };
    let large = 1.0 - exp(-(far * far)) * polynomial((far - 4.0) / (far + 4.0), of_large);
    (if size < 1.0 { small } else { large }).copysign(x)
}

/// `x * Φ(x)`
#[inline(always)]
pub(in crate::kernels) fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2))
}

/// `gelu` by its approximation. Source: `GeluKernel.cpp` of PyTorch.
#[inline(always)]
pub(in crate::kernels) fn gelu_tanh(x: f64) -> f64 {
    const BETA: f64 = std::f64::consts::SQRT_2 * std::f64::consts::FRAC_2_SQRT_PI * 0.5;
    let inner = BETA * (x + 0.044_715 * (x * x * x));
    0.5 * x * (1.0 + tanh(inner))
}

/// Natural logarithm.
#[inline(always)]
pub(in crate::kernels) fn ln(x: f64) -> f64 {
    // Subnormal numbers are made normal.
    let is_small = x < f64::MIN_POSITIVE;
    let normal = if is_small {
        x * 18_014_398_509_481_984.0
    } else {
        x
    };
    let moved = if is_small { -54.0 * LN_2 } else { 0.0 };
    // The omitted terms are less than 1e-19 of it.
    let found = ln_of_usual::<12>(normal) + moved;
    let found = if x < f64::INFINITY { found } else { x };
    if x > 0.0 {
        found
    } else if x == 0.0 {
        f64::NEG_INFINITY
    } else {
        f64::NAN
    }
}

/// Inverse hyperbolic sine: that of the standard library loses digits near 0.
pub(in crate::kernels) fn asinh(x: f64) -> f64 {
    let size = x.abs();
    let found = if size > 1e8 {
        size.ln() + LN_2
    } else {
        let square = size * size;
        (size + square / (1.0 + (1.0 + square).sqrt())).ln_1p()
    };
    found.copysign(x)
}

/// Inverse hyperbolic cosine.
pub(in crate::kernels) fn acosh(x: f64) -> f64 {
    let more = x - 1.0;
    if more < 0.0 {
        return f64::NAN;
    }
    if x > 1e8 {
        return x.ln() + LN_2;
    }
    (more + (more * (more + 2.0)).sqrt()).ln_1p()
}

/// Inverse hyperbolic tangent.
pub(in crate::kernels) fn atanh(x: f64) -> f64 {
    let size = x.abs();
    (0.5 * (2.0 * size / (1.0 - size)).ln_1p()).copysign(x)
}

/// `ln(1 + exp(x))`
#[inline(always)]
pub(in crate::kernels) fn softplus(x: f64) -> f64 {
    x.exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function, the standard library's, and the largest error in units of the last place.
    struct Case(&'static str, fn(f64) -> f64, fn(f64) -> f64, f64);

    #[test]
    fn functions_are_those_of_the_standard_library() {
        let cases = [
            Case("exp", exp, f64::exp, 2.0),
            Case(
                "expm1",
                |x| expm1_of_negative(-x.abs()),
                |x| (-x.abs()).exp_m1(),
                4.0,
            ),
            Case("tanh", tanh, f64::tanh, 4.0),
            Case("ln", ln, f64::ln, 2.0),
            Case("sigmoid", sigmoid, |x| 1.0 / (1.0 + (-x).exp()), 4.0),
        ];
        let mut numbers: Vec<f64> = (-40_000..40_000).map(|at| f64::from(at) / 311.0).collect();
        numbers.extend((-1070..1023).map(|at| 1.37 * f64::from(at).exp2()));
        numbers.extend((-1000..1000).map(|at| f64::from(at) * 0.75));
        numbers.extend([
            0.0,
            -0.0,
            5e-324,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MAX,
            f64::MIN,
        ]);
        for Case(name, own, other, most) in cases {
            for &x in &numbers {
                let (own, other) = (own(x), other(x));
                // A unit of subnormal numbers is that of the least normal one.
                let unit = other.abs().max(f64::MIN_POSITIVE) * f64::EPSILON;
                let same = own == other || own.is_nan() && other.is_nan();
                assert!(
                    same || (own - other).abs() <= most * unit,
                    "{name} {x}: {own} {other}"
                );
            }
            assert!(own(f64::NAN).is_nan(), "{name}");
        }
    }

    #[test]
    fn the_error_function_has_its_known_values() {
        // Computed with 30 digits by mpmath.
        let known = [
            (1e-10, 1.1283791670955126e-10),
            (0.001, 0.0011283787909692365),
            (0.25, 0.27632639016823696),
            (0.5, 0.5204998778130465),
            (0.75, 0.7111556336535151),
            (0.999, 0.8422852702064969),
            (1.0, 0.8427007929497149),
            (1.25, 0.9229001282564583),
            (1.5, 0.9661051464753108),
            (2.0, 0.9953222650189527),
            (2.5, 0.999593047982555),
            (3.0, 0.9999779095030014),
            (4.5, 0.9999999998033839),
            (5.9, 0.9999999999999999),
            (7.0, 1.0),
        ];
        for (x, expected) in known {
            for sign in [1.0, -1.0] {
                let error = (erf(sign * x) - sign * expected).abs();
                assert!(error <= 2.0 * f64::EPSILON * expected, "{x}: {error}");
            }
        }
        assert_eq!([0.0, f64::INFINITY].map(erf), [0.0, 1.0]);
        assert!(erf(f64::NAN).is_nan());
    }
}
