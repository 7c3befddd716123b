//! The values of a run.

use super::memory::Kept;
use crate::data::{Data, Elements, Stored};
use crate::program::{Element, Source, ValueId};

use super::Executable;
use crate::error::RunError;

/// The values of a run that have been computed so far.
pub(crate) struct Values<'a> {
    pub(super) executable: &'a Executable,
    pub(super) kept: Kept<'a>,
    pub(super) inputs: &'a [Data<'a>],
}

impl<'a> Values<'a> {
    /// The elements of a value.
    ///
    /// # Errors
    /// If no step has computed them, or the step that asks for them writes over them: a bug of the
    /// plan or of the program.
    pub(crate) fn data(&self, value: ValueId) -> Result<Data<'a>, RunError> {
        let program = &self.executable.program;
        let root = program.root(value);
        let info = program.value(root);
        let placed = || {
            let place = self.executable.plan.place(root)?;
            self.kept.data(place, info.element, info.stored_len())
        };
        let found = match info.source {
            Source::Input(number) => match self.executable.plan.place(root) {
                Some(_) => placed(),
                None => Some(self.inputs[number]),
            },
            Source::Weight(_) | Source::Transformed(_) if info.element == Element::F32 => {
                let weight = self.executable.weights[root.index()].as_deref();
                weight.map(|weight| Data::F32(weight))
            }
            Source::Weight(_) | Source::Transformed(_) => {
                let weight = self.executable.other_weights[root.index()].as_deref();
                weight.map(Elements::all)
            }
            Source::Step | Source::Alias(_) => placed(),
        };
        found.ok_or_else(|| missing(root, info.element))
    }

    /// The elements of a value of this type.
    ///
    /// # Errors
    /// As [`data`](Self::data), or if it is of another type.
    pub(crate) fn get<T: Stored>(&self, value: ValueId) -> Result<&'a [T], RunError> {
        T::of(self.data(value)?).ok_or_else(|| missing(value, T::ELEMENT))
    }
}

fn missing(value: ValueId, element: Element) -> RunError {
    RunError::MissingValue {
        value: value.index(),
        element: element.name(),
    }
}
