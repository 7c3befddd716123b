//! Kinds of element types.

use corsac_ir::DType;

/// Whether values of this type are rounded: floating-point numbers.
pub(crate) fn is_floating(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::Float64 | DType::Float32 | DType::Float16 | DType::BFloat16
    )
}

/// Whether values of this type are complex numbers.
pub(crate) fn is_complex(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::Complex128 | DType::Complex64 | DType::Complex32
    )
}

/// Whether values of this type are integers that wrap.
pub(crate) fn is_integral(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::Int64
            | DType::Int32
            | DType::Int16
            | DType::Int8
            | DType::UInt64
            | DType::UInt32
            | DType::UInt16
            | DType::UInt8
    )
}
