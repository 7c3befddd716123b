//! Errors of code objects.

use thiserror::Error;

use crate::Version;

/// A fault of code, or of one of its tables. Offsets are in bytes, as `dis` shows them; an `index`
/// counts instructions.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum BytecodeError {
    /// Code of another version.
    #[error("no table of opcodes for CPython {version}")]
    UnknownVersion {
        /// The requested version.
        version: String,
    },
    /// A name that is no opcode's.
    #[error("CPython {version} has no opcode {name:?}")]
    UnknownName {
        /// The name.
        name: String,
        /// The version of the code.
        version: Version,
    },
    /// Code of an odd number of bytes, or of more than 1 GiB.
    #[error("code of {len} bytes: expected an even number, at most 2^30")]
    Length {
        /// Number of bytes.
        len: usize,
    },
    /// A number that is no opcode's.
    #[error("offset {offset}: {opcode} is no opcode of CPython {version}")]
    UnknownOpcode {
        /// Its place.
        offset: usize,
        /// The number.
        opcode: u8,
        /// The version of the code.
        version: Version,
    },
    /// An instruction without all of its cache units, or with one that is not zero.
    #[error("offset {offset}: expected an empty cache unit of {name}")]
    Cache {
        /// Its place.
        offset: usize,
        /// The instruction before.
        name: &'static str,
    },
    /// `EXTENDED_ARG` without an instruction, more than three of them, or an argument of 2^31 or
    /// more.
    #[error("offset {offset}: EXTENDED_ARG {problem}")]
    ExtendedArg {
        /// Its place.
        offset: usize,
        /// Description of the fault.
        problem: &'static str,
    },
    /// A jump, or a table's entry, to a place where no instruction starts.
    #[error("offset {offset}: {what} refers to offset {target}, where no instruction starts")]
    Target {
        /// Offset of the jump in code, or of the entry in its table.
        offset: usize,
        /// Description of the reference.
        what: &'static str,
        /// The offset referred to.
        target: i64,
    },
    /// The exception table is malformed.
    #[error("exception table, byte {offset}: {problem}")]
    ExceptionTable {
        /// The place in the table.
        offset: usize,
        /// Description of the fault.
        problem: &'static str,
    },
    /// The line table is malformed.
    #[error("line table, byte {offset}: {problem}")]
    LineTable {
        /// The place in the table.
        offset: usize,
        /// Description of the fault.
        problem: &'static str,
    },
    /// A label without a place.
    #[error("instruction {index} ({name}): label L{label} has no place")]
    UnplacedLabel {
        /// The instruction.
        index: usize,
        /// Its opcode.
        name: &'static str,
        /// The label's number.
        label: u32,
    },
    /// A jump with a number, or another instruction with a label; no argument where one is needed.
    #[error("instruction {index} ({name}): expected {expected}")]
    Operand {
        /// The instruction.
        index: usize,
        /// Its opcode.
        name: &'static str,
        /// The kind of operand that it takes.
        expected: &'static str,
    },
    /// A jump against the direction that its opcode has.
    #[error("instruction {index} ({name}): label L{label} lies in the other direction")]
    Direction {
        /// The instruction.
        index: usize,
        /// Its opcode.
        name: &'static str,
        /// The label's number.
        label: u32,
    },
    /// A region of a handler that is out of the code or ends before it starts.
    #[error("handler {index}: {problem}")]
    Handler {
        /// The handler.
        index: usize,
        /// Description of the fault.
        problem: &'static str,
    },
    /// The stack, a variable or an operand does not fit an instruction.
    #[error("offset {offset} ({name}): {problem}")]
    Invalid {
        /// The place.
        offset: usize,
        /// The opcode there.
        name: &'static str,
        /// Description of the fault.
        problem: String,
    },
    /// The code as a whole does not fit its flags and tables.
    #[error("{problem}")]
    Frame {
        /// Description of the fault.
        problem: &'static str,
    },
    /// Code that takes too much to check.
    #[error("the code is too large to be checked")]
    TooLarge,
}

/// Kinds of [`BytecodeError`], by what a caller can do about them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum BytecodeErrorKind {
    /// Nothing is known about this version of CPython.
    Version,
    /// The bytes are no code, or no table.
    Malformed,
    /// An edit made code that cannot be written.
    Edit,
    /// The code is well-formed, but would not run.
    Invalid,
}

impl BytecodeError {
    /// The kind of the error, by what a caller can do about it.
    #[must_use]
    pub const fn kind(&self) -> BytecodeErrorKind {
        match self {
            Self::UnknownVersion { .. } => BytecodeErrorKind::Version,
            Self::Length { .. }
            | Self::UnknownOpcode { .. }
            | Self::Cache { .. }
            | Self::ExtendedArg { .. }
            | Self::Target { .. }
            | Self::ExceptionTable { .. }
            | Self::LineTable { .. } => BytecodeErrorKind::Malformed,
            Self::UnknownName { .. }
            | Self::UnplacedLabel { .. }
            | Self::Operand { .. }
            | Self::Direction { .. }
            | Self::Handler { .. } => BytecodeErrorKind::Edit,
            Self::Invalid { .. } | Self::Frame { .. } | Self::TooLarge => {
                BytecodeErrorKind::Invalid
            }
        }
    }
}
