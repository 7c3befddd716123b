//! Errors of splitting a graph.

use thiserror::Error;

use crate::entity::NodeId;
use crate::error::GraphError;

/// The reason why a graph cannot be split as requested. The graph is as it was.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SplitError {
    /// Parts need values of each other, so that none can run first.
    #[error("cycle exists between partitions: {}", .path.join(" -> "))]
    Cycle {
        /// Names of nodes along the cycle, each used by the next, from the first one back to it.
        path: Vec<String>,
    },
    /// Parts are to run in the order of their ids, but one needs a value of a later one.
    #[error("node {user} is in part {part}, but uses {input} of the later part {later}")]
    Order {
        /// The name of the node.
        user: String,
        /// The index of its part.
        part: usize,
        /// The name of the node it uses.
        input: String,
        /// The index of the part that comes too late.
        later: usize,
    },
    /// Parts are to run in the order of their ids, but in one a value is read or written to that
    /// a later one still writes to, or reads.
    #[error(
        "node {node} is in part {part}, but has to run after {earlier} of the later part {later}: one \
         of the two writes to what the other uses"
    )]
    Wait {
        /// The name of the node.
        node: String,
        /// The index of its part.
        part: usize,
        /// The name of the node that comes before it.
        earlier: String,
        /// The index of the part that comes too late.
        later: usize,
    },
    /// A value is needed where it is not available: it is no input, or defined too late.
    #[error("{} {name}, which is no input and not computed before", uses(.user.as_deref()))]
    Missing {
        /// The node.
        node: NodeId,
        /// Its name.
        name: String,
        /// The name of its user; `None` where it is a result.
        user: Option<String>,
    },
    /// There is not one name for each part.
    #[error("{parts} parts need as many names, got {names}")]
    Names {
        /// Number of parts.
        parts: usize,
        /// Number of names given.
        names: usize,
    },
    /// A call that is to be replaced by a part does not fit it.
    #[error("call {call} gives {got} values to a part that takes {expected}")]
    Arguments {
        /// The name of the call.
        call: String,
        /// Number of inputs of the part.
        expected: usize,
        /// Number of arguments of the call.
        got: usize,
    },
    /// One of the graphs refuses a node.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

fn uses(user: Option<&str>) -> String {
    user.map_or_else(
        || "the result has".to_owned(),
        |user| format!("{user} uses"),
    )
}
