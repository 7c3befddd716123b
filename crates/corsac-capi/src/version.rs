//! The version of the library.

use std::ffi::{CStr, c_char};

/// The major version of this header.
pub const VERSION_MAJOR: i32 = 0;
/// The minor version of this header.
pub const VERSION_MINOR: i32 = 1;
/// The patch version of this header.
pub const VERSION_PATCH: i32 = 0;

/// The version of the library that is linked, such as "0.1.0". It lives as long as the program.
#[unsafe(no_mangle)]
pub extern "C" fn corsac_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_version_of_the_library() {
        let header = format!("{VERSION_MAJOR}.{VERSION_MINOR}.{VERSION_PATCH}");
        assert_eq!(header, env!("CARGO_PKG_VERSION"));
        // SAFETY: the version is a C string that lives as long as the program.
        let own = unsafe { CStr::from_ptr(corsac_version()) };
        assert_eq!(own.to_str(), Ok(&*header));
    }
}
