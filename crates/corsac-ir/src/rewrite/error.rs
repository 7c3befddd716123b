//! Errors of rewrites.

use thiserror::Error;

use crate::error::GraphError;
use crate::matching::MatchError;

/// The reason why a rewrite was refused. The graph is then as it was before that rewrite.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// The pattern cannot be searched for, or a match of it lacks a node.
    #[error(transparent)]
    Match(#[from] MatchError),
    /// The graph refuses one of the changes.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Pattern and replacement take different numbers of inputs.
    #[error(
        "Placeholder count mismatch: {expected} vs {got} (the pattern has {expected} placeholders, \
         the replacement {got})"
    )]
    PlaceholderCount {
        /// Placeholders of the pattern.
        expected: usize,
        /// Placeholders of the replacement.
        got: usize,
    },
    /// Pattern and replacement return different numbers of values.
    #[error(
        "Returning nodes count mismatch: {expected} vs {got} (the pattern returns {expected} nodes, \
         the replacement {got} values)"
    )]
    ReturnCount {
        /// Nodes that the pattern returns.
        expected: usize,
        /// Values that the replacement returns.
        got: usize,
    },
    /// The replacement returns no node, tuple or list.
    #[error("the replacement returns {got}: expected a node, or a tuple or list of them")]
    NothingReturned {
        /// The kind of value that it returns.
        got: &'static str,
    },
    /// A returned pattern node matched a literal, which has no users to be redirected.
    #[error("pattern node {node} is returned, but stands for a literal in a match")]
    LiteralReturned {
        /// The name of the pattern node.
        node: String,
    },
    /// The pattern returns one of its inputs, and another input depends on that.
    #[error(
        "the replacement would depend on itself: its input {input} depends on a value it replaces"
    )]
    DependsOnItself {
        /// The name of the input.
        input: String,
    },
    /// Nothing comes after the replaced nodes.
    #[error("The insert point can't be None (nothing uses the match, and it ends the graph)")]
    NoInsertPoint,
    /// The graph has got new nodes since the patch was made.
    #[error(
        "the patch was made for a graph with ids up to {expected}, this one has them up to {got}"
    )]
    StalePatch {
        /// Ids when the patch was made.
        expected: usize,
        /// Ids now.
        got: usize,
    },
}
