//! Numbers of any element type.

use super::Element;

/// A number of the type of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// An integer or a boolean.
    Int(i64),
    /// A floating-point number.
    Float(f64),
}

impl Scalar {
    pub(crate) fn float(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    pub(crate) fn int(self) -> i64 {
        match self {
            Self::Int(value) => value,
            Self::Float(value) => float_to_int(value),
        }
    }
}

/// Converts a number as PyTorch does on x86: the smallest integer if it does not fit.
#[inline(always)]
pub(crate) fn float_to_int(x: f64) -> i64 {
    // 2^63 is the first number that does not fit.
    match (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&x) {
        true => x as i64,
        false => i64::MIN,
    }
}

impl Element {
    /// Zero, as a number of this type.
    #[must_use]
    pub fn zero(self) -> Scalar {
        match self {
            Self::F32 | Self::F64 => Scalar::Float(0.0),
            Self::I64 | Self::Bool => Scalar::Int(0),
        }
    }
}
