//! Functions of two elements of one type.

use super::{Element, Float};

/// Functions of two elements of one type, with a result of that type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// The larger one.
    Maximum,
    /// The smaller one.
    Minimum,
    /// The larger one; if one is NaN, the other.
    Fmax,
    /// The smaller one; if one is NaN, the other.
    Fmin,
    /// Division, rounded down.
    FloorDivide,
    /// Division, rounded to zero.
    TruncDivide,
    /// Remainder of a division rounded down: it has the sign of `b`.
    Remainder,
    /// Remainder of a division rounded to zero: it has the sign of `a`.
    Fmod,
    /// `a ** b`
    Power,
    /// The angle of the point `(b, a)`.
    Atan2,
    /// `sqrt(a * a + b * b)`
    Hypot,
    /// The bits that are set in both.
    And,
    /// The bits that are set in at least one.
    Or,
    /// The bits that are set in exactly one.
    Xor,
}

impl Arithmetic {
    /// Whether integers cannot be divided by a second operand of zero.
    pub(crate) fn divides(self) -> bool {
        matches!(
            self,
            Self::FloorDivide | Self::TruncDivide | Self::Remainder | Self::Fmod
        )
    }

    /// Whether the function is defined for elements of this type.
    #[must_use]
    pub fn is_of(self, element: Element) -> bool {
        match self {
            Self::Add | Self::Mul | Self::Maximum | Self::Minimum | Self::Fmax | Self::Fmin => true,
            Self::And | Self::Or | Self::Xor => !element.is_float(),
            Self::Sub
            | Self::FloorDivide
            | Self::TruncDivide
            | Self::Remainder
            | Self::Fmod
            | Self::Power => element != Element::Bool,
            Self::Atan2 | Self::Hypot => element.is_float(),
        }
    }
}

/// The function of floating-point numbers.
pub(crate) fn of_floats<T: Float>(function: Arithmetic) -> fn(T, T) -> T {
    match function {
        Arithmetic::Add => |a, b| a + b,
        Arithmetic::Sub => |a, b| a - b,
        Arithmetic::Mul => |a, b| a * b,
        Arithmetic::Maximum => |a, b| if a > b || a.is_nan() { a } else { b },
        Arithmetic::Minimum => |a, b| if a < b || a.is_nan() { a } else { b },
        Arithmetic::Fmax => T::max,
        Arithmetic::Fmin => T::min,
        Arithmetic::FloorDivide => |a, b| floor_divide(a, b, a % b),
        Arithmetic::TruncDivide => |a, b| (a / b).trunc(),
        Arithmetic::Remainder => |a, b| {
            let rest = a % b;
            if rest != T::of(0.0) && (rest < T::of(0.0)) != (b < T::of(0.0)) {
                rest + b
            } else {
                rest
            }
        },
        Arithmetic::Fmod => |a, b| a % b,
        Arithmetic::Power => T::powf,
        Arithmetic::Atan2 => T::atan2,
        Arithmetic::Hypot => T::hypot,
        // Not defined for floating-point numbers.
        Arithmetic::And | Arithmetic::Or | Arithmetic::Xor => |a, _| a,
    }
}

/// The quotient rounded down, where `rest` is the remainder. Source: `div_floor_floating` of
/// PyTorch, which is Python's.
#[inline(always)]
pub(crate) fn floor_divide<T: Float>(a: T, b: T, rest: T) -> T {
    let [zero, one, half] = [0.0, 1.0, 0.5].map(T::of);
    let exact = (a - rest) / b;
    let is_below = rest != zero && (b < zero) != (rest < zero);
    let exact = if is_below { exact - one } else { exact };
    let floor = exact.floor();
    let nearest = if exact - floor > half {
        floor + one
    } else {
        floor
    };
    let signed = zero.copysign(a / b);
    let found = if exact == zero { signed } else { nearest };
    if b == zero { a / b } else { found }
}

/// The function of integers.
pub(crate) fn of_integers(function: Arithmetic) -> fn(i64, i64) -> i64 {
    match function {
        Arithmetic::Add => i64::wrapping_add,
        Arithmetic::Sub => i64::wrapping_sub,
        Arithmetic::Mul => i64::wrapping_mul,
        Arithmetic::Maximum | Arithmetic::Fmax => i64::max,
        Arithmetic::Minimum | Arithmetic::Fmin => i64::min,
        Arithmetic::FloorDivide => |a, b| {
            let quotient = a.wrapping_div(b);
            let inexact = a.wrapping_rem(b) != 0 && (a < 0) != (b < 0);
            quotient - i64::from(inexact)
        },
        Arithmetic::TruncDivide => i64::wrapping_div,
        Arithmetic::Remainder => |a, b| {
            let rest = a.wrapping_rem(b);
            match rest != 0 && (rest < 0) != (b < 0) {
                true => rest + b,
                false => rest,
            }
        },
        Arithmetic::Fmod => i64::wrapping_rem,
        Arithmetic::Power => |a, b| match u32::try_from(b) {
            Ok(exponent) => a.wrapping_pow(exponent),
            // Negative exponents are refused when a program is made, if they are known.
            Err(_) => match (a, b % 2 == 0) {
                (1, _) | (-1, true) => 1,
                (-1, false) => -1,
                _ => 0,
            },
        },
        Arithmetic::And => |a, b| a & b,
        Arithmetic::Or => |a, b| a | b,
        Arithmetic::Xor => |a, b| a ^ b,
        // Defined for floating-point numbers only.
        Arithmetic::Atan2 | Arithmetic::Hypot => |a, _| a,
    }
}

/// Converts a number to a 32-bit integer as x86 does, and PyTorch on the way to narrower ones: the
/// least integer if it does not fit, or is NaN.
pub(crate) fn of_32_bits(number: f64) -> i64 {
    match (-2147483648.0..2147483648.0).contains(&number) {
        true => number as i64,
        false => i64::from(i32::MIN),
    }
}

/// `number` wrapped to this many bits.
pub(crate) fn wrapped(number: i64, bits: u32, signed: bool) -> i64 {
    let away = i64::BITS - bits;
    match signed {
        true => (number << away) >> away,
        false => (((number << away) as u64) >> away) as i64,
    }
}
