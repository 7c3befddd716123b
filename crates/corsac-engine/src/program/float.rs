//! Floating-point types.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, Neg, Rem, Sub};

/// The floating-point types that kernels compute with.
pub trait Float:
    Copy
    + Default
    + Send
    + Sync
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Rem<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + DivAssign
    + Sum
    + 'static
{
    /// The number nearest to `number`.
    fn of(number: f64) -> Self;
    /// The number nearest to an integer.
    fn of_integer(number: i64) -> Self;
    /// Whether it is NaN.
    fn is_nan(self) -> bool;
    /// The absolute value.
    fn abs(self) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// The next integer towards zero.
    fn trunc(self) -> Self;
    /// The next integer below.
    fn floor(self) -> Self;
    /// The nearest integer, the even one of two.
    fn round_ties_even(self) -> Self;
    /// The larger one; if one is NaN, the other.
    fn max(self, other: Self) -> Self;
    /// The smaller one; if one is NaN, the other.
    fn min(self, other: Self) -> Self;
    /// The absolute value with the sign of another number.
    fn copysign(self, sign: Self) -> Self;
    /// A power.
    fn powf(self, exponent: Self) -> Self;
    /// The angle of the point `(other, self)`.
    fn atan2(self, other: Self) -> Self;
    /// The length of the vector `(self, other)`.
    fn hypot(self, other: Self) -> Self;
}

/// Implements [`Float`] by the functions of the standard library.
macro_rules! float {
    ($type:ty: $($unary:ident),*; $($binary:ident),*) => {
        impl Float for $type {
            #[inline(always)]
            fn of(number: f64) -> Self {
                number as Self
            }

            #[inline(always)]
            fn of_integer(number: i64) -> Self {
                number as Self
            }

            #[inline(always)]
            fn is_nan(self) -> bool {
                <$type>::is_nan(self)
            }

            $(#[inline(always)]
            fn $unary(self) -> Self {
                <$type>::$unary(self)
            })*

            $(#[inline(always)]
            fn $binary(self, other: Self) -> Self {
                <$type>::$binary(self, other)
            })*
        }
    };
}

float!(f32: abs, sqrt, trunc, floor, round_ties_even; max, min, copysign, powf, atan2, hypot);
float!(f64: abs, sqrt, trunc, floor, round_ties_even; max, min, copysign, powf, atan2, hypot);
