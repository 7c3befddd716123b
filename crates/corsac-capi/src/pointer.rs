//! Pointers that C passes.

use std::ffi::{CStr, c_char};

use corsac_engine::{ModelError, without_panic};

use crate::error::{Error, no_memory};

/// What a pointer points to.
///
/// # Safety
/// `pointer` is null or points to a `T` that nobody changes during `'a`.
pub(crate) unsafe fn given<'a, T>(pointer: *const T, what: &'static str) -> Result<&'a T, Error> {
    // SAFETY: by the contract of this function.
    unsafe { pointer.as_ref() }.ok_or(Error::Null { what })
}

/// The items of an array, which may be null if it has none.
///
/// # Safety
/// `pointer` is null or points to `len` items that nobody changes during `'a`.
pub(crate) unsafe fn items<'a, T>(
    pointer: *const T,
    len: usize,
    what: &'static str,
) -> Result<&'a [T], Error> {
    let size_bytes = len.saturating_mul(size_of::<T>());
    match (pointer.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Error::Null { what }),
        _ if isize::try_from(size_bytes).is_err() => Err(no_memory(size_bytes)),
        // SAFETY: by the contract of this function; no memory is larger than that.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(pointer, len) }),
    }
}

/// A text.
///
/// # Safety
/// `pointer` is null or points to a C string that nobody changes during `'a`.
pub(crate) unsafe fn text<'a>(
    pointer: *const c_char,
    what: &'static str,
) -> Result<&'a CStr, Error> {
    match pointer.is_null() {
        true => Err(Error::Null { what }),
        // SAFETY: by the contract of this function.
        false => Ok(unsafe { CStr::from_ptr(pointer) }),
    }
}

/// A place for a result of a call.
pub(crate) struct Place<T>(*mut T);

impl<T> Place<T> {
    /// The place at `pointer`.
    ///
    /// # Safety
    /// `pointer` is null, or a `T` can be written there for as long as the place is used.
    pub(crate) unsafe fn new(pointer: *mut T, what: &'static str) -> Result<Self, Error> {
        match pointer.is_null() {
            true => Err(Error::Null { what }),
            false => Ok(Self(pointer)),
        }
    }

    pub(crate) fn write(&self, value: T) {
        // SAFETY: by the contract of `new`.
        unsafe { self.0.write(value) };
    }
}

impl<T> Place<*mut T> {
    /// A place for a handle, which is null until the call succeeds.
    ///
    /// # Safety
    /// As [`Place::new`].
    pub(crate) unsafe fn of_handle(
        pointer: *mut *mut T,
        what: &'static str,
    ) -> Result<Self, Error> {
        // SAFETY: by the contract of this function.
        let place = unsafe { Self::new(pointer, what) }?;
        place.write(std::ptr::null_mut());
        Ok(place)
    }

    /// Hands a handle out.
    pub(crate) fn give(&self, handle: T) {
        self.write(Box::into_raw(Box::new(handle)));
    }
}

/// Frees a handle. Null is ignored.
///
/// # Safety
/// `handle` is null, or was made by [`Box::into_raw`] and is used no more.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if handle.is_null() {
        return;
    }
    // SAFETY: by the contract of this function.
    let handle = unsafe { Box::from_raw(handle) };
    // Nothing can be reported: what failed is leaked.
    let _ = without_panic(|| {
        drop(handle);
        Ok::<_, ModelError>(())
    });
}
