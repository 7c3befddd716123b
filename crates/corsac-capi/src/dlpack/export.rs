//! Tensors for others.

use corsac_engine::dlpack::CPU;

use super::abi::{DLDataType, DLTensor};
use super::managed::Managed;
use crate::error::Fault;
use crate::memory::Keeper;
use crate::pointer::free;
use crate::tensor::TensorHandle;

/// A managed tensor of this library, with all that it points to.
#[repr(C)]
struct Exported<T> {
    /// The first member, so that a pointer to it is one to all.
    managed: T,
    _shape: Vec<i64>,
    _strides: Vec<i64>,
    _keeper: Keeper,
}

/// Gives an exported tensor back.
///
/// # Safety
/// `managed` is null, or was made by [`export`] and is used no more.
unsafe extern "C" fn delete<T>(managed: *mut T) {
    // SAFETY: by the contract of this function.
    unsafe { free(managed.cast::<Exported<T>>()) };
}

/// A managed tensor that shares the memory of `tensor`, which may be freed before it.
pub(super) fn export<T: Managed>(tensor: &TensorHandle) -> Result<*mut T, Fault> {
    let layout = tensor.layout();
    let dtype = layout.dtype();
    let dtype = DLDataType::of(dtype).ok_or_else(|| Fault::Elements(dtype.name().to_owned()))?;
    let view = tensor.view();
    let mut shape: Vec<i64> = tensor.shape().into();
    let mut strides: Vec<i64> = tensor.strides().into();
    let own = DLTensor {
        data: match layout.len() {
            0 => std::ptr::null_mut(),
            _ => view.data,
        },
        device: CPU,
        ndim: view.rank,
        dtype,
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let exported = Box::new(Exported {
        managed: T::new(own, tensor.is_read_only(), delete::<T>)?,
        _shape: shape,
        _strides: strides,
        _keeper: tensor.keeper(),
    });
    Ok(Box::into_raw(exported).cast())
}
