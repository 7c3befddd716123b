//! Rules as data: pattern, condition, result.

use std::fmt;

use corsac_ir::{Arg, DType};
use corsac_ops::signature::Default as DefaultValue;

/// A named value of a rule: an index into [`Rule::variables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(pub(crate) u16);

impl Var {
    /// The index, for dense tables.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A literal in a rule, or the default value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `None`
    None,
    /// `True` or `False`
    Bool(bool),
    /// An integer. In a pattern it also stands for a float of the same value and sign.
    Int(i64),
    /// A floating-point number; in a pattern, also an integer of the same value and sign.
    Float(f64),
    /// A string.
    Str(String),
    /// An element type.
    DType(DType),
    /// `...`
    Ellipsis,
}

impl Literal {
    /// The value as a number.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::None | Self::Bool(_) | Self::Str(_) | Self::DType(_) | Self::Ellipsis => None,
        }
    }

    /// Whether a number equals this one, sign of zero included: `0` is not `-0.0`.
    #[must_use]
    pub fn is_number(&self, other: f64) -> bool {
        let same = |own: f64| own == other && own.is_sign_negative() == other.is_sign_negative();
        self.number().is_some_and(same)
    }
}

impl From<DefaultValue> for Literal {
    fn from(value: DefaultValue) -> Self {
        match value {
            DefaultValue::None => Self::None,
            DefaultValue::Bool(value) => Self::Bool(value),
            DefaultValue::Int(value) => Self::Int(value),
            DefaultValue::Float(value) => Self::Float(value),
            DefaultValue::Str(value) => Self::Str(value.to_owned()),
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Ellipsis => f.write_str("..."),
            Self::Bool(true) => f.write_str("True"),
            Self::Bool(false) => f.write_str("False"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => corsac_ir::literal::write_float(f, *value),
            Self::Str(value) => corsac_ir::literal::write_str(f, value),
            Self::DType(value) => write!(f, "{value}"),
        }
    }
}

/// The parameter that an argument of a pattern is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The parameter at this place of the operator's signature, or the argument at this place
    /// where the operator has none.
    Position(usize),
    /// The keyword of an operator without a signature.
    Keyword(String),
}

/// The pattern of a rule, or a part of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// `?x`: anything; the same thing wherever the variable is repeated.
    Variable(Var),
    /// A literal, by value.
    Literal(Literal),
    /// `add|sub(?x, ?y)`: a call of one of these operators. Parameters that are not mentioned
    /// have their default values.
    Call {
        /// Names of operators, as in [`corsac_ops::operator_name`], or qualified names of functions
        /// that are not operators.
        operators: Vec<String>,
        /// Patterns of arguments, by parameter.
        arguments: Vec<(Key, Pattern)>,
    },
    /// `?y:relu(?x)`: a pattern whose value has a name.
    Named(Var, Box<Pattern>),
    /// `?m@nn.Linear(?x)`: a call of a module which has a name.
    OfModule(Var, Box<Pattern>),
    /// `[?x, 1, *?rest]`: a list or tuple, item by item.
    Sequence(Vec<Item>),
    /// The indices in `x[?i, 1:]`: a tuple, item by item; a list has another meaning there.
    Tuple(Vec<Item>),
    /// `?a:?b:?c` in an index: a slice by its start, end and step.
    Slice(Box<[Pattern; 3]>),
}

/// An item of a [`Pattern::Sequence`].
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// One item.
    One(Pattern),
    /// `*?rest`: any number of items.
    Many(Var),
}

/// The target of a new node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Callee {
    /// The function with this qualified name.
    Function(String),
    /// The method with this name.
    Method(String),
    /// A module.
    Module(Place),
    /// None: the node reads an attribute.
    Attribute(Place),
}

/// The place of a module or an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The variable that names the module where the path starts; without one, it starts at the
    /// module that has the graph.
    pub of: Option<Var>,
    /// The path; empty for the module itself.
    pub path: String,
}

impl Place {
    /// The path from the module that has the graph, if the module that the variable stands for is
    /// at `base`.
    pub(crate) fn from(&self, base: &str) -> String {
        match (base, self.path.as_str()) {
            ("", path) => path.to_owned(),
            (base, "") => base.to_owned(),
            (base, path) => format!("{base}.{path}"),
        }
    }
}

/// A value of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The value of a variable.
    Variable(Var),
    /// A literal.
    Literal(Literal),
    /// The value of a new node: an index into [`Replacement::calls`].
    New(usize),
    /// `$add(?a, ?b)`: a value that is computed when the rule is applied.
    Computed(Function, Vec<Value>),
    /// A list; with `*?rest`, the items that the variable stands for.
    List(Vec<Value>),
    /// A tuple: the indices in `x[?i, 1:]`.
    Tuple(Vec<Value>),
    /// A slice by its start, end and step.
    Slice(Box<[Value; 3]>),
    /// `*?rest` in a list.
    Splice(Var),
}

