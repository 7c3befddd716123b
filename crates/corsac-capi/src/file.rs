//! Model files that C names or has in memory.

use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;

use corsac_engine::ModelFile;

use crate::border::{ErrorHandle, call};
use crate::error::{Error, Status};
use crate::options::Options;
use crate::pointer::{Place, items, text};
use crate::strided::reserved;

/// The model file at `path`, with the options of loading it.
///
/// # Safety
/// Those of [`text`] and [`Options::read`].
pub(crate) unsafe fn opened(
    path: *const c_char,
    options: *const Options,
) -> Result<(ModelFile, Options), Error> {
    // SAFETY: by the contract of this function.
    let (path, options) = unsafe { (text(path, "path")?, Options::read(options)?) };
    let file = ModelFile::open_within(path_of(path), &options.limits())?;
    Ok((file, options))
}

/// The model file of these bytes, which are copied, with the options of loading it.
///
/// # Safety
/// Those of [`items`] and [`Options::read`].
pub(crate) unsafe fn copied(
    bytes: *const c_void,
    size_bytes: usize,
    options: *const Options,
) -> Result<(ModelFile, Options), Error> {
    // SAFETY: by the contract of this function.
    let (bytes, options) = unsafe {
        let bytes = items(bytes.cast::<u8>(), size_bytes, "bytes")?;
        (bytes, Options::read(options)?)
    };
    let mut own = reserved(bytes.len())?;
    own.extend_from_slice(bytes);
    let file = ModelFile::from_bytes(own, &options.limits())?;
    Ok((file, options))
}

/// Puts what `make` makes of an opened file in the place of a handle.
///
/// # Safety
/// `model` is null or a place for a pointer, and `error` one that [`call`] takes.
pub(crate) unsafe fn load<T>(
    model: *mut *mut T,
    error: *mut *mut ErrorHandle,
    open: impl FnOnce() -> Result<(ModelFile, Options), Error>,
    make: impl FnOnce(ModelFile, &Options) -> Result<T, Error>,
) -> Status {
    let load = || {
        // SAFETY: by the contract of this function.
        let place = unsafe { Place::of_handle(model, "model") }?;
        let (file, options) = open()?;
        place.give(make(file, &options)?);
        Ok(())
    };
    // SAFETY: by the contract of this function.
    unsafe { call(error, load) }
}

/// The path of a file: any bytes on Unix, UTF-8 elsewhere.
fn path_of(path: &CStr) -> PathBuf {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        std::ffi::OsStr::from_bytes(path.to_bytes()).into()
    }
    #[cfg(not(unix))]
    {
        path.to_string_lossy().into_owned().into()
    }
}
