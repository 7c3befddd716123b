//! Functions against those in double precision, on numbers of all magnitudes.

use super::double::{atan2, fmod, hypot, is_small_quotient, power, power_of_usual};
use super::single::is_usual;
use crate::kernels::elementwise::unary_chunk;
use crate::program::Unary;

/// Numbers of all magnitudes and both signs, and special ones.
fn numbers() -> impl Iterator<Item = f32> + Clone {
    let some = (0..=u32::MAX >> 12)
        .map(|at| f32::from_bits(at << 12 | (at.wrapping_mul(2_654_435) & 0xfff)));
    let near = (0..4000).map(|at| (at as f32 - 2000.0) / 500.0);
    let special = [0.0, -0.0, 1.0, -1.0, f32::MIN_POSITIVE, 1e-45, f32::MAX];
    some.chain(near).chain(special)
}

/// Asserts that `found` is at most `ulps` numbers away from `expected`, and has its sign.
fn expect(ulps: i64, found: f32, expected: f64, of: impl std::fmt::Debug) {
    let nearest = expected as f32;
    let ordered = |x: f32| {
        let bits = i64::from(x.to_bits() & 0x7fff_ffff);
        if x.is_sign_negative() { -bits } else { bits }
    };
    let close = (ordered(found) - ordered(nearest)).abs() <= ulps;
    let signed = nearest != 0.0 || found.to_bits() == nearest.to_bits();
    let same = if nearest.is_nan() {
        found.is_nan()
    } else {
        close && signed
    };
    assert!(same, "{of:?}: {found:e}, not {nearest:e}");
}

fn erf(x: f64) -> f64 {
    let size = x.abs();
    let erf = if size < 2.5 {
        // A series: terms beyond the hundredth are negligible.
        let (mut term, mut sum) = (size, size);
        for n in 1..100 {
            let n = f64::from(n);
            term *= -size * size / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        let fraction = (1..60)
            .rev()
            .fold(0.0, |rest, k| f64::from(k) / 2.0 / (size + rest));
        1.0 - (-size * size).exp() / (std::f64::consts::PI.sqrt() * (size + fraction))
    };
    if x.is_nan() {
        x
    } else {
        erf.min(1.0).copysign(x)
    }
}

/// Sigmoid, 0 where the power is infinite in single precision.
fn sigmoid(x: f64) -> f64 {
    match (-x).exp() as f32 {
        f32::INFINITY => 0.0,
        _ => 1.0 / (1.0 + (-x).exp()),
    }
}

/// Replaces negative zero by zero.
fn positive(x: f64) -> f64 {
    if x as f32 == 0.0 { 0.0 } else { x }
}

#[test]
fn functions_are_right_but_for_the_last_bits() {
    type Case = (Unary, i64, fn(f64) -> f64);
    let all: [Case; 32] = [
        (Unary::Exp, 1, f64::exp),
        (Unary::Exp2, 1, f64::exp2),
        (Unary::Expm1, 1, f64::exp_m1),
        (Unary::Log, 1, f64::ln),
        (Unary::Log2, 1, f64::log2),
        (Unary::Log10, 1, f64::log10),
        (Unary::Log1p, 2, f64::ln_1p),
        (Unary::Sin, 1, f64::sin),
        (Unary::Cos, 1, f64::cos),
        (Unary::Tan, 2, f64::tan),
        (Unary::Asin, 2, f64::asin),
        (Unary::Acos, 1, f64::acos),
        (Unary::Atan, 2, f64::atan),
        (Unary::Sinh, 1, f64::sinh),
        (Unary::Cosh, 1, f64::cosh),
        (Unary::Tanh, 4, f64::tanh),
        (Unary::Asinh, 1, |x| {
            let size = x.abs();
            // The square of infinity is not computed.
            let more = size * size / (1.0 + (1.0 + size * size).sqrt());
            let more = if x.is_infinite() { size } else { more };
            (size + more).ln_1p().copysign(x)
        }),
        (Unary::Acosh, 1, |x| {
            let more = x - 1.0;
            (more + (more * (more + 2.0)).sqrt()).ln_1p() + if x < 1.0 { f64::NAN } else { 0.0 }
        }),
        (Unary::Atanh, 3, |x| {
            (0.5 * (2.0 * x / (1.0 - x)).ln_1p()).copysign(x)
        }),
        (Unary::Erf, 4, erf),
        (Unary::Sigmoid, 2, sigmoid),
        (Unary::Silu, 2, |x| {
            if x == f64::NEG_INFINITY {
                f64::NAN
            } else {
                x * sigmoid(x)
            }
        }),
        (Unary::Elu(1.0), 1, |x| if x > 0.0 { x } else { x.exp_m1() }),
        (Unary::Elu(0.7), 2, |x| match x > 0.0 {
            true => x,
            false => f64::from(0.7_f32) * x.exp_m1(),
        }),
        (
            Unary::Celu(1.0),
            1,
            |x| if x > 0.0 { x } else { x.exp_m1() },
        ),
        (Unary::Softplus(1.0, 20.0), 3, |x| match x {
            x if x > 20.0 => x,
            x => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        }),
        (Unary::Softplus(2.0, 20.0), 3, |x| match 2.0 * x {
            y if y > 20.0 => x,
            y => 0.5 * (y.max(0.0) + (-y.abs()).exp().ln_1p()),
        }),
        (Unary::LogSigmoid, 1, |x| {
            positive(x.min(0.0) - (-x.abs()).exp().ln_1p())
        }),
        (Unary::Mish, 1, |x| {
            let softplus = if x < -103.9 { 0.0 } else { x.exp().ln_1p() };
            x * softplus.tanh()
        }),
        (Unary::Power(1.5), 1, |x| x.powf(1.5)),
        (Unary::Sqrt, 0, f64::sqrt),
        (Unary::Rsqrt, 1, |x| 1.0 / x.sqrt()),
    ];
    let numbers: Vec<f32> = numbers().collect();
    for (function, ulps, expected) in all {
        let mut found = numbers.clone();
        unary_chunk(function, &mut found);
        for (&x, &y) in numbers.iter().zip(&found) {
            expect(ulps, y, expected(f64::from(x)), (function, x));
        }
    }
}

/// Functions whose small results are differences of larger numbers, in PyTorch too.
#[test]
fn functions_are_right_but_for_so_much() {
    type Case = (Unary, fn(f64) -> f64);
    let all: [Case; 3] = [
        (Unary::Gelu, |x| {
            0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))
        }),
        (Unary::GeluTanh, |x| {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }),
        (Unary::Tanhshrink, |x| x - x.tanh()),
    ];
    let numbers: Vec<f32> = numbers().collect();
    for (function, expected) in all {
        let mut found = numbers.clone();
        unary_chunk(function, &mut found);
        for (&x, &y) in numbers.iter().zip(&found) {
            let expected = expected(f64::from(x));
            let near = (f64::from(y) - expected).abs() <= 8e-7 * expected.abs().max(1.0);
            let same = expected.is_nan() && y.is_nan() || f64::from(y) == expected;
            assert!(near || same, "{function:?} {x:e}: {y:e}, not {expected:e}");
            let signed = x != 0.0 || function == Unary::Tanhshrink || y.to_bits() == x.to_bits();
            assert!(signed, "{function:?} {x:?}: {y:?}");
        }
    }
}

