//! Conversion of the errors of the Rust crates to Python exceptions, in one place.

use corsac_ir::GraphError;
use corsac_ir::matching::MatchError;
use corsac_ir::rewrite::RewriteError;
use corsac_passes::PassError;
use pyo3::PyErr;
use pyo3::exceptions::{
    PyAssertionError, PyAttributeError, PyKeyError, PyRecursionError, PyRuntimeError, PyTypeError,
    PyValueError,
};

/// The exception for a refused change: of the class that torch.fx raises there, or the closest.
pub(crate) fn graph_error(error: GraphError) -> PyErr {
    let message = error.to_string();
    match error {
        GraphError::NestingTooDeep { .. } => PyRecursionError::new_err(message),
        GraphError::WrongTarget { .. } => PyValueError::new_err(message),
        GraphError::NodeInDictKey { .. } => PyAssertionError::new_err(message),
        GraphError::MovedToItself { .. } => PyAssertionError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}

/// The exception for a pattern that cannot be searched for.
pub(crate) fn match_error(error: MatchError) -> PyErr {
    let message = error.to_string();
    match error {
        MatchError::EmptyPattern => PyValueError::new_err(message),
        MatchError::DeadCode { .. } => PyAssertionError::new_err(message),
        MatchError::Unbound { .. } => PyKeyError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}

/// The exception for a refused rewrite.
pub(crate) fn rewrite_error(error: RewriteError) -> PyErr {
    let message = error.to_string();
    match error {
        RewriteError::Match(error) => match_error(error),
        RewriteError::Graph(error) => graph_error(error),
        RewriteError::PlaceholderCount { .. }
        | RewriteError::ReturnCount { .. }
        | RewriteError::NoInsertPoint => PyAssertionError::new_err(message),
        RewriteError::NothingReturned { .. } => PyTypeError::new_err(message),
        RewriteError::LiteralReturned { .. } => PyAttributeError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}

/// The exception for a graph that a pass refused.
pub(crate) fn pass_error(error: PassError) -> PyErr {
    match error {
        PassError::Graph(error) => graph_error(error),
        other => PyRuntimeError::new_err(other.to_string()),
    }
}
