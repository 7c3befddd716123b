//! Opcodes and targets.

use std::fmt;
use std::str::FromStr;

use crate::entity::{ExternalId, FunctionId, Symbol};

/// The opcode of a node. Source: the six opcodes of torch.fx (MLSys 2022, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// An input of the program; the argument, if any, is its default value.
    Placeholder,
    /// A parameter, buffer or other attribute, by qualified name.
    GetAttr,
    /// A call of a free function.
    CallFunction,
    /// A call of a method on the first argument, by name.
    CallMethod,
    /// A call of a submodule's forward, by qualified name.
    CallModule,
    /// The result of the program: its first argument.
    Output,
}

impl Op {
    /// All opcodes.
    pub const ALL: [Self; 6] = [
        Self::Placeholder,
        Self::GetAttr,
        Self::CallFunction,
        Self::CallMethod,
        Self::CallModule,
        Self::Output,
    ];

    /// The name that torch.fx gives the opcode.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Placeholder => "placeholder",
            Self::GetAttr => "get_attr",
            Self::CallFunction => "call_function",
            Self::CallMethod => "call_method",
            Self::CallModule => "call_module",
            Self::Output => "output",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Op {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|op| op.name() == text).ok_or(())
    }
}

/// The target of a node. Eight bytes; meaningful in its own graph only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// An input, attribute, method or submodule, by name.
    Name(Symbol),
    /// A function, for call_function.
    Function(FunctionId),
}

/// A function that a graph calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The qualified name that `print(graph)` shows: `torch.nn.functional.relu`, `operator.add`,
    /// `builtins.getattr`, `torch.ops.aten.add.Tensor`.
    pub name: Symbol,
    /// The base name of nodes that call it: the function's own name, in snake case.
    pub base: Symbol,
    /// The host's callable, where there is one. Two functions with one name but different
    /// callables are different.
    pub external: Option<ExternalId>,
}

/// The last component of a function's qualified name, as in `__name__`: operator overloads keep
/// theirs (`torch.ops.aten.add.Tensor` is called `add.Tensor`).
#[must_use]
pub fn own_name(qualified: &str) -> &str {
    if let Some(overload) = qualified.strip_prefix("torch.ops.") {
        return overload
            .split_once('.')
            .map_or(overload, |(_namespace, name)| name);
    }
    qualified
        .rsplit_once('.')
        .map_or(qualified, |(_module, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_parse_back() {
        for op in Op::ALL {
            assert_eq!(op.to_string().parse(), Ok(op));
        }
        assert_eq!("root".parse::<Op>(), Err(()));
    }

    #[test]
    fn own_names() {
        assert_eq!(own_name("torch.nn.functional.relu"), "relu");
        assert_eq!(own_name("torch.ops.aten.add.Tensor"), "add.Tensor");
        assert_eq!(own_name("getattr"), "getattr");
    }
}
