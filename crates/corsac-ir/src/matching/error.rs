//! What can be wrong with a pattern or a search.

use thiserror::Error;

/// Why a pattern cannot be searched for.
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
    /// The search ended without coming by a node whose match was asked for: a placeholder that the
    /// pattern does not use, or one skipped because literals are ignored.
    #[error("pattern node {node} was left without a counterpart in a match")]
    Unbound {
        /// The node's name.
        node: String,
    },
}
