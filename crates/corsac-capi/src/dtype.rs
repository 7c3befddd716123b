//! Element types.

use std::ffi::{CStr, c_char};

use corsac_engine::DType;
use corsac_ops::shape::element_bytes;

/// The type of the elements of a tensor. Floating-point numbers and integers are in the byte order
/// of the machine; a bool is a byte, of which every value but 0 is true.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// No type: that of a structure which was not filled in.
    None = 0,
    /// 32-bit floating point.
    Float32 = 1,
    /// 64-bit floating point.
    Float64 = 2,
    /// 16-bit floating point with 8 bits of exponent.
    Bfloat16 = 3,
    /// 16-bit floating point with 5 bits of exponent.
    Float16 = 4,
    /// Signed 64-bit integer.
    Int64 = 5,
    /// Signed 32-bit integer.
    Int32 = 6,
    /// Signed 16-bit integer.
    Int16 = 7,
    /// Signed 8-bit integer.
    Int8 = 8,
    /// Unsigned 8-bit integer.
    Uint8 = 9,
    /// Truth value, of one byte.
    Bool = 10,
}

/// A type: its number in C, the type of the engine, and its name.
struct Row(Dtype, DType, &'static CStr);

const TABLE: [Row; 10] = [
    Row(Dtype::Float32, DType::Float32, c"float32"),
    Row(Dtype::Float64, DType::Float64, c"float64"),
    Row(Dtype::Bfloat16, DType::BFloat16, c"bfloat16"),
    Row(Dtype::Float16, DType::Float16, c"float16"),
    Row(Dtype::Int64, DType::Int64, c"int64"),
    Row(Dtype::Int32, DType::Int32, c"int32"),
    Row(Dtype::Int16, DType::Int16, c"int16"),
    Row(Dtype::Int8, DType::Int8, c"int8"),
    Row(Dtype::Uint8, DType::UInt8, c"uint8"),
    Row(Dtype::Bool, DType::Bool, c"bool"),
];

impl Dtype {
    /// The number of a type of the engine; `None` if C has none for it.
    pub(crate) fn of(dtype: DType) -> Self {
        let row = TABLE.iter().find(|row| row.1 == dtype);
        row.map_or(Self::None, |row| row.0)
    }

    /// The type of the engine with this number.
    pub(crate) fn read(number: i32) -> Option<DType> {
        row(number).map(|row| row.1)
    }
}

fn row(number: i32) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.0 as i32 == number)
}

/// Bytes of an element.
pub(crate) fn size_bytes(dtype: DType) -> usize {
    usize::try_from(element_bytes(dtype)).unwrap_or(0)
}

/// The name of a dtype, such as "float32"; null if the number is no dtype. It lives as long as the
/// program.
#[unsafe(no_mangle)]
pub extern "C" fn corsac_dtype_name(dtype: i32) -> *const c_char {
    row(dtype).map_or(std::ptr::null(), |row| row.2.as_ptr())
}

/// Bytes of an element of a dtype; 0 if the number is no dtype.
#[unsafe(no_mangle)]
pub extern "C" fn corsac_dtype_size_bytes(dtype: i32) -> usize {
    row(dtype).map_or(0, |row| size_bytes(row.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_types_of_the_engine_have_a_number() {
        let own: Vec<DType> = TABLE.iter().map(|row| row.1).collect();
        assert_eq!(own.len(), corsac_engine::DTYPES.len());
        for &dtype in corsac_engine::DTYPES {
            let number = Dtype::of(dtype);
            assert_eq!(Dtype::read(number as i32), Some(dtype));
            // SAFETY: names are C strings that live as long as the program.
            let name = unsafe { CStr::from_ptr(corsac_dtype_name(number as i32)) };
            assert_eq!(name.to_str(), Ok(dtype.name()));
        }
        for number in [-1, 0, 11, i32::MAX, i32::MIN] {
            assert_eq!(Dtype::read(number), None);
            assert!(corsac_dtype_name(number).is_null());
            assert_eq!(corsac_dtype_size_bytes(number), 0);
        }
    }
}
