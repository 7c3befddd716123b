//! From the errors of the Rust crates to Python exceptions, in one place.

use corsac_ir::GraphError;
use pyo3::PyErr;
use pyo3::exceptions::{PyAssertionError, PyRecursionError, PyRuntimeError, PyValueError};

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
