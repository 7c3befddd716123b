//! The opcodes of each version: one table each.
//!
//! A row has the number, the name, the kind of argument, the number of cache units, and the stack
//! effect, top at the right: `o tuple -- =0 str` takes a tuple and an object below it, and leaves
//! the object (the first that it took) with a string on it. Words:
//!
//! - `o` an object; `x` an object or NULL; `n` NULL; `iter`, `aiter`, `list`, `set`, `dict`,
//!   `tuple`, `str`, `code`, `func` objects that the interpreter takes for one of this type without
//!   looking; `exc` an exception, `none` None, `prev` the exception that was handled before,
//!   `lasti` the place that the handled exception comes from, `excs` a list of exceptions;
//!   `list|dict` one of them;
//! - `=0` the first of the slots taken, `=1` the second;
//! - `o*n` as many as the argument; `2n` twice as many; `lo` and `hi` its low byte and the rest;
//!   `bit0` as many as this bit of it; `slice` 3 if it is 3, or 2;
//! - `list@n` stays where it is, n below the rest;
//! - `copy` and `swap`: `COPY` and `SWAP`;
//! - slots after `|` are left where the instruction jumps, if they differ.

mod v3_11;
mod v3_12;
mod v3_13;
mod v3_14;

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::signature::Signature;
use crate::{BytecodeError, Version};

/// The kind of argument of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArgKind {
    /// No argument.
    None,
    /// A number: a count, a depth, or flags.
    Count,
    /// An index of `co_consts`.
    Const,
    /// An index of `co_names`.
    Name,
    /// An index of `co_names` above one bit: whether NULL is pushed as well.
    Global,
    /// An index of `co_names` above one bit: whether a method and its object are loaded.
    Attribute,
    /// An index of `co_names` above two bits, of `super()`.
    SuperName,
    /// An index of the local variables, cells among them.
    Local,
    /// Two indices of local variables of 4 bits each.
    LocalPair,
    /// An index of the local variables that is a cell's.
    Free,
    /// Number of code units to skip.
    JumpForward,
    /// Number of code units to go back.
    JumpBackward,
    /// Distance back, in code units, to a place that is not jumped to.
    Origin,
    /// A comparison.
    Compare,
    /// A binary operator.
    Binary,
    /// Whether `is` and `in` are negated.
    Inversion,
    /// The conversion of `FORMAT_VALUE`, and whether there is a format.
    Format,
    /// `str`, `repr` or `ascii`.
    Conversion,
    /// The parts that a function is made with: defaults, annotations, closure.
    FunctionParts,
    /// A built-in function of one argument.
    Intrinsic1,
    /// A built-in function of two arguments.
    Intrinsic2,
    /// A method that the interpreter looks up on the type.
    SpecialMethod,
    /// An object that needs no constant.
    CommonConstant,
    /// The integer itself.
    SmallInt,
}

impl ArgKind {
    /// Whether the argument is a distance, which labels replace in decoded code.
    #[must_use]
    pub const fn is_jump(self) -> bool {
        matches!(self, Self::JumpForward | Self::JumpBackward | Self::Origin)
    }

    /// The index of `co_names` in an argument, if it has one.
    #[must_use]
    pub const fn name_index(self, arg: u32) -> Option<u32> {
        match self {
            Self::Name => Some(arg),
            Self::Global | Self::Attribute => Some(arg >> 1),
            Self::SuperName => Some(arg >> 2),
            _ => None,
        }
    }

    /// The argument for the index `index` of `co_names`, with the flags `flags` below it.
    #[must_use]
    pub fn name_arg(self, index: u32, flags: u32) -> Option<u32> {
        let bits = match self {
            Self::Name => 0,
            Self::Global | Self::Attribute => 1,
            Self::SuperName => 2,
            _ => return None,
        };
        let fits = index <= u32::MAX >> bits && flags < 1 << bits;
        fits.then(|| index << bits | flags)
    }
}

