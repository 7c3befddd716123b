//! CPython code objects: decode, edit, check, assemble.
//!
//! [`Code::disassemble`] reads the bytes of a code object ([`RawCode`]) of CPython 3.11 to 3.14;
//! [`Code::assemble`] writes them, byte for byte the same if nothing was changed. In between, jumps
//! and the exception table have labels in place of offsets, each instruction has its place in the
//! source, and `EXTENDED_ARG` and cache units are not there, so that instructions can be put in and
//! taken out. [`Code::stack_size`] computes `co_stacksize` as the compiler does; [`Code::verify`]
//! checks that the interpreter can run the code without crashing; [`Code::listing`] is the text of
//! `dis`.
//!
//! Each opcode is described by one row in the table of its version: `tables`.
//!
//! The crate depends on no interpreter: constants are kinds or texts that the caller passes. It
//! never panics on its input, and needs memory in proportion to it.
//!
//! ```
//! use corsac_bytecode::{Code, Instruction, RawCode, Version};
//!
//! // lambda: 7, by CPython 3.12
//! let raw = RawCode {
//!     code: vec![151, 0, 121, 1],
//!     line_table: vec![0xf9],
//!     first_line: 1,
//!     ..RawCode::default()
//! };
//! let mut code = Code::disassemble(Version::V3_12, &raw)?;
//! assert_eq!(code.assemble(1)?, raw);
//! let nop = Instruction::new(Version::V3_12.op_named("NOP")?, 0);
//! code.insert_at(1, [nop]);
//! assert_eq!(code.assemble(1)?.code, [151, 0, 9, 0, 121, 1]);
//! assert_eq!(code.stack_size(3)?, 0);
//! # Ok::<(), corsac_bytecode::BytecodeError>(())
//! ```

#![forbid(unsafe_code)]

mod assemble;
mod code;
mod decode;
mod error;
mod flow;
mod frame_state;
#[doc(hidden)]
pub mod fuzz;
mod kinds;
mod listing;
mod location;
mod operands;
mod signature;
mod tables;
#[cfg(test)]
mod tests;
mod varint;
mod verify;

mod version;

pub use assemble::RawCode;
pub use code::{Arg, Code, Handler, Instruction, Label};
pub use error::{BytecodeError, BytecodeErrorKind};
pub use flow::{Block, StackDepths};
pub use listing::{Listing, Names, Row};
pub use location::Location;
pub use tables::{ArgKind, Op};
pub use verify::{ConstKind, Frame, Slot};
pub use version::Version;