/// A new node.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The target of the node.
    pub callee: Callee,
    /// Positional arguments.
    pub args: Vec<Value>,
    /// Keyword arguments.
    pub kwargs: Vec<(String, Value)>,
}

/// The replacement of the roots of a pattern.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replacement {
    /// New nodes, each after those that it uses.
    pub calls: Vec<Call>,
    /// One value for each root of the pattern.
    pub values: Vec<Value>,
}

impl Replacement {
    /// The paths of modules and attributes that new nodes name from the module that has the graph.
    pub fn places(&self) -> impl Iterator<Item = &str> {
        self.calls.iter().filter_map(|call| match &call.callee {
            Callee::Module(place) | Callee::Attribute(place) => {
                place.of.is_none().then_some(place.path.as_str())
            }
            Callee::Function(_) | Callee::Method(_) => None,
        })
    }

    /// The modules among [`Replacement::places`].
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        self.calls.iter().filter_map(|call| match &call.callee {
            Callee::Module(place) => place.of.is_none().then_some(place.path.as_str()),
            Callee::Attribute(_) | Callee::Function(_) | Callee::Method(_) => None,
        })
    }

    /// Whether new nodes call modules or read attributes.
    pub(crate) fn uses_state(&self) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|call| matches!(call.callee, Callee::Module(_) | Callee::Attribute(_)))
    }
}

/// Functions of literals, shapes and types that are computed when a rule is applied. A rule is not
/// applied if a result is undefined (an overflow, an unknown shape).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// `$add(a, b)`: the sum of two numbers; of two integers, an integer.
    Add,
    /// `$sub(a, b)`
    Sub,
    /// `$mul(a, b)`
    Mul,
    /// `$div(a, b)`: the quotient as a float.
    Div,
    /// `$compose(p, q)`: the permutation that does `p` and then `q`.
    Compose,
    /// `$sizes(x, d)`: the sizes of `x` from dimension `d` to the last one.
    Sizes,
    /// `$shape(s)`: sizes, given as a list, one by one or as one number, as one argument.
    Shape,
    /// `$items(xs)`: the items of a list or tuple, as a list.
    Items,
    /// `$item(xs, i)`: the item at a place in a list or tuple.
    Item,
}

impl Function {
    /// All functions with their names.
    pub const ALL: [(&'static str, Self); 9] = [
        ("add", Self::Add),
        ("sub", Self::Sub),
        ("mul", Self::Mul),
        ("div", Self::Div),
        ("compose", Self::Compose),
        ("sizes", Self::Sizes),
        ("shape", Self::Shape),
        ("items", Self::Items),
        ("item", Self::Item),
    ];
}

/// A condition that must hold for a rule to be applied.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// A fact about values, or its opposite.
    Holds {
        /// The fact.
        predicate: Predicate,
        /// The operands that it is about.
        operands: Vec<Operand>,
        /// Whether it must hold.
        expected: bool,
    },
    /// A comparison of two numbers.
    Compare(Operand, Comparison, Operand),
    /// A condition that the host decides, by the number that the host gave it.
    Host(usize),
}

/// An operand of a condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A value.
    Value(Value),
    /// `result`: the value that is replaced.
    Result,
    /// A word with a meaning for the predicate: `floating`, `float32`.
    Word(String),
}

/// A comparison of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// Facts that conditions may require.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Predicate {
    /// `same_dtype(a, b)`: two tensors are known to have the same element type.
    SameDType,
    /// `same_shape(a, b)`: two tensors are known to have the same shape.
    SameShape,
    /// `dtype(x, word, …)`: the element type of `x` is known and one of these: `floating`,
    /// `complex`, `integral` (without `bool`), or a name of a type.
    DType,
    /// `rank(x, n)`: `x` is known to have `n` dimensions.
    Rank,
    /// `shape(x, sizes)`: `x` is known to have these sizes.
    Shape,
    /// `number(c)`: a literal integer or float.
    Number,
    /// `int(c)`: a literal integer.
    Int,
    /// `sizes(s)`: sizes, given as a list, as one literal number, or as the value of a node that is
    /// known to be one or several sizes: `x.shape`, `x.size(0) * 2`.
    Sizes,
    /// `node(x)`: the value of a node.
    Node,
    /// `single_use(x)`: a node with one user.
    SingleUse,
    /// `identity(p)`: the identity permutation.
    Identity,
    /// `last(d, x)`: `d` is the last dimension of `x`: -1, its rank less one, or a list of that.
    Last,
    /// `last_two(a, b, x)`: the last two dimensions of `x`, in any order.
    LastTwo,
    /// `near(c, v)`: a literal number within one part in a million of another.
    Near,
    /// `power_of_two(c)`: a literal number whose reciprocal is exact.
    PowerOfTwo,
}

