//! A model for one set of sizes.

use super::tensor::TensorSpec;
use crate::execute::Executable;

/// A model for one set of sizes: its program, with packed weights.
#[derive(Debug)]
pub struct Specialisation {
    pub(super) inputs: Vec<TensorSpec>,
    pub(super) outputs: Vec<TensorSpec>,
    pub(super) executable: Executable,
}

impl Specialisation {
    /// The inputs, in order.
    #[must_use]
    pub fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    /// The outputs, in order.
    #[must_use]
    pub fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    /// The program with its weights packed.
    #[must_use]
    pub fn executable(&self) -> &Executable {
        &self.executable
    }

    /// The program alone.
    #[must_use]
    pub fn into_executable(self) -> Executable {
        self.executable
    }
}
