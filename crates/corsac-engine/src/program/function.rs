//! Functions of one, two and three numbers, comparisons and reductions.

use corsac_ir::DType;
use corsac_kernels::int8::Quantisation;
use corsac_kernels::{bf16, f16};

/// Functions of one number. Parameters are rounded to the type of the numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// `max(x, 0)`, NaN for NaN
    Relu,
    /// `min(max(x, low), high)`
    Clamp(f64, f64),
    /// `x` if positive, otherwise times the slope
    LeakyRelu(f64),
    /// `x` if positive, otherwise `alpha * (exp(x) - 1)`
    Elu(f64),
    /// `x * min(max(x + 3, 0), 6) / 6`
    Hardswish,
    /// `min(max(x + 3, 0), 6) / 6`
    Hardsigmoid,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `x * sigmoid(x)`
    Silu,
    /// Hyperbolic tangent.
    Tanh,
    /// `x * Φ(x)`, by the error function
    Gelu,
    /// `gelu` by its approximation with the hyperbolic tangent
    GeluTanh,
    /// The error function.
    Erf,
    /// Exponential function.
    Exp,
    /// Natural logarithm.
    Log,
    /// Square root.
    Sqrt,
    /// One over the square root.
    Rsqrt,
    /// Absolute value.
    Abs,
    /// `scale * x + offset`. Adding -0.0 changes nothing, not even the sign of a zero.
    Affine(f64, f64),
    /// `x / divisor`
    DivideBy(f64),
    /// `x ** exponent`
    Power(f64),
    /// `numerator / x`
    DivideInto(f64),
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Tangent.
    Tan,
    /// Inverse sine.
    Asin,
    /// Inverse cosine.
    Acos,
    /// Inverse tangent.
    Atan,
    /// Hyperbolic sine.
    Sinh,
    /// Hyperbolic cosine.
    Cosh,
    /// Inverse hyperbolic sine.
    Asinh,
    /// Inverse hyperbolic cosine.
    Acosh,
    /// Inverse hyperbolic tangent.
    Atanh,
    /// `2 ** x`
    Exp2,
    /// `exp(x) - 1`
    Expm1,
    /// `log(1 + x)`
    Log1p,
    /// Logarithm to base 2.
    Log2,
    /// Logarithm to base 10.
    Log10,
    /// The next integer below.
    Floor,
    /// The next integer above.
    Ceil,
    /// The nearest integer, the even one of two.
    Round,
    /// The next integer towards zero.
    Trunc,
    /// The fractional part.
    Frac,
    /// -1, 0 or 1.
    Sign,
    /// `log(1 + exp(beta * x)) / beta`; `x` where `beta * x` is larger than the threshold.
    Softplus(f64, f64),
    /// `x * tanh(softplus(x))`
    Mish,
    /// `x / (1 + |x|)`
    Softsign,
    /// `log(sigmoid(x))`
    LogSigmoid,
    /// `x` moved towards zero by this much, but not past it.
    Softshrink(f64),
    /// `x`; 0 if its absolute value is at most this.
    Hardshrink(f64),
    /// `x - tanh(x)`
    Tanhshrink,
    /// `x` above the first number, otherwise the second.
    Threshold(f64, f64),
    /// `max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))`
    Celu(f64),
    /// The nearest number of a type of 16 bits.
    RoundTo(Half),
    /// `x`; this for NaN.
    NanTo(f64),
    /// The level of a number: `round(x * inverse) + zero`, ties to even, within bounds; 0 for NaN.
    Quantise(Levels),
    /// The number of a level: `(x - zero) * scale`
    Dequantise {
        /// The level of 0.
        zero: f32,
        /// Distance of the numbers of neighbouring levels.
        scale: f32,
    },
}

/// Levels of quantised numbers: integers, as floating-point numbers. Source: `quantize_per_tensor` of
/// `torch.ops.quantized_decomposed`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Levels {
    /// One over the distance of the numbers of neighbouring levels.
    pub inverse: f32,
    /// The level of 0.
    pub zero: f32,
    /// The lowest and the highest level.
    pub bounds: [f32; 2],
    /// The level of NaN: the integer 0.
    pub of_nan: f32,
}

/// Numbers rounded to the levels of bytes before they are multiplied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rounding {
    /// These, with this distance of the numbers of neighbours.
    Levels(Levels, f32),
    /// 256 that span the range of each row and 0: signed ones, or unsigned ones.
    ByRow {
        /// Whether they are those of signed bytes.
        signed: bool,
    },
}

impl Rounding {
    /// The bounds of levels of rows.
    pub(crate) fn bounds(signed: bool) -> [i32; 2] {
        match signed {
            true => [-128, 127],
            false => [0, 255],
        }
    }

    /// The bits that tell it from others.
    pub(crate) fn bits(self) -> [u32; 5] {
        match self {
            Self::Levels(levels, scale) => {
                let [low, high] = levels.bounds;
                [levels.inverse, levels.zero, low, high, scale].map(f32::to_bits)
            }
            Self::ByRow { signed } => [u32::from(signed); 5],
        }
    }
}

impl Levels {
    /// Whether they are those of signed bytes, and not of unsigned ones.
    pub(crate) fn are_signed(self) -> bool {
        self.bounds[0] < 0.0
    }

    /// Whether they are those of bytes: signed ones, or unsigned ones.
    pub(crate) fn are_bytes(self) -> bool {
        let [low, high] = self.bounds;
        let range = match self.are_signed() {
            true => -128.0..=127.0,
            false => 0.0..=255.0,
        };
        let zero = range.contains(&self.zero) && self.zero.fract() == 0.0;
        zero && range.contains(&low) && range.contains(&high) && low <= high
    }

