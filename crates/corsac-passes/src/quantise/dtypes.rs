//! Element types as observers have them, by name: some are no element types of tensors.

/// The element type of values that are not quantised.
pub(crate) const FLOAT: &str = "float32";
/// The element type of half precision.
pub(crate) const HALF: &str = "float16";
/// The element type of quantised inputs and results of a program.
pub(crate) const QUINT8: &str = "quint8";

/// Whether a value that is to have this element type is observed.
pub(crate) fn is_observed(dtype: &str) -> bool {
    matches!(
        dtype,
        "quint8"
            | "qint8"
            | "qint32"
            | "float16"
            | "uint8"
            | "int8"
            | "int16"
            | "int32"
            | "float8_e5m2"
            | "float8_e4m3fn"
    )
}
