//! A model for one set of sizes.

use super::tensor::{Tensor, TensorSpec};
use crate::data::Elements;
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

    /// Memory for the outputs.
    pub(super) fn empty_outputs(&self) -> Vec<Elements> {
        let program = self.executable.program();
        let values = program.outputs().into_iter();
        let elements = values.map(|value| {
            let info = program.value(value);
            Elements::zeros(info.element, info.len())
        });
        elements.collect()
    }

    /// The outputs with these elements.
    pub(super) fn results(&self, elements: Vec<Elements>) -> Vec<Tensor> {
        let outputs = self.outputs.iter().zip(elements);
        outputs.map(|(spec, own)| spec.tensor(own)).collect()
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
