//! Errors of model files and of calls of models.

use std::io;
use std::path::PathBuf;

use corsac_ir::{DType, ParseError};
use corsac_ops::shape::ShapeError;

use super::signature::InputSpec;
use super::tensor::TensorSpec;
use crate::error::RunError;
use crate::lower::LowerError;

/// A fault of a model file, or of a call of a model. Each message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file cannot be opened, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is no safetensors file, or is incomplete.
    #[error("this is no safetensors file: {reason}")]
    Format {
        /// Description of the fault.
        reason: String,
    },
    /// A safetensors file without a graph, or with missing or invalid metadata.
    #[error("{key} in the metadata: {reason}")]
    Metadata {
        /// The key.
        key: &'static str,
        /// Description of the fault.
        reason: String,
    },
    /// The file was written in another version of the format.
    #[error(
        "the model is in version {found} of the format, and this program reads versions 1 to {}",
        super::VERSION
    )]
    Version {
        /// The version of the file.
        found: String,
    },
    /// The text of the graph cannot be read.
    #[error("line {} of the graph, column {}: expected {}, found {}", .0.line, .0.column, .0.expected, one_line(&.0.found))]
    Text(Box<ParseError>),
    /// The text is a graph, but not a valid graph of a model.
    #[error("node {name} of the graph: {reason}")]
    Graph {
        /// The node.
        name: String,
        /// Description of the fault.
        reason: String,
    },
    /// A call in the graph would fail when it runs.
    #[error("node {} of the graph ({}): expected {}, got {}", .0.name, .0.target, one_line(&.0.expected), one_line(&.0.got))]
    Types(Box<ShapeError>),
    /// The graph calls operators that this engine does not support.
    #[error("the engine cannot run {}", listed(.0))]
    Unsupported(Vec<LowerError>),
    /// The file exceeds a limit.
    #[error("{what}: {size} is more than the limit of {limit}")]
    TooLarge {
        /// The limited resource, with its unit.
        what: &'static str,
        /// The amount that the file asks for.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A weight does not match the graph or the file.
    #[error("weight {name}: {reason}")]
    Weight {
        /// Its name.
        name: String,
        /// Description of the fault.
        reason: String,
    },
    /// An input of a run does not match the model.
    #[error("the input is {expected}, not {}{:?}", got.dtype.name(), got.shape)]
    Input {
        /// The input that the model expects.
        expected: Box<InputSpec>,
        /// The input that was given.
        got: Box<TensorSpec>,
    },
    /// A size of an input that the model does not take.
    #[error("input {input}, dimension {dim}: {reason}")]
    Size {
        /// The input.
        input: String,
        /// The dimension, from 0.
        dim: usize,
        /// Description of the fault.
        reason: String,
    },
    /// A symbol for sizes that cannot be declared so, or has no such value.
    #[error("size {name}: {reason}")]
    Symbol {
        /// The symbol.
        name: String,
        /// Description of the fault.
        reason: String,
    },
    /// A program that the model does not have.
    #[error("the model has no program {name:?}{}", programs(.known))]
    Program {
        /// The name.
        name: String,
        /// The programs of the model.
        known: Vec<String>,
    },
    /// Access to state that does not fit the model.
    #[error("state {name}: {reason}")]
    State {
        /// The name of the tensor.
        name: String,
        /// Description of the fault.
        reason: String,
    },
    /// A call without a session of a program with state.
    #[error("the program reads or writes state ({state}): it runs in a session of the model")]
    NoSession {
        /// The names of the state.
        state: String,
    },
    /// A call of a session whose last one failed after it had written to the state.
    #[error("the last call of this session failed halfway and left its state incomplete: reset it")]
    Torn,
    /// Sizes for which the graph is not the model.
    #[error("{sizes}: the model needs {condition}")]
    Condition {
        /// The sizes.
        sizes: String,
        /// The condition that they do not meet.
        condition: String,
    },
    /// Sizes for which the graph cannot be compiled.
    #[error("{sizes}: {error}")]
    Sizes {
        /// The sizes.
        sizes: String,
        /// The reason.
        error: Box<ModelError>,
    },
    /// Elements that do not match the shape of their tensor.
    #[error("{got} elements for a tensor of shape {shape:?}")]
    Tensor {
        /// The shape.
        shape: Vec<usize>,
        /// Number of elements that were given.
        got: usize,
    },
    /// Elements that are no numbers of a type.
    #[error("{reason} in a tensor of {dtype}")]
    Elements {
        /// The type.
        dtype: DType,
        /// Description of the fault.
        reason: String,
    },
    /// The program cannot be called with these tensors.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Compiling or running the graph failed inside the engine: a bug of the engine.
    #[error("the engine failed: {reason}")]
    Internal {
        /// The message of the failure.
        reason: String,
    },
}

