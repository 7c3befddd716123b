//! What can be wrong with a configuration.

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

/// Why a text is no configuration: what is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{position}: {message}")]
pub struct ConfigError {
    /// Where.
    pub position: Position,
    /// What is wrong there.
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

/// Why a configuration or a graph cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A node has an argument that no notation has a word for.
    #[error("node {node}: {what} cannot be written into a configuration")]
    Argument {
        /// The node.
        node: String,
        /// What stands there.
        what: &'static str,
    },
    /// A name that could not be read back.
    #[error("{what} {name:?} cannot be written: {expected}")]
    Name {
        /// What is called so.
        what: &'static str,
        /// The name.
        name: String,
        /// What names look like.
        expected: &'static str,
    },
    /// The graph computes nothing, or inputs stand behind calls.
    #[error("node {node}: {problem}")]
    Shape {
        /// The node.
        node: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}
