//! Obstacles to an inverse.

use corsac_ir::{Graph, NodeId, Op};
use thiserror::Error;

/// An obstacle to an inverse.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Obstacle {
    /// There is not one input.
    #[error("there are {count} of them")]
    Inputs {
        /// Number of inputs.
        count: usize,
    },
    /// The result is a container, or nothing.
    #[error("it is not one value")]
    Result,
    /// The result does not depend on the input.
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
    /// Its inverse is not known.
    #[error("the inverse of {name} is not known")]
    Unknown {
        /// The name of the function or method.
        name: String,
    },
    /// Keyword arguments may change its computation.
    #[error("{name} is called with keyword arguments")]
    Keywords {
        /// The name of the function or method.
        name: String,
    },
    /// More than one operand would have to be found.
    #[error("several of its operands depend on the input")]
    SeveralOperands,
    /// It writes, or its effects are unknown.
    #[error("it writes to something, or may do")]
    Writes,
    /// It uses random numbers, which would be others in the inverse.
    #[error("it draws random numbers, which the inverse would draw anew")]
    Random,
    /// It could be undone, but for an obstacle elsewhere.
    #[error("it could be undone, were it not for {place}")]
    Elsewhere {
        /// The place of the obstacle.
        place: String,
    },
}

impl Obstacle {
    /// The obstacle that the inverse of `node` is not known.
    pub(super) fn unknown(graph: &Graph, node: NodeId) -> Self {
        Self::Unknown {
            name: corsac_ir::own_name(graph.node(node).target_name()).to_owned(),
        }
    }
}