impl Predicate {
    /// All predicates: name, number of operands at least and at most.
    pub const ALL: [(&'static str, Self, usize, usize); 15] = [
        ("same_dtype", Self::SameDType, 2, 2),
        ("same_shape", Self::SameShape, 2, 2),
        ("dtype", Self::DType, 2, 16),
        ("rank", Self::Rank, 2, 2),
        ("shape", Self::Shape, 2, 2),
        ("number", Self::Number, 1, 1),
        ("int", Self::Int, 1, 1),
        ("sizes", Self::Sizes, 1, 1),
        ("node", Self::Node, 1, 1),
        ("single_use", Self::SingleUse, 1, 1),
        ("identity", Self::Identity, 1, 1),
        ("last", Self::Last, 2, 2),
        ("last_two", Self::LastTwo, 3, 3),
        ("near", Self::Near, 2, 2),
        ("power_of_two", Self::PowerOfTwo, 1, 1),
    ];
}

/// A rewrite rule: where the roots of the pattern are found and the conditions hold, the
/// replacement takes the place of the roots.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name in reports.
    pub name: String,
    /// The names of the variables, without the question mark.
    pub variables: Vec<String>,
    /// The patterns, which are calls. All but the first use a value that the ones before mention.
    pub roots: Vec<Pattern>,
    /// Conditions that must hold.
    pub conditions: Vec<Condition>,
    /// The replacement of the roots.
    pub replacement: Replacement,
    /// The other direction of a rule that goes both ways (`<=>`). [`crate::saturate`] uses it;
    /// rewriting, which would not terminate with it, does not.
    pub reverse: Option<Box<Rule>>,
}

impl Rule {
    /// The qualified names of the functions that new nodes call.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        let calls = self.replacement.calls.iter();
        calls.filter_map(|call| match &call.callee {
            Callee::Function(name) => Some(name.as_str()),
            Callee::Method(_) | Callee::Module(_) | Callee::Attribute(_) => None,
        })
    }

    /// The paths of modules and attributes that new nodes name from the module that has the graph.
    pub fn places(&self) -> impl Iterator<Item = &str> {
        self.replacement.places()
    }

    /// Number of calls on the longest path of the pattern.
    pub(crate) fn depth(&self) -> usize {
        self.roots.iter().map(depth).max().unwrap_or(0)
    }
}

fn depth(pattern: &Pattern) -> usize {
    match pattern {
        Pattern::Variable(_) | Pattern::Literal(_) => 0,
        Pattern::Call { arguments, .. } => {
            1 + arguments.iter().map(|(_, p)| depth(p)).max().unwrap_or(0)
        }
        Pattern::Named(_, pattern) | Pattern::OfModule(_, pattern) => depth(pattern),
        Pattern::Slice(parts) => parts.iter().map(depth).max().unwrap_or(0),
        Pattern::Sequence(items) | Pattern::Tuple(items) => {
            let depths = items.iter().map(|item| match item {
                Item::One(pattern) => depth(pattern),
                Item::Many(_) => 0,
            });
            depths.max().unwrap_or(0)
        }
    }
}

/// Whether an operator has the same result for its first two arguments in either order, to the last
/// bit.
#[must_use]
pub fn is_commutative(operator: &str) -> bool {
    matches!(
        operator,
        "add"
            | "mul"
            | "maximum"
            | "minimum"
            | "eq"
            | "ne"
            | "logical_and"
            | "logical_or"
            | "logical_xor"
            | "bitwise_and"
            | "bitwise_or"
            | "bitwise_xor"
    )
}

/// Whether two arguments are the same value: numbers to the last bit and of the same type.
pub(crate) fn same_value(a: &Arg, b: &Arg) -> bool {
    match (a, b) {
        (Arg::Float(a), Arg::Float(b)) => a.to_bits() == b.to_bits(),
        (Arg::Complex(a), Arg::Complex(b)) => {
            a.0.to_bits() == b.0.to_bits() && a.1.to_bits() == b.1.to_bits()
        }
        // A list and a tuple of sizes, dimensions or tensors have the same meaning.
        (Arg::Tuple(a) | Arg::List(a), Arg::Tuple(b) | Arg::List(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| same_value(a, b))
        }
        (a, b) => a == b,
    }
}
