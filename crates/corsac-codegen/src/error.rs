//! Why a graph has no code.

use corsac_ir::Op;
use thiserror::Error;

/// Why no code can be generated from a graph.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodegenError {
    /// A node lacks an argument that its opcode needs.
    #[error("{op} node {name}: expected {expected}, got {got} positional arguments")]
    MissingArgument {
        /// The opcode.
        op: Op,
        /// The node's name.
        name: String,
        /// What is missing.
        expected: &'static str,
        /// How many positional arguments there are.
        got: usize,
    },
    /// The host does not know a value that the graph refers to.
    #[error("node {name} refers to {what} that the host does not know")]
    UnknownToHost {
        /// The node's name.
        name: String,
        /// What the host was asked for.
        what: String,
    },
}
