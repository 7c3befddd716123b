//! What a search asks the host: whether things that the graphs only know by id are the same.

use crate::arg::Arg;
use crate::entity::{ExternalId, FunctionId};
use crate::graph::Graph;

use super::MatchError;

/// Answers for what the graphs do not know themselves.
///
/// A search holds both graphs for reading while it asks.
pub trait MatchHost {
    /// What a search fails with.
    type Error: From<MatchError>;

    /// Whether a function of the pattern is that function of the graph. Asked once for each pair,
    /// before the search.
    fn same_function(&mut self, pattern: (&Graph, FunctionId), graph: (&Graph, FunctionId))
    -> bool;

    /// Whether a host value in the pattern equals one in the graph, and is of the same type.
    ///
    /// # Errors
    /// What comparing them fails with; the search ends.
    fn same_value(
        &mut self,
        pattern: (&Graph, ExternalId),
        graph: (&Graph, ExternalId),
    ) -> Result<bool, Self::Error>;

    /// Whether an attribute that the pattern names can stand for one that the graph names.
    ///
    /// # Errors
    /// What comparing them fails with; the search ends.
    fn same_attribute(&mut self, pattern: &str, graph: &str) -> Result<bool, Self::Error>;
}

/// What else to look for, and what to know, in a search.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<'q> {
    /// Where it is not empty, anchors also stand for any node whose name contains it.
    pub name: &'q str,
    /// The functions of the pattern that are operators with a schema: calls that pass the same
    /// arguments in different ways then match.
    pub schemas: &'q [(FunctionId, Schema)],
}

/// The parameters of an operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// In order.
    pub parameters: Vec<Parameter>,
}

/// One parameter of an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Whether it can be passed by keyword only.
    pub keyword_only: bool,
    /// What is passed where nothing is said, as an argument in the graph that is searched.
    pub default: Arg,
}

/// The host of a search without a host: functions and host values are the same where their
/// qualified names are, and any attribute can stand for any other.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByName;

impl MatchHost for ByName {
    type Error = MatchError;

    fn same_function(
        &mut self,
        (pattern, wanted): (&Graph, FunctionId),
        (graph, function): (&Graph, FunctionId),
    ) -> bool {
        pattern.function_name(wanted) == graph.function_name(function)
    }

    fn same_value(
        &mut self,
        (pattern, wanted): (&Graph, ExternalId),
        (graph, value): (&Graph, ExternalId),
    ) -> Result<bool, MatchError> {
        let wanted = pattern.external_name(wanted);
        Ok(wanted.is_some() && wanted == graph.external_name(value))
    }

    fn same_attribute(&mut self, _pattern: &str, _graph: &str) -> Result<bool, MatchError> {
        Ok(true)
    }
}
