//! Element types: their widths, and the promoted type of several.
//!
//! Source: <https://pytorch.org/docs/stable/tensor_attributes.html#type-promotion>.

use corsac_ir::DType;

use super::error::Failure;
use super::value::Value;

/// The kind of numbers of a type; a later kind wins over an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Truth values.
    Bool,
    /// Integers.
    Int,
    /// Floating-point numbers.
    Float,
    /// Complex numbers.
    Complex,
}

/// The kind of numbers of `dtype`; `None` for quantised types and bare bits.
#[must_use]
pub fn kind(dtype: DType) -> Option<Kind> {
    use DType as D;
    Some(match dtype {
        D::Bool => Kind::Bool,
        D::Int64 | D::Int32 | D::Int16 | D::Int8 | D::UInt64 | D::UInt32 | D::UInt16 | D::UInt8 => {
            Kind::Int
        }
        D::Float64
        | D::Float32
        | D::Float16
        | D::BFloat16
        | D::Float8E4M3Fn
        | D::Float8E4M3FnUz
        | D::Float8E5M2
        | D::Float8E5M2FnUz
        | D::Float8E8M0Fnu => Kind::Float,
        D::Complex128 | D::Complex64 | D::Complex32 => Kind::Complex,
        _ => return None,
    })
}

/// Whether `dtype` is floating-point or complex, as autograd requires.
#[must_use]
pub(super) fn is_inexact(dtype: DType) -> bool {
    kind(dtype).is_some_and(|kind| kind >= Kind::Float)
}

/// Bytes of an element. Types narrower than a byte count as those that hold them.
#[must_use]
pub fn element_bytes(dtype: DType) -> i64 {
    use DType as D;
    match dtype {
        D::Complex128 => 16,
        D::Float64 | D::Complex64 | D::Int64 | D::UInt64 => 8,
        D::Float32 | D::Complex32 | D::Int32 | D::UInt32 | D::QInt32 => 4,
        D::Float16 | D::BFloat16 | D::Int16 | D::UInt16 | D::Bits16 => 2,
        _ => 1,
    }
}

/// The type of the real and imaginary parts of a complex type; any other type itself.
#[must_use]
pub(super) fn real_part(dtype: DType) -> DType {
    match dtype {
        DType::Complex128 => DType::Float64,
        DType::Complex64 => DType::Float32,
        DType::Complex32 => DType::Float16,
        other => other,
    }
}

/// The complex type whose parts are of this floating-point type.
#[must_use]
pub(super) fn complex_of(dtype: DType) -> Option<DType> {
    Some(match dtype {
        DType::Float64 => DType::Complex128,
        DType::Float32 | DType::BFloat16 => DType::Complex64,
        DType::Float16 => DType::Complex32,
        _ => return None,
    })
}

/// `torch.promote_types(a, b)`; `None` where PyTorch has none.
#[must_use]
pub fn promote(a: DType, b: DType) -> Option<DType> {
    use DType as D;
    if a == b {
        return Some(a);
    }
    let (low, high) = if kind(a)? <= kind(b)? { (a, b) } else { (b, a) };
    match (kind(low)?, kind(high)?) {
        (Kind::Bool, _) | (Kind::Int, Kind::Float | Kind::Complex) => Some(high),
        (Kind::Int, _) => {
            let unsigned = |d| matches!(d, D::UInt64 | D::UInt32 | D::UInt16);
            if unsigned(low) || unsigned(high) {
                return None;
            }
            match (low, high) {
                (D::UInt8, D::Int8) | (D::Int8, D::UInt8) => Some(D::Int16),
                _ if element_bytes(low) > element_bytes(high) => Some(low),
                _ => Some(high),
            }
        }
        (Kind::Float, Kind::Float) => {
            if element_bytes(low) == 1 || element_bytes(high) == 1 {
                return None;
            }
            match (low, high) {
                (D::Float16, D::BFloat16) | (D::BFloat16, D::Float16) => Some(D::Float32),
                _ if element_bytes(low) > element_bytes(high) => Some(low),
                _ => Some(high),
            }
        }
        (Kind::Float, Kind::Complex) => promote(complex_of(low)?, high),
        _ if element_bytes(low) > element_bytes(high) => Some(low),
        _ => Some(high),
    }
}