pub(crate) struct Row {
    code: u8,
    name: &'static str,
    arg: ArgKind,
    caches: u8,
    stack: &'static str,
}

const fn row(code: u8, name: &'static str, arg: ArgKind, caches: u8, stack: &'static str) -> Row {
    Row {
        code,
        name,
        arg,
        caches,
        stack,
    }
}

/// An opcode of one version.
#[derive(Debug)]
pub struct Op {
    /// Its number.
    pub code: u8,
    /// Its name.
    pub name: &'static str,
    /// The kind of its argument.
    pub arg: ArgKind,
    /// Number of cache units that follow it.
    pub caches: u8,
    pub(crate) signature: Signature,
}

impl PartialEq for Op {
    fn eq(&self, other: &Self) -> bool {
        (self.code, self.name) == (other.code, other.name)
    }
}

impl Eq for Op {}

impl Op {
    /// Whether the instruction has an argument.
    #[must_use]
    pub fn has_arg(&self) -> bool {
        self.arg != ArgKind::None
    }

    /// Growth of the stack by the instruction, in slots, as `dis.stack_effect`.
    ///
    /// `jump`: take the path that jumps, which matters to jumps only.
    #[must_use]
    pub fn stack_effect(&self, arg: u32, jump: bool) -> i64 {
        self.signature.effect(arg, jump)
    }

    /// Whether execution never goes on with the next instruction.
    #[must_use]
    pub fn ends_flow(&self) -> bool {
        matches!(
            self.name,
            "RETURN_VALUE"
                | "RETURN_CONST"
                | "RAISE_VARARGS"
                | "RERAISE"
                | "JUMP_FORWARD"
                | "JUMP_BACKWARD"
                | "JUMP_BACKWARD_NO_INTERRUPT"
                | "INTERPRETER_EXIT"
        )
    }

    /// Whether the instruction is a jump that is followed: all with a label but `Origin`s.
    #[must_use]
    pub fn jumps(&self) -> bool {
        matches!(self.arg, ArgKind::JumpForward | ArgKind::JumpBackward)
    }
}

/// The opcodes of a version, by number and by name.
pub(crate) struct Table {
    by_code: [Option<Op>; 256],
    by_name: FxHashMap<&'static str, u8>,
}

impl Table {
    fn new(rows: &'static [Row]) -> Self {
        let mut by_code = [const { None }; 256];
        let mut by_name = FxHashMap::default();
        for row in rows {
            by_name.insert(row.name, row.code);
            by_code[usize::from(row.code)] = Some(Op {
                code: row.code,
                name: row.name,
                arg: row.arg,
                caches: row.caches,
                signature: Signature::parse(row.stack),
            });
        }
        Self { by_code, by_name }
    }

    fn of(version: Version) -> &'static Self {
        static TABLES: [LazyLock<Table>; 4] = [
            LazyLock::new(|| Table::new(v3_11::ROWS)),
            LazyLock::new(|| Table::new(v3_12::ROWS)),
            LazyLock::new(|| Table::new(v3_13::ROWS)),
            LazyLock::new(|| Table::new(v3_14::ROWS)),
        ];
        &TABLES[version as usize]
    }
}

impl Version {
    /// The opcode with this number.
    #[must_use]
    pub fn op(self, code: u8) -> Option<&'static Op> {
        Table::of(self).by_code[usize::from(code)].as_ref()
    }

    /// The opcode of this name.
    ///
    /// # Errors
    /// If the version has none.
    pub fn op_named(self, name: &str) -> Result<&'static Op, BytecodeError> {
        let code = Table::of(self).by_name.get(name);
        code.and_then(|code| self.op(*code))
            .ok_or_else(|| BytecodeError::UnknownName {
                name: name.chars().take(80).collect(),
                version: self,
            })
    }

    /// All opcodes, by number.
    pub fn ops(self) -> impl Iterator<Item = &'static Op> {
        Table::of(self).by_code.iter().flatten()
    }
}
