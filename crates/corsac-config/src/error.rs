//! Errors of configurations.

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

/// A place in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// The line, counted from 1.
    pub line: usize,
    /// The character in the line, counted from 1.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// The reason why a text is no configuration: the fault, and its place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{position}: {message}")]
pub struct ConfigError {
    /// The place of the fault.
    pub position: Position,
    /// Description of the fault.
    pub message: Cow<'static, str>,
}

impl ConfigError {
    pub(crate) fn new(position: Position, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            position,
            message: message.into(),
        }
    }

    /// `expected X, found Y`
    pub(crate) fn expected(position: Position, expected: &str, found: impl fmt::Display) -> Self {
        Self::new(position, format!("expected {expected}, found {found}"))
    }
}

/// The reason why a configuration or a graph cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A node has an argument that the notations cannot express.
    #[error("node {node}: {what} cannot be written into a configuration")]
    Argument {
        /// The node.
        node: String,
        /// Description of the argument.
        what: &'static str,
    },
    /// A name that could not be read back.
    #[error("{what} {name:?} cannot be written: {expected}")]
    Name {
        /// Description of the named thing.
        what: &'static str,
        /// The name.
        name: String,
        /// The required form of names.
        expected: &'static str,
    },
    /// The graph computes nothing, or inputs stand behind calls.
    #[error("node {node}: {problem}")]
    Shape {
        /// The node.
        node: String,
        /// Description of the fault.
        problem: &'static str,
    },
}
