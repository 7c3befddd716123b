//! Functions that are written as operators.

/// The notation of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+x`
    Prefix(&'static str),
    /// `x + y`
    Infix(&'static str),
    /// `x[y]`
    GetItem,
    /// `x += y;  result = x`
    InPlace(&'static str),
    /// `x[y] = z;  result = x`
    SetItem,
}

impl Operator {
    /// The operator for the function `name` of Python's `operator` module, where torch.fx writes it
    /// as one. Source: the tables at the end of `torch/fx/graph.py`.
    #[must_use]
    pub fn of_function(name: &str) -> Option<Self> {
        Some(match name {
            "pos" => Self::Prefix("+"),
            "neg" => Self::Prefix("-"),
            "invert" => Self::Prefix("~"),
            "eq" => Self::Infix("=="),
            "ne" => Self::Infix("!="),
            "lt" => Self::Infix("<"),
            "gt" => Self::Infix(">"),
            "le" => Self::Infix("<="),
            "ge" => Self::Infix(">="),
            "add" => Self::Infix("+"),
            "sub" => Self::Infix("-"),
            "mul" => Self::Infix("*"),
            "floordiv" => Self::Infix("//"),
            "truediv" | "div" => Self::Infix("/"),
            "mod" => Self::Infix("%"),
            "pow" => Self::Infix("**"),
            "lshift" => Self::Infix("<<"),
            "rshift" => Self::Infix(">>"),
            "and_" => Self::Infix("&"),
            "or_" => Self::Infix("|"),
            "xor" => Self::Infix("^"),
            "matmul" => Self::Infix("@"),
            "getitem" => Self::GetItem,
            "iadd" => Self::InPlace("+="),
            "iand" => Self::InPlace("&="),
            "ifloordiv" => Self::InPlace("//="),
            "ilshift" => Self::InPlace("<<="),
            "imod" => Self::InPlace("%="),
            "imul" => Self::InPlace("*="),
            "imatmul" => Self::InPlace("@="),
            "ior" => Self::InPlace("|="),
            "ipow" => Self::InPlace("**="),
            "irshift" => Self::InPlace(">>="),
            "isub" => Self::InPlace("-="),
            "itruediv" => Self::InPlace("/="),
            "ixor" => Self::InPlace("^="),
            "setitem" => Self::SetItem,
            _ => return None,
        })
    }

    /// Whether it changes its first operand, which then has to be a variable.
    #[must_use]
    pub fn assigns(self) -> bool {
        matches!(self, Self::InPlace(_) | Self::SetItem)
    }

    /// Number of operands.
    #[must_use]
    pub fn arity(self) -> usize {
        match self {
            Self::Prefix(_) => 1,
            Self::Infix(_) | Self::GetItem | Self::InPlace(_) => 2,
            Self::SetItem => 3,
        }
    }
}
