//! Errors of changes to a graph.

use thiserror::Error;

use crate::entity::NodeId;
use crate::op::Op;

/// The reason why a graph refused a change. The graph is then as it was before.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The id was never handed out by this graph.
    #[error("{node} is not a node of this graph")]
    UnknownNode {
        /// The id.
        node: NodeId,
    },
    /// The node was erased before.
    #[error("node {name} has been erased from its graph")]
    Erased {
        /// The node.
        node: NodeId,
        /// Its name.
        name: String,
    },
    /// A node that others use cannot be erased.
    #[error("node {name} still has {} users in the graph: {}", .users.len(), .users.join(", "))]
    HasUsers {
        /// The node.
        node: NodeId,
        /// Its name.
        name: String,
        /// The names of its users, in order.
        users: Vec<String>,
    },
    /// The target does not fit the opcode: call_function takes a function, every other one a name.
    #[error("{op} node {name}: expected {expected} as its target")]
    WrongTarget {
        /// The opcode.
        op: Op,
        /// The node's name, or the name asked for.
        name: String,
        /// The kind of target that the opcode takes.
        expected: &'static str,
    },
    /// An argument nests containers deeper than any program does.
    #[error("an argument nests containers more than {limit} deep")]
    NestingTooDeep {
        /// The limit.
        limit: u16,
    },
    /// The value of a node cannot be the key of a dictionary.
    #[error("node {node} is used in the key of a dictionary argument")]
    NodeInDictKey {
        /// The node.
        node: NodeId,
    },
    /// A node cannot be placed next to itself.
    #[error("node {name} cannot be moved next to itself")]
    MovedToItself {
        /// The node.
        node: NodeId,
        /// Its name.
        name: String,
    },
    /// The uses of the nodes named form a cycle, so that no order is right.
    #[error("nodes use each other in a cycle: {}", .cycle.join(" -> "))]
    Cycle {
        /// Names along the cycle, first one repeated at the end.
        cycle: Vec<String>,
    },
}
