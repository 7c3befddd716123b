//! What is in the way of an inverse.

use corsac_ir::{Graph, NodeId, Op};
use thiserror::Error;

/// What is in the way of an inverse.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Obstacle {
    /// There is not one input.
    #[error("there are {count} of them")]
    Inputs {
        /// How many there are.
        count: usize,
    },
    /// The result is a container, or nothing.
    #[error("it is not one value")]
    Result,
    /// The result has nothing to do with the input.
    #[error("it does not depend on the input")]
    Independent,
    /// More than one step uses a value on the way.
    #[error("its value is used more than once")]
    UsedTwice,
    /// It is no call of a function or method.
    #[error("what {op} does is not known to have an inverse")]
    Opcode {
        /// The opcode.
        op: Op,
    },
    /// Nothing is known to undo it.
    #[error("the inverse of {name} is not known")]
    Unknown {
        /// What it calls.
        name: String,
    },
    /// Keyword arguments may change what it computes.
    #[error("{name} is called with keyword arguments")]
    Keywords {
        /// What it calls.
        name: String,
    },
    /// More than one operand would have to be found.
    #[error("several of its operands depend on the input")]
    SeveralOperands,
    /// It writes, or nothing is known of it.
    #[error("it writes to something, or may do")]
    Writes,
    /// It draws random numbers, which an inverse would draw anew.
    #[error("it draws random numbers, which the inverse would draw anew")]
    Random,
    /// It could be undone, were it not for another one.
    #[error("it could be undone, were it not for {place}")]
    Elsewhere {
        /// What is in the way.
        place: String,
    },
}

impl Obstacle {
    /// That nothing is known to undo `node`.
    pub(super) fn unknown(graph: &Graph, node: NodeId) -> Self {
        Self::Unknown {
            name: corsac_ir::own_name(graph.node(node).target_name()).to_owned(),
        }
    }
}