    /// The level of 0 among unsigned bytes, to which those of signed ones are moved by 128.
    pub(crate) fn byte_zero(self) -> i32 {
        self.zero as i32 + if self.are_signed() { 128 } else { 0 }
    }

    /// The same levels as unsigned bytes.
    pub(crate) fn as_bytes(self) -> Self {
        let moved = if self.are_signed() { 128.0 } else { 0.0 };
        Self {
            zero: self.zero + moved,
            bounds: self.bounds.map(|bound| bound + moved),
            of_nan: self.of_nan + moved,
            ..self
        }
    }

    /// The levels of which a function of bytes makes the same bytes, if it only clamps those of these
    /// levels.
    pub(crate) fn clamped(self, table: &[u8; 256]) -> Option<Self> {
        let own = self.as_bytes();
        let [low, high] = own.bounds.map(|bound| bound as u8);
        let bounds = [table[usize::from(low)], table[usize::from(high)]];
        let mut bytes = low..=high;
        let clamps = bounds[0] <= bounds[1]
            && bytes.all(|byte| table[usize::from(byte)] == byte.clamp(bounds[0], bounds[1]));
        let of_nan = own.of_nan as u8;
        let moved = self.byte_zero() as f32 - self.zero;
        let clamped = Self {
            bounds: bounds.map(|byte| f32::from(byte) - moved),
            ..self
        };
        let same =
            table[usize::from(of_nan)] == of_nan && clamped.are_signed() == self.are_signed();
        (clamps && same && low <= high).then_some(clamped)
    }

    /// The conversion of kernels.
    pub(crate) fn quantisation(self) -> Quantisation {
        Quantisation {
            inverse_scale: self.inverse,
            zero_point: self.zero as i32,
            bounds: self.bounds.map(|bound| bound as i32),
        }
    }

    /// The level of a number.
    #[inline(always)]
    #[must_use]
    pub fn of(self, x: f32) -> f32 {
        let level = (x * self.inverse).round_ties_even() + self.zero;
        let [low, high] = self.bounds;
        // Comparisons with NaN are false, and NaN becomes 0 as an integer.
        let level = if level < low { low } else { level };
        let level = if level > high { high } else { level };
        if level.is_nan() { self.of_nan } else { level }
    }
}

/// Floating-point types of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// 8 bits of exponent, 8 of precision.
    Bf16,
    /// 5 bits of exponent, 11 of precision.
    F16,
}

impl Half {
    /// The type of PyTorch's name; `None` for those of other sizes.
    #[must_use]
    pub fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::BFloat16 => Some(Self::Bf16),
            DType::Float16 => Some(Self::F16),
            _ => None,
        }
    }

    /// PyTorch's name of the type.
    pub(crate) fn dtype(self) -> DType {
        match self {
            Self::Bf16 => DType::BFloat16,
            Self::F16 => DType::Float16,
        }
    }

    /// Converts numbers of this type, given as bits, exactly.
    ///
    /// # Panics
    /// If `to` has another length.
    pub fn widen(self, from: &[u16], to: &mut [f32]) {
        match self {
            Self::Bf16 => bf16::widen(from, to),
            Self::F16 => f16::widen(from, to),
        }
    }

    /// Rounds to the nearest numbers of this type, as bits.
    ///
    /// # Panics
    /// If `to` has another length.
    pub fn round(self, from: &[f32], to: &mut [u16]) {
        match self {
            Self::Bf16 => bf16::round(from, to),
            Self::F16 => f16::round(from, to),
        }
    }

    /// The nearest number of this type, ties to even.
    #[inline(always)]
    #[must_use]
    pub fn nearest(self, x: f32) -> f32 {
        match self {
            Self::Bf16 => bf16::widened(bf16::rounded(x)),
            Self::F16 => f16::nearest(x),
        }
    }
}

impl Unary {
    /// `factor * x`, with the sign that PyTorch gives a zero.
    #[must_use]
    pub fn scale(factor: f64) -> Self {
        Self::Affine(factor, -0.0)
    }

    /// `x / divisor`: a product with the inverse where the results are equal.
    #[must_use]
    pub fn divide_by(divisor: f64) -> Self {
        let factor = 1.0 / divisor;
        // A power of two: its fraction has no bits, and its inverse is exact, in single precision too.
        let is_normal = |x: f64| (x as f32).is_normal();
        let is_exact = divisor.to_bits() << 12 == 0 && is_normal(divisor) && is_normal(factor);
        match is_exact {
            true => Self::scale(factor),
            false => Self::DivideBy(divisor),
        }
    }
}

/// Functions of two numbers, over tensors of broadcast shapes: those that every kernel of f32 has, in vectors, over rows,
/// in fused steps and over blocked images.
///
/// [`Arithmetic`](super::Arithmetic) has functions of elements of any type, which fewer kernels have. They are two enums
/// so that these kernels match the seven functions without a case that cannot occur, and no step of f32 is lowered to a
/// function that they lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`
    Div,
    /// The larger one, NaN if one is.
    Maximum,
    /// The smaller one, NaN if one is.
    Minimum,
    /// The first if it is positive, otherwise their product.
    Prelu,
}

/// A reduction of the elements along some dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// Their product.
    Product,
    /// The largest; of booleans, whether any is true.
    Max,
    /// The smallest; of booleans, whether all are true.
    Min,
}

/// Comparison of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `a == b`
    Eq,
    /// `a != b`
    Ne,
    /// `a < b`
    Lt,
    /// `a <= b`
    Le,
    /// `a > b`
    Gt,
    /// `a >= b`
    Ge,
}

/// A function of three floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ternary {
    /// Linear interpolation between the first two, by the third.
    Lerp,
    /// The first, plus the product of the others times a number.
    AddProduct(f64),
    /// The first, plus the quotient of the others times a number.
    AddQuotient(f64),
}