/// The type of a result computed from several tensors and numbers.
///
/// Tensors with dimensions decide first, then tensors without, then plain numbers, each only where
/// it is of a higher kind than those before. Source: `torch.result_type`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResultType {
    with_dims: Option<DType>,
    without_dims: Option<DType>,
    number: Option<DType>,
}

impl ResultType {
    /// Takes an operand into account.
    ///
    /// # Errors
    /// If it is no tensor or number, or PyTorch does not promote these types.
    pub(super) fn add(&mut self, operand: &Value) -> Result<(), Failure> {
        let (slot, dtype) = match operand {
            Value::Tensor(tensor) if tensor.rank() > 0 => (&mut self.with_dims, tensor.dtype),
            Value::Tensor(tensor) => (&mut self.without_dims, tensor.dtype),
            number => (&mut self.number, number_type(number)?),
        };
        *slot = match *slot {
            None => Some(dtype),
            Some(before) => Some(promote(before, dtype).ok_or_else(|| {
                Failure::unknown(format!("PyTorch does not promote {before} and {dtype}"))
            })?),
        };
        Ok(())
    }

    /// Whether a plain number is floating-point or complex and no tensor is.
    #[must_use]
    pub(super) fn only_number_is_inexact(self) -> bool {
        let inexact = |dtype: Option<DType>| dtype.is_some_and(is_inexact);
        inexact(self.number) && !inexact(self.with_dims) && !inexact(self.without_dims)
    }

    /// The type of the result.
    ///
    /// # Errors
    /// If there was no operand, or PyTorch does not promote these types.
    pub(super) fn dtype(self) -> Result<DType, Failure> {
        let mut result: Option<DType> = None;
        for next in [self.with_dims, self.without_dims, self.number] {
            let Some(next) = next else { continue };
            result = Some(match result {
                None => next,
                // A complex number makes a tensor complex and keeps its precision.
                Some(before)
                    if kind(next) == Some(Kind::Complex) && kind(before) == Some(Kind::Float) =>
                {
                    complex_of(before).unwrap_or(next)
                }
                Some(before) if kind(next) > kind(before) => next,
                Some(before) => before,
            });
        }
        result.ok_or_else(|| Failure::unknown("there is no operand".to_owned()))
    }
}

/// The type of a Python number among tensors.
fn number_type(value: &Value) -> Result<DType, Failure> {
    Ok(match value {
        Value::Bool(_) | Value::Number(Kind::Bool) => DType::Bool,
        Value::Int(_) | Value::Number(Kind::Int) => DType::Int64,
        Value::Float(_) | Value::Number(Kind::Float) => DType::Float32,
        Value::Complex(..) | Value::Number(Kind::Complex) => DType::Complex64,
        other => return Err(Failure::expected("a tensor or a number", other)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_promoted_as_pytorch_does() {
        use DType as D;
        let cases = [
            (D::Bool, D::UInt8, Some(D::UInt8)),
            (D::UInt8, D::Int8, Some(D::Int16)),
            (D::Int64, D::Float16, Some(D::Float16)),
            (D::Float16, D::BFloat16, Some(D::Float32)),
            (D::Float64, D::Complex64, Some(D::Complex128)),
            (D::UInt16, D::Int32, None),
            (D::Float8E5M2, D::Float32, None),
        ];
        for (a, b, expected) in cases {
            assert_eq!(promote(a, b), expected, "{a} {b}");
            assert_eq!(promote(b, a), expected, "{b} {a}");
        }
    }
}
