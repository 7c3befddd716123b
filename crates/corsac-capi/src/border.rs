//! Calls from C: their outcome, and the errors that they hand out.

use std::ffi::{CString, c_char};

use corsac_engine::{ModelError, without_panic};

use crate::error::{Error, Status};
use crate::pointer::free;

/// An error: a status and a text.
#[derive(Debug)]
pub struct ErrorHandle {
    status: Status,
    message: CString,
}

impl From<Error> for ErrorHandle {
    fn from(error: Error) -> Self {
        // Names from files may have any characters: a text is one line, and ends at a zero.
        let visible = |c: char| if c.is_control() { ' ' } else { c };
        let text: String = error.to_string().chars().map(visible).collect();
        Self {
            status: error.status(),
            message: CString::new(text).unwrap_or_default(),
        }
    }
}

impl From<ModelError> for ErrorHandle {
    fn from(error: ModelError) -> Self {
        Error::from(error).into()
    }
}

/// Does the work of a call, and reports its outcome: as the status, and if `error` is not null as an
/// error there, or null.
///
/// # Safety
/// `error` is null, or a pointer can be written there.
pub(crate) unsafe fn call(
    error: *mut *mut ErrorHandle,
    work: impl FnOnce() -> Result<(), Error>,
) -> Status {
    let outcome = without_panic(|| work().map_err(ErrorHandle::from));
    let (status, handle) = match outcome {
        Ok(()) => (Status::Ok, std::ptr::null_mut()),
        Err(handle) if error.is_null() => (handle.status, std::ptr::null_mut()),
        Err(handle) => (handle.status, Box::into_raw(Box::new(handle))),
    };
    if !error.is_null() {
        // SAFETY: by the contract of this function.
        unsafe { error.write(handle) };
    }
    status
}

/// The status of an error; CORSAC_STATUS_OK for null.
///
/// # Safety
/// `error` is null or an error that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_error_status(error: *const ErrorHandle) -> Status {
    // SAFETY: by the contract of this function.
    unsafe { error.as_ref() }.map_or(Status::Ok, |error| error.status)
}

/// The text of an error in UTF-8: one line, without a full stop. It lives as long as the error.
/// Empty for null.
///
/// # Safety
/// `error` is null or an error that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_error_message(error: *const ErrorHandle) -> *const c_char {
    // SAFETY: by the contract of this function.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

/// Frees an error. Null is ignored.
///
/// # Safety
/// `error` is null or an error that has not been freed, and that no thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_error_free(error: *mut ErrorHandle) {
    // SAFETY: by the contract of this function; errors are made in boxes.
    unsafe { free(error) };
}
