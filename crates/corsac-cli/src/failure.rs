//! What went wrong, in one line.

use std::io;
use std::path::{Path, PathBuf};

use corsac_engine::ModelError;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line does not say what is wanted.
    #[error("{0}")]
    Usage(String),
    /// The model, or the call of it.
    #[error("{}: {error}", path.display())]
    Model {
        /// The file of the model.
        path: PathBuf,
        /// What is wrong with it.
        error: ModelError,
    },
    /// A file with an array.
    #[error("{}: {reason}", path.display())]
    Array {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Standard output cannot be written to.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    pub(crate) fn model(path: &Path) -> impl Fn(ModelError) -> Self + '_ {
        |error| match error {
            // It names its file itself.
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
