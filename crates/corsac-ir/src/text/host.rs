//! What printing asks of the host.

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

/// How the values that only the host understands are written.
///
/// Every answer may be `None`: then the value's qualified name is printed, or its number where it
/// has none.
pub trait HostText {
    /// `str` of a value, as it appears among arguments.
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

    /// The class of a named tuple.
    fn named_tuple(&self, _class: ExternalId) -> Option<NamedTupleClass> {
        None
    }
}

/// No host: every value is printed by its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHost;

impl HostText for NoHost {}
