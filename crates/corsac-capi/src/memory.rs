//! Memory of tensors that the library makes.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::sync::Arc;

use crate::error::{Error, no_memory};

/// Whatever keeps the memory of a tensor: it is given back when the last user drops it, on any
/// thread.
pub(crate) type Keeper = Arc<dyn Any + Send + Sync>;

/// Bytes to whose multiples memory is aligned. Source: `data` in dlpack.h.
const ALIGNMENT: usize = 256;

/// Memory of the library.
pub(crate) struct Memory {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: it is memory of its own, which any thread may use and free.
unsafe impl Send for Memory {}
// SAFETY: as above; it has no method that reads or writes the memory.
unsafe impl Sync for Memory {}

impl Memory {
    /// `size_bytes` bytes of zeros.
    pub(crate) fn zeroed(size_bytes: usize) -> Result<Self, Error> {
        let layout = Layout::from_size_align(size_bytes.max(1), ALIGNMENT);
        let layout = layout.map_err(|_| no_memory(size_bytes))?;
        // SAFETY: the size is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        match start.is_null() {
            true => Err(no_memory(size_bytes)),
            false => Ok(Self { start, layout }),
        }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and nothing uses it any more.
        unsafe { dealloc(self.start, self.layout) };
    }
}
