//! Memory for a host of a WebAssembly module, which has no allocator in it.

use std::alloc::{Layout, alloc, dealloc};

/// Bytes to whose multiples memory is aligned: those of the largest numbers.
const ALIGNMENT: usize = 16;

/// Memory of `size_bytes` bytes for arguments of calls; null if there is none. It is the caller's to free with
/// [`corsac_memory_free`].
#[unsafe(no_mangle)]
pub extern "C" fn corsac_memory_allocate(size_bytes: usize) -> *mut u8 {
    match Layout::from_size_align(size_bytes.max(1), ALIGNMENT) {
        // SAFETY: the size is not 0.
        Ok(layout) => unsafe { alloc(layout) },
        Err(_) => std::ptr::null_mut(),
    }
}

/// Frees memory. Null is ignored.
///
/// # Safety
/// `start` is null, or comes from [`corsac_memory_allocate`] of this size and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_memory_free(start: *mut u8, size_bytes: usize) {
    if let Ok(layout) = Layout::from_size_align(size_bytes.max(1), ALIGNMENT)
        && !start.is_null()
    {
        // SAFETY: by the contract of this function.
        unsafe { dealloc(start, layout) };
    }
}
