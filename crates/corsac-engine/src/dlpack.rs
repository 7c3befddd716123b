//! How DLPack describes a tensor, as version 1 of `dlpack.h` lays it out.

use std::ffi::c_void;

use corsac_ir::DType;

/// `DLDevice`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLDevice {
    /// `kDLCPU` and others.
    pub device_type: i32,
    /// The number of the device among those of its type.
    pub device_id: i32,
}

/// The memory of the process.
pub const CPU: DLDevice = DLDevice {
    device_type: 1,
    device_id: 0,
};

/// `DLDataType`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// `kDLFloat` and others.
    pub code: u8,
    /// Bits of a number.
    pub bits: u8,
    /// Numbers of an element.
    pub lanes: u16,
}

/// `DLTensor`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    /// The start of the memory.
    pub data: *mut c_void,
    /// Where the memory is.
    pub device: DLDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// The type of the elements.
    pub dtype: DLDataType,
    /// Sizes.
    pub shape: *mut i64,
    /// Strides in elements; null for rows without gaps.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

impl DLDataType {
    /// The numbers of a type of [programs](crate::DTYPES); `None` for others.
    #[must_use]
    pub fn of(dtype: DType) -> Option<Self> {
        // `kDLInt`, `kDLUInt`, `kDLFloat`, `kDLBfloat`, `kDLBool`
        let (code, bits) = match dtype {
            DType::Int8 => (0, 8),
            DType::Int16 => (0, 16),
            DType::Int32 => (0, 32),
            DType::Int64 => (0, 64),
            DType::UInt8 => (1, 8),
            DType::Float16 => (2, 16),
            DType::Float32 => (2, 32),
            DType::Float64 => (2, 64),
            DType::BFloat16 => (4, 16),
            DType::Bool => (6, 8),
            _ => return None,
        };
        Some(Self {
            code,
            bits,
            lanes: 1,
        })
    }

    /// The type of programs with these numbers, if there is one.
    #[must_use]
    pub fn dtype(self) -> Option<DType> {
        let found = match (self.code, self.bits) {
            (0, 8) => DType::Int8,
            (0, 16) => DType::Int16,
            (0, 32) => DType::Int32,
            (0, 64) => DType::Int64,
            (1, 8) => DType::UInt8,
            (2, 16) => DType::Float16,
            (2, 32) => DType::Float32,
            (2, 64) => DType::Float64,
            (4, 16) => DType::BFloat16,
            (6, 8) => DType::Bool,
            _ => return None,
        };
        (self.lanes == 1).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_programs_have_numbers() {
        for &dtype in crate::DTYPES {
            let own = DLDataType::of(dtype).expect("numbers");
            assert_eq!(own.dtype(), Some(dtype));
            assert_eq!(DLDataType { lanes: 2, ..own }.dtype(), None);
        }
        assert_eq!(DLDataType::of(DType::Complex64), None);
        assert_eq!(
            DLDataType {
                code: 5,
                bits: 64,
                lanes: 1
            }
            .dtype(),
            None
        );
    }
}
