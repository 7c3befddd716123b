//! Errors of the program, each printed as one line.

use std::io;
use std::path::{Path, PathBuf};

use corsac_engine::ModelError;

/// An error of the program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A complete message: a faulty command line, or a file that cannot be opened.
    #[error("{0}")]
    Usage(String),
    /// The model is faulty, or running it failed.
    #[error("{}: {error}", path.display())]
    Model {
        /// The file of the model.
        path: PathBuf,
        /// Description of the fault.
        error: ModelError,
    },
    /// Reading or writing a file, such as one with an array, failed.
    #[error("{}: {reason}", path.display())]
    Array {
        /// The file.
        path: PathBuf,
        /// Description of the fault.
        reason: String,
    },
    /// Standard output cannot be written to.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    pub(crate) fn model(path: &Path) -> impl Fn(ModelError) -> Self + '_ {
        |error| match error {
            // The message names the file already.
            ModelError::Io { .. } => Self::Usage(error.to_string()),
            error => Self::Model {
                path: path.to_owned(),
                error,
            },
        }
    }

    pub(crate) fn array(path: &Path, reason: impl ToString) -> Self {
        Self::Array {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }
}