/// The result of a function for a number does not depend on its position or its neighbours.
#[test]
fn functions_are_of_single_numbers() {
    let functions = [
        Unary::Exp,
        Unary::Sigmoid,
        Unary::Tanh,
        Unary::Sin,
        Unary::Log,
        Unary::Gelu,
        Unary::Softplus(1.0, 20.0),
    ];
    let some: Vec<f32> = numbers().step_by(1009).take(400).collect();
    for function in functions {
        let mut found = some.clone();
        unary_chunk(function, &mut found);
        for (&x, &y) in some.iter().zip(&found) {
            let mut alone = [x];
            unary_chunk(function, &mut alone);
            let same = alone[0].to_bits() == y.to_bits() || y.is_nan() && alone[0].is_nan();
            assert!(same, "{function:?} {x:e}: {} and {y}", alone[0]);
        }
    }
}

#[test]
fn functions_of_two_numbers_are_right_to_the_last_bit_but_one() {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        -2.0,
        3.0,
        -3.0,
        1e30,
        -1e30,
        1e-30,
        16_777_217.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let some = numbers().step_by(97);
    let pairs = some.clone().zip(some.skip(333)).chain(
        special
            .iter()
            .flat_map(|&x| special.iter().map(move |&y| (x, y))),
    );
    for (x, y) in pairs {
        let (a, b) = (f64::from(x), f64::from(y));
        expect(1, power(x, y), a.powf(b), ("power", x, y));
        if is_usual(x) && y.is_finite() {
            expect(1, power_of_usual(x, y), a.powf(b), ("power of usual", x, y));
        }
        expect(1, atan2(x, y), a.atan2(b), ("atan2", x, y));
        expect(1, hypot(x, y), a.hypot(b), ("hypot", x, y));
        if is_small_quotient(x, y) {
            assert_eq!(fmod(x, y).to_bits(), (x % y).to_bits(), "{x:e} % {y:e}");
        }
    }
}
