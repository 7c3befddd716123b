//! Errors of patterns and searches.

use thiserror::Error;

/// The reason why a pattern cannot be searched for, or a match is incomplete.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MatchError {
    /// The pattern has no nodes.
    #[error("the pattern is empty")]
    EmptyPattern,
    /// Nothing in the pattern uses a node of it, and it has no effect either.
    #[error("pattern node {node} is never used, so that nothing leads the search to it")]
    DeadCode {
        /// The node's name.
        node: String,
    },
    /// The search ended without a counterpart for a node that needs one: a placeholder that the
    /// pattern does not use, or one skipped because literals are ignored.
    #[error("pattern node {node} was left without a counterpart in a match")]
    Unbound {
        /// The node's name.
        node: String,
    },
}
