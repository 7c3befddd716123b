//! Tensors of others.

use std::sync::Arc;

use super::codes::{check_device, read_type};
use super::managed::Managed;
use crate::error::Fault;
use crate::tensor::TensorHandle;
use crate::view::read_layout;

/// A managed tensor that is given back when it is dropped.
struct Imported<T: Managed>(*mut T);

// SAFETY: DLPack allows a tensor to be given back on any thread.
unsafe impl<T: Managed> Send for Imported<T> {}
// SAFETY: it has no method that reads or writes the tensor.
unsafe impl<T: Managed> Sync for Imported<T> {}

impl<T: Managed> Drop for Imported<T> {
    fn drop(&mut self) {
        // SAFETY: the tensor was the caller's to give back, and became this library's; that happens
        // here alone.
        unsafe {
            if let Some(deleter) = (*self.0).deleter() {
                deleter(self.0);
            }
        }
    }
}

/// Takes a tensor over. If that fails, it stays the caller's.
///
/// # Safety
/// `managed` points to a tensor of DLPack that is the caller's to give back.
pub(super) unsafe fn import<T: Managed>(managed: *mut T) -> Result<TensorHandle, Fault> {
    // SAFETY: by the contract of this function; the layout is checked before anything else is read.
    let own = unsafe {
        T::check(managed)?;
        &*managed
    };
    let tensor = own.tensor();
    check_device(tensor.device)?;
    let dtype = read_type(tensor.dtype)?;
    // SAFETY: by the contract of this function, as DLPack has it.
    let layout = unsafe { read_layout(dtype, tensor.ndim, tensor.shape, tensor.strides) }?;
    if tensor.data.is_null() && layout.len() > 0 {
        return Err(Fault::Null("data"));
    }
    let offset = usize::try_from(tensor.byte_offset).map_err(|_| Fault::Extent)?;
    let start = tensor.data.cast::<u8>().wrapping_add(offset);
    let end = start.addr().checked_add(layout.size_bytes());
    if start.addr() < tensor.data.addr() || end.is_none() {
        return Err(Fault::Extent);
    }
    let read_only = own.is_read_only();
    // SAFETY: by the contract of this function there are these elements until it is given back.
    Ok(unsafe { TensorHandle::new(start, layout, read_only, Arc::new(Imported(managed))) })
}
