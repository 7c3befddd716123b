//! The host of printing.

use std::borrow::Cow;

use crate::entity::ExternalId;

/// A named tuple class, as `repr` of an instance shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTupleClass {
    /// The class's own name.
    pub name: String,
    /// The names of its fields, in order.
    pub fields: Vec<String>,
}

/// A line of the user's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The file's path.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
    /// The function or method that the line is in.
    pub function: String,
}

/// Texts of the values that only the host understands.
///
/// Every method may return `None`: then the value's qualified name is printed, or its number where
/// it has none.
pub trait HostText {
    /// The text of a value among the arguments of a call; usually its `str`.
    fn shown(&self, value: ExternalId) -> Option<Cow<'_, str>> {
        self.str(value)
    }

    /// `str` of a value, for a default value, the result, and a function in the tabular form.
    fn str(&self, _value: ExternalId) -> Option<Cow<'_, str>> {
        None
    }

    /// `repr` of a value, as it appears inside slices and in the result.
    fn repr(&self, _value: ExternalId) -> Option<Cow<'_, str>> {
        None
    }

    /// A type annotation, as it appears after a node's name.
    fn annotation(&self, _ty: ExternalId) -> Option<Cow<'_, str>> {
        None
    }

    /// The name by which a reader of the lossless form finds the value again.
    fn qualified_name(&self, _value: ExternalId) -> Option<Cow<'_, str>> {
        None
    }

    /// The line that a position in a code object is on.
    fn source_line(&self, _code: ExternalId, _offset: i32) -> Option<SourceLine> {
        None
    }

    /// A number that two values have in common, in graphs of one host, if and only if they are the
    /// same object.
    fn identity(&self, _value: ExternalId) -> Option<u64> {
        None
    }

    /// The class of a named tuple.
    fn named_tuple(&self, _class: ExternalId) -> Option<NamedTupleClass> {
        None
    }
}

/// No host: every value is printed by its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHost;

impl HostText for NoHost {}
