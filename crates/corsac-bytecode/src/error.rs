//! What is wrong with a code object.

use thiserror::Error;

use crate::Version;

/// What is wrong with code, or with one of its tables. Offsets are in bytes, as `dis` shows them;
/// an `index` counts instructions.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum BytecodeError {
    /// Code of another version.
    #[error("no table of opcodes for CPython {version}")]
    UnknownVersion {
        /// The version that was asked for.
        version: String,
    },
    /// A name that is no opcode's.
    #[error("CPython {version} has no opcode {name:?}")]
    UnknownName {
        /// The name.
        name: String,
        /// Of which version.
        version: Version,
    },
    /// Code of an odd number of bytes, or of more than 1 GiB.
    #[error("code of {len} bytes: expected an even number, at most 2^30")]
    Length {
        /// How many bytes it has.
        len: usize,
    },
    /// A number that is no opcode's.
    #[error("offset {offset}: {opcode} is no opcode of CPython {version}")]
    UnknownOpcode {
        /// Where.
        offset: usize,
        /// The number.
        opcode: u8,
        /// Of which version.
        version: Version,
    },
    /// An instruction without all of its cache units, or with one that is not zero.
    #[error("offset {offset}: expected an empty cache unit of {name}")]
    Cache {
        /// Where.
        offset: usize,
        /// The instruction before.
        name: &'static str,
    },
    /// `EXTENDED_ARG` without an instruction, more than three of them, or an argument above 2^31 - 1.
    #[error("offset {offset}: EXTENDED_ARG {problem}")]
    ExtendedArg {
        /// Where.
        offset: usize,
        /// What about it.
        problem: &'static str,
    },
    /// A jump, or a table's entry, to where no instruction starts.
    #[error("offset {offset}: {what} refers to offset {target}, where no instruction starts")]
    Target {
        /// Of the jump in code, or of the entry in its table.
        offset: usize,
        /// What refers there.
        what: &'static str,
        /// Where to.
        target: i64,
    },
    /// The exception table does not read.
    #[error("exception table, byte {offset}: {problem}")]
    ExceptionTable {
        /// Where in the table.
        offset: usize,
        /// What about it.
        problem: &'static str,
    },
    /// The line table does not read.
    #[error("line table, byte {offset}: {problem}")]
    LineTable {
        /// Where in the table.
        offset: usize,
        /// What about it.
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
        /// What it takes.
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
        /// What about it.
        problem: &'static str,
    },
    /// The stack, a variable or an operand is not what an instruction needs.
    #[error("offset {offset} ({name}): {problem}")]
    Invalid {
        /// Where.
        offset: usize,
        /// The opcode there.
        name: &'static str,
        /// What about it.
        problem: String,
    },
    /// The code as a whole is not what its flags and tables say.
    #[error("{problem}")]
    Frame {
        /// What about it.
        problem: &'static str,
    },
    /// Code that takes too much to check.
    #[error("the code is too large to be checked")]
    TooLarge,
}

/// What a caller can do about a [`BytecodeError`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum BytecodeErrorKind {
    /// Nothing is known about this version of CPython.
    Version,
    /// The bytes are no code, or no table.
    Malformed,
    /// An edit asks for what cannot be written.
    Edit,
    /// The code reads, and would not run.
    Invalid,
}

impl BytecodeError {
    /// What a caller can do about it.
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
