//! The host of a search, which compares things that the graphs hold only by id.

use crate::arg::Arg;
use crate::entity::{ExternalId, FunctionId};
use crate::graph::Graph;

use super::MatchError;

/// Compares functions, values and attributes that the graphs hold only by id or name.
///
/// A search borrows both graphs for reading during the calls.
pub trait MatchHost {
    /// The error of a search.
    type Error: From<MatchError>;

    /// Whether a function of the pattern is that function of the graph. Called once for each pair,
    /// before the search.
    fn same_function(&mut self, pattern: (&Graph, FunctionId), graph: (&Graph, FunctionId))
    -> bool;

    /// Whether a host value in the pattern equals one in the graph, and is of the same type.
    ///
    /// # Errors
    /// Those of the comparison; they end the search.
    fn same_value(
        &mut self,
        pattern: (&Graph, ExternalId),
        graph: (&Graph, ExternalId),
    ) -> Result<bool, Self::Error>;

    /// Whether an attribute that the pattern names can stand for one that the graph names.
    ///
    /// # Errors
    /// Those of the comparison; they end the search.
    fn same_attribute(&mut self, pattern: &str, graph: &str) -> Result<bool, Self::Error>;
}

/// Further criteria of a search.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<'q> {
    /// If it is not empty, anchors also match any node whose name contains it.
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
    /// The default value, as an argument in the graph that is searched.
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
