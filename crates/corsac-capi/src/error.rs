//! Errors, and the numbers that C sees.

use std::ffi::{CStr, c_char};

use corsac_engine::{ModelError, ModelErrorKind, RunError, TensorSpec};
use corsac_generate::GenerateError;

/// The outcome of a call: success, or the kind of the error. Numbers do not change between
/// versions; later versions may add some.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// The file cannot be read.
    Io = 1,
    /// The file is damaged, cut off, or no model file.
    Damaged = 2,
    /// The file is in a version of the format that this library does not read.
    Version = 3,
    /// The model has operators, or names, that this library does not support.
    Unsupported = 4,
    /// The file exceeds the limits: raise them if it can be trusted.
    TooLarge = 5,
    /// The model does not take these inputs or outputs, or cannot compute with their values: an
    /// index is out of range, or there is no memory.
    Call = 6,
    /// A bug of the library. The handles of the call can still be used and freed.
    Internal = 7,
    /// An argument that no model would take: a null pointer, an unknown dtype, strides that leave
    /// the memory, memory of another device, a setting of generation out of its range.
    Argument = 8,
}

/// The name of a status, such as "CORSAC_STATUS_OK"; null if the number is no status. It lives as
/// long as the program.
#[unsafe(no_mangle)]
pub extern "C" fn corsac_status_name(status: i32) -> *const c_char {
    const NAMES: [&CStr; 9] = [
        c"CORSAC_STATUS_OK",
        c"CORSAC_STATUS_IO",
        c"CORSAC_STATUS_DAMAGED",
        c"CORSAC_STATUS_VERSION",
        c"CORSAC_STATUS_UNSUPPORTED",
        c"CORSAC_STATUS_TOO_LARGE",
        c"CORSAC_STATUS_CALL",
        c"CORSAC_STATUS_INTERNAL",
        c"CORSAC_STATUS_ARGUMENT",
    ];
    let name = usize::try_from(status).ok().and_then(|at| NAMES.get(at));
    name.map_or(std::ptr::null(), |name| name.as_ptr())
}

/// An error of a call. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// An output of a run does not match the model.
    #[error("the output is {expected}, not {}{:?}", got.dtype.name(), got.shape)]
    Output {
        expected: Box<TensorSpec>,
        got: Box<TensorSpec>,
    },
    #[error("{what} is a null pointer")]
    Null { what: &'static str },
    /// A tensor that the caller described wrongly.
    #[error("{what} {number}: {fault}")]
    Tensor {
        what: &'static str,
        number: usize,
        fault: Fault,
    },
    #[error("outputs {first} and {second} overlap in memory")]
    Overlap { first: usize, second: usize },
    #[error("the model has no {what} {name:?}: it has {known}")]
    Name {
        what: &'static str,
        name: String,
        known: String,
    },
    /// A name that a C string cannot hold.
    #[error("the name {name:?} has a character of value 0, which C strings cannot hold")]
    ZeroInName { name: String },
    #[error("{what} is no text in UTF-8")]
    Utf8 { what: &'static str },
    #[error("options: {reason}")]
    Options { reason: String },
    #[error("the tensor of DLPack: {0}")]
    DLPack(Fault),
}

/// A fault of the description of a tensor.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("{0} is no dtype")]
    Dtype(i32),
    #[error("its rank is {rank}, and 0 to {most} is supported")]
    Rank { rank: i32, most: usize },
    #[error("{0} is a null pointer")]
    Null(&'static str),
    #[error("dimension {dim} has size {size}")]
    Size { dim: usize, size: i64 },
    #[error("dimension {dim} has stride {stride}, and strides are not negative")]
    Stride { dim: usize, stride: i64 },
    #[error("its sizes and strides exceed the address space")]
    Extent,
    #[error("its elements reach over {needed} bytes, and the memory has {size_bytes}")]
    Memory { needed: usize, size_bytes: usize },
    #[error("its elements overlap each other in memory")]
    SelfOverlap,
    #[error("its memory is read-only")]
    ReadOnly,
    #[error("flags {0:#x} are not known")]
    Flags(u64),
    #[error("it is on {device}, and memory on cpu is needed")]
    Device { device: String },
    #[error("elements of {0} are not supported")]
    Elements(String),
    #[error("it is of version {major}.{minor}, and version 1 is read")]
    Version { major: u32, minor: u32 },
    #[error("it is read-only, which the unversioned form cannot say")]
    Unversioned,
}

impl Error {
    /// The number for C.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Model(error) | Self::Generate(GenerateError::Run(error)) => match error.kind() {
                ModelErrorKind::Io => Status::Io,
                ModelErrorKind::Damaged => Status::Damaged,
                ModelErrorKind::Version => Status::Version,
                ModelErrorKind::Unsupported => Status::Unsupported,
                ModelErrorKind::TooLarge => Status::TooLarge,
                ModelErrorKind::Call => Status::Call,
                // A kind that this crate does not know is a bug of it.
                _ => Status::Internal,
            },
            Self::Generate(GenerateError::Model(_)) => Status::Unsupported,
            Self::Generate(GenerateError::Setting { .. }) => Status::Argument,
            Self::Generate(_) => Status::Call,
            Self::Output { .. } | Self::Name { .. } => Status::Call,
            Self::ZeroInName { .. } => Status::Unsupported,
            Self::Null { .. }
            | Self::Tensor { .. }
            | Self::Overlap { .. }
            | Self::Utf8 { .. }
            | Self::Options { .. }
            | Self::DLPack(_) => Status::Argument,
        }
    }
}

pub(crate) fn no_memory(size_bytes: usize) -> Error {
    Error::Model(RunError::OutOfMemory { size_bytes }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_name() {
        let name = |status: i32| {
            let name = corsac_status_name(status);
            // SAFETY: names are C strings that live as long as the program.
            (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
        };
        assert_eq!(name(Status::Ok as i32), Some(c"CORSAC_STATUS_OK"));
        assert_eq!(name(Status::Call as i32), Some(c"CORSAC_STATUS_CALL"));
        let last = Status::Argument as i32;
        assert_eq!(name(last), Some(c"CORSAC_STATUS_ARGUMENT"));
        assert_eq!([name(-1), name(last + 1)], [None, None]);
    }
}
