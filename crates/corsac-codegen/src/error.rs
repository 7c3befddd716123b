//! Errors of code generation.

use corsac_ir::Op;
use thiserror::Error;

/// The reason why no code can be generated from a graph.
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
        /// The missing argument.
        expected: &'static str,
        /// Number of positional arguments.
        got: usize,
    },
    /// The host lacks a value that the graph refers to.
    #[error("node {name} refers to {what} that the host does not know")]
    UnknownToHost {
        /// The node's name.
        name: String,
        /// Description of the value.
        what: String,
    },
}
