//! Tensors of DLPack, in and out.

pub(crate) mod abi;
mod codes;
mod export;
mod import;
mod managed;

pub use abi::{DLManagedTensor, DLManagedTensorVersioned};

use crate::border::{ErrorHandle, call};
use crate::error::{Error, Status};
use crate::pointer::{Place, given};
use crate::tensor::TensorHandle;
use managed::Managed;

/// Takes over a tensor of DLPack on the CPU, without a copy.
///
/// On success `*tensor` is the caller's to free with corsac_tensor_free, and `managed` belongs to it: its
/// deleter is called once, by the thread that frees the last user of the memory. On failure `*tensor` is
/// null, and `managed` stays the caller's.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_tensor_from_dlpack(
    managed: *mut DLManagedTensor,
    tensor: *mut *mut TensorHandle,
    error: *mut *mut ErrorHandle,
) -> Status {
    // SAFETY: by the contract of this function.
    unsafe { take(managed, tensor, error) }
}

/// As corsac_tensor_from_dlpack, for the versioned form. A tensor that is flagged as read-only is
/// not taken as an output.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_tensor_from_dlpack_versioned(
    managed: *mut DLManagedTensorVersioned,
    tensor: *mut *mut TensorHandle,
    error: *mut *mut ErrorHandle,
) -> Status {
    // SAFETY: by the contract of this function.
    unsafe { take(managed, tensor, error) }
}

/// Exports a tensor by DLPack, without a copy.
///
/// On success `*managed` is the caller's to give back by its deleter, on any thread; it shares the memory
/// of `tensor`, which may be freed before. On failure `*managed` is null. A read-only tensor is
/// refused, since this form cannot say so.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_tensor_to_dlpack(
    tensor: *const TensorHandle,
    managed: *mut *mut DLManagedTensor,
    error: *mut *mut ErrorHandle,
) -> Status {
    // SAFETY: by the contract of this function.
    unsafe { give(tensor, managed, error) }
}

/// As corsac_tensor_to_dlpack, in the versioned form, which flags tensors that are read-only.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_tensor_to_dlpack_versioned(
    tensor: *const TensorHandle,
    managed: *mut *mut DLManagedTensorVersioned,
    error: *mut *mut ErrorHandle,
) -> Status {
    // SAFETY: by the contract of this function.
    unsafe { give(tensor, managed, error) }
}

/// # Safety
/// Those of [`corsac_tensor_from_dlpack`].
unsafe fn take<T: Managed>(
    managed: *mut T,
    tensor: *mut *mut TensorHandle,
    error: *mut *mut ErrorHandle,
) -> Status {
    let take = || {
        // SAFETY: by the contract of this function.
        let place = unsafe { Place::of_handle(tensor, "tensor") }?;
        if managed.is_null() {
            return Err(Error::Null { what: "managed" });
        }
        // SAFETY: by the contract of this function.
        place.give(unsafe { import::import(managed) }.map_err(Error::DLPack)?);
        Ok(())
    };
    // SAFETY: by the contract of this function.
    unsafe { call(error, take) }
}

/// # Safety
/// Those of [`corsac_tensor_to_dlpack`].
unsafe fn give<T: Managed>(
    tensor: *const TensorHandle,
    managed: *mut *mut T,
    error: *mut *mut ErrorHandle,
) -> Status {
    let give = || {
        // SAFETY: by the contract of this function.
        let place = unsafe { Place::of_handle(managed, "managed") }?;
        // SAFETY: by the contract of this function.
        let tensor = unsafe { given(tensor, "tensor") }?;
        place.write(export::export(tensor).map_err(Error::DLPack)?);
        Ok(())
    };
    // SAFETY: by the contract of this function.
    unsafe { call(error, give) }
}