/// Kinds of [`ModelError`], by what a caller can do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// Look at the file system.
    Io,
    /// Get the file again: it is damaged, cut off, or no model file.
    Damaged,
    /// Use the version of this program that wrote the file, or save the model anew.
    Version,
    /// Save another model: this one cannot run on this engine.
    Unsupported,
    /// Raise [`Limits`](super::Limits), if the file can be trusted.
    TooLarge,
    /// Call the model with the inputs that it expects.
    Call,
    /// Report a bug.
    Internal,
}

impl ModelError {
    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> ModelErrorKind {
        match self {
            Self::Io { .. } => ModelErrorKind::Io,
            Self::Format { .. }
            | Self::Metadata { .. }
            | Self::Text(_)
            | Self::Graph { .. }
            | Self::Types(_)
            | Self::Weight { .. } => ModelErrorKind::Damaged,
            Self::Version { .. } => ModelErrorKind::Version,
            Self::Unsupported(_) => ModelErrorKind::Unsupported,
            Self::TooLarge { .. } => ModelErrorKind::TooLarge,
            Self::Input { .. }
            | Self::Size { .. }
            | Self::Symbol { .. }
            | Self::Condition { .. }
            | Self::Program { .. }
            | Self::State { .. }
            | Self::NoSession { .. }
            | Self::Torn
            | Self::Tensor { .. }
            | Self::Elements { .. }
            | Self::Run(_) => ModelErrorKind::Call,
            Self::Sizes { error, .. } => match error.kind() {
                // The file is not damaged: it cannot be called like this.
                ModelErrorKind::Damaged => ModelErrorKind::Call,
                kind => kind,
            },
            Self::Internal { .. } => ModelErrorKind::Internal,
        }
    }

    /// The error for a tensor of this type and shape in the place of the input `spec`.
    pub(super) fn input(spec: &InputSpec, dtype: DType, shape: &[usize]) -> Self {
        let got = TensorSpec {
            name: spec.name.clone(),
            dtype,
            shape: shape.to_vec(),
        };
        Self::Input {
            expected: Box::new(spec.clone()),
            got: Box::new(got),
        }
    }

    pub(super) fn format(reason: impl Into<String>) -> Self {
        Self::Format {
            reason: reason.into(),
        }
    }

    pub(super) fn graph(name: &str, reason: impl Into<String>) -> Self {
        Self::Graph {
            name: name.to_owned(),
            reason: reason.into(),
        }
    }
}

/// `text` on one line, cut off if it is long.
fn one_line(text: &str) -> String {
    const LONGEST: usize = 200;
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = text.chars().take(LONGEST).map(visible).collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push('…');
    }
    line
}

/// The names of programs, for a message.
fn programs(names: &[String]) -> String {
    match names {
        [only] if only.is_empty() => ": its only one has no name".to_owned(),
        names => format!(", but {}", one_line(&names.join(", "))),
    }
}

fn listed(errors: &[LowerError]) -> String {
    const SHOWN: usize = 5;
    let mut parts: Vec<String> = errors
        .iter()
        .take(SHOWN)
        .map(|error| {
            let (name, target) = (one_line(&error.name), one_line(&error.target));
            format!("{name} ({target}): {}", one_line(&error.reason))
        })
        .collect();
    if errors.len() > SHOWN {
        parts.push(format!("and {} more", errors.len() - SHOWN));
    }
    parts.join("; ")
}

/// Runs `work`, and turns a panic into an error: a server that loads files from anywhere must
/// survive.
///
/// # Errors
/// Those of `work`, and [`ModelError::Internal`] if it panics.
pub fn without_panic<T, E: From<ModelError>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(E::from(ModelError::Internal {
            reason: one_line(text.unwrap_or("it gave no reason")),
        }))
    })
}
