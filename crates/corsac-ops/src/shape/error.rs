//! Failures of type inference.

use std::fmt;

use corsac_ir::NodeId;

use super::value::Value;

/// The failure of a rule to find a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing is known, with the reason. Not an error: the call may be right.
    Unknown(Box<str>),
    /// The call fails when it runs.
    Invalid {
        /// Description of the arguments that the operator takes.
        expected: Box<str>,
        /// Description of the arguments that it was given.
        got: Box<str>,
    },
}

impl Failure {
    /// Nothing is known, for this reason.
    #[must_use]
    pub fn unknown(reason: impl Into<Box<str>>) -> Self {
        Self::Unknown(reason.into())
    }

    /// `expected` is required and `got` was given. A value of which nothing is known is no error.
    #[must_use]
    pub fn expected(expected: impl Into<Box<str>>, got: &Value) -> Self {
        match got {
            Value::Unknown(reason) => Self::Unknown((&**reason).into()),
            Value::Object | Value::Number(_) => {
                let expected: Box<str> = expected.into();
                Self::unknown(format!(
                    "{expected} is needed, and all that is known is {got}"
                ))
            }
            got => Self::invalid(expected, got.to_string()),
        }
    }

    /// The call fails: `expected` is required and `got` was given.
    #[must_use]
    pub fn invalid(expected: impl Into<Box<str>>, got: impl Into<Box<str>>) -> Self {
        Self::Invalid {
            expected: expected.into(),
            got: got.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(reason) => f.write_str(reason),
            Self::Invalid { expected, got } => write!(f, "expected {expected}, got {got}"),
        }
    }
}

/// A call that fails when it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeError {
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Its target.
    pub target: String,
    /// Description of the arguments that the operator takes.
    pub expected: String,
    /// Description of the arguments that it was given.
    pub got: String,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            target,
            expected,
            got,
            ..
        } = self;
        write!(f, "node {name} ({target}): expected {expected}, got {got}")
    }
}

impl std::error::Error for ShapeError {}
