//! The structures of DLPack for tensors that are handed over, as version 1 of `dlpack.h` lays them out.

use std::ffi::c_void;

pub(crate) use corsac_engine::dlpack::{DLDataType, DLDevice, DLTensor};

/// `DLPackVersion`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLPackVersion {
    /// Another one has another layout.
    pub major: u32,
    /// Another one has other constants.
    pub minor: u32,
}

/// `DLManagedTensor`
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// What the owner makes of it.
    pub manager_ctx: *mut c_void,
    /// Gives the tensor back, with its structures.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// `DLManagedTensorVersioned`
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// The version of the structure.
    pub version: DLPackVersion,
    /// What the owner makes of it.
    pub manager_ctx: *mut c_void,
    /// Gives the tensor back, with its structures.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
    /// `DLPACK_FLAG_BITMASK_READ_ONLY` and others.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Computed by gcc 12 from `dlpack.h` 1.3, on x86-64.
    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!(size_of::<DLTensor>(), 48);
        let own = [
            offset_of!(DLTensor, data),
            offset_of!(DLTensor, device),
            offset_of!(DLTensor, ndim),
            offset_of!(DLTensor, dtype),
            offset_of!(DLTensor, shape),
            offset_of!(DLTensor, strides),
            offset_of!(DLTensor, byte_offset),
        ];
        assert_eq!(own, [0, 8, 16, 20, 24, 32, 40]);
        assert_eq!(size_of::<DLManagedTensor>(), 64);
        let own = [
            offset_of!(DLManagedTensor, dl_tensor),
            offset_of!(DLManagedTensor, manager_ctx),
            offset_of!(DLManagedTensor, deleter),
        ];
        assert_eq!(own, [0, 48, 56]);
        assert_eq!(size_of::<DLManagedTensorVersioned>(), 80);
        let own = [
            offset_of!(DLManagedTensorVersioned, version),
            offset_of!(DLManagedTensorVersioned, manager_ctx),
            offset_of!(DLManagedTensorVersioned, deleter),
            offset_of!(DLManagedTensorVersioned, flags),
            offset_of!(DLManagedTensorVersioned, dl_tensor),
        ];
        assert_eq!(own, [0, 8, 16, 24, 32]);
    }
}
