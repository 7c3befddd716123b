//! The host of a graph, which writes the values that the graph only refers to.

use corsac_ir::{ExternalId, FunctionId, NodeId};

use crate::operator::Operator;

/// A value that generated code refers to by a global name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GlobalValue {
    /// The value with this qualified name: `math.inf`.
    Named(Box<str>),
    /// The host's value with this number.
    Held(u32),
}

/// A global that an expression needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// The base of its name; made an identifier.
    pub hint: Box<str>,
    /// The value. Equal values share a name.
    pub value: GlobalValue,
    /// Whether it is itself the builtin, or other reserved value, of the name in `hint`, which may
    /// then keep it.
    pub is_builtin: bool,
}

/// Part of an expression that the host writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Python source.
    Text(Box<str>),
    /// The name of a global.
    Global(Global),
    /// No text, but the global has to be there.
    Import(Global),
}

/// An expression that the host writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expr(pub Vec<Piece>);

impl Expr {
    /// Python source that needs no globals but those that all generated code has.
    #[must_use]
    pub fn text(text: impl Into<Box<str>>) -> Self {
        Self(vec![Piece::Text(text.into())])
    }

    /// A global.
    #[must_use]
    pub fn global(global: Global) -> Self {
        Self(vec![Piece::Global(global)])
    }
}

/// The callee of a call: a function or an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callee {
    /// The function.
    pub expr: Expr,
    /// The operator that is written instead, if the arguments fit.
    pub operator: Option<Operator>,
}

/// Notes of the host that are written with a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// A comment above the node, with its `#`. Not repeated where the previous one was the same.
    pub comment: Option<String>,
    /// Text written instead of the type annotation, quotes included.
    pub annotation: Option<String>,
    /// Descriptions: of an input, or of each item of the result. Written if
    /// [`expanded_def`](crate::Options::expanded_def) is set.
    pub descriptions: Option<Vec<String>>,
    /// Lines to show in a string literal above the node.
    pub metadata: Option<String>,
}

/// Source of the texts that code generation needs.
///
/// Results are borrowed: a host that has to call an interpreter does so before, for everything in
/// [`Needs`](crate::Needs), and holds the results.
pub trait Host {
    /// The callee for a function. `None` if the host does not have it.
    fn callee(&self, function: FunctionId) -> Option<&Callee>;

    /// The expression of a value that the graph holds by reference only.
    fn value(&self, external: ExternalId) -> Option<&Expr>;

    /// The expression of a type annotation.
    fn annotation(&self, external: ExternalId) -> Option<&Expr>;

    /// The expression of a named tuple class.
    fn class(&self, external: ExternalId) -> Option<&Expr>;

    /// The globals that all generated code has.
    fn builtins(&self) -> &[Global];

    /// More globals, for a calling convention of the host.
    fn additional_globals(&self) -> &[Global] {
        &[]
    }

    /// The expression of `wrap`, which marks a function as a leaf of later tracing.
    fn wrap(&self) -> &Expr;

    /// Whether the function that the node calls was marked with `wrap`.
    fn is_wrapped(&self, _node: NodeId) -> bool {
        false
    }

    /// Positions of arguments that the called function empties itself.
    fn boxed_arguments(&self, _node: NodeId) -> &[usize] {
        &[]
    }

    /// The notes to be written with the node.
    fn notes(&self, _node: NodeId) -> Option<&Notes> {
        None
    }
}
