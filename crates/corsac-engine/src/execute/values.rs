//! The values of a run.

use crate::data::Data;
use crate::memory::Kept;
use crate::program::{Element, Source, ValueId};

use super::Executable;

/// The values of a run that have been computed so far.
pub(crate) struct Values<'a> {
    pub(super) executable: &'a Executable,
    pub(super) kept: Kept<'a>,
    pub(super) inputs: &'a [Data<'a>],
}

impl<'a> Values<'a> {
    /// The elements of a value of any type.
    pub(crate) fn data(&self, value: ValueId) -> Data<'a> {
        let program = &self.executable.program;
        let root = program.root(value);
        let len = program.value(root).stored_len();
        match program.value(root).source {
            _ if program.element(root) == Element::F32 => Data::F32(self.get(root)),
            Source::Input(number) => match self.executable.plan.place(root) {
                Some(place) => self.kept.data(place, program.element(root), len),
                None => self.inputs[number],
            },
            Source::Weight(_) | Source::Derived(_) => {
                let weight = self.executable.other_weights[root.index()].as_ref();
                weight.map_or(Data::I64(&[]), |weight| weight.first(len))
            }
            Source::Step | Source::Alias(_) => match self.executable.plan.place(root) {
                Some(place) => self.kept.data(place, program.element(root), len),
                None => Data::I64(&[]),
            },
        }
    }

    pub(crate) fn get(&self, value: ValueId) -> &'a [f32] {
        let program = &self.executable.program;
        let root = program.root(value);
        let len = program.value(root).stored_len();
        match program.value(root).source {
            Source::Input(number) => match self.executable.plan.place(root) {
                Some(place) => self.kept.numbers(place, len),
                None => self.inputs[number].numbers(),
            },
            Source::Weight(_) | Source::Derived(_) => self.executable.weights[root.index()]
                .as_deref()
                .map_or(&[], Vec::as_slice),
            Source::Step | Source::Alias(_) => match self.executable.plan.place(root) {
                Some(place) => self.kept.numbers(place, len),
                None => &[],
            },
        }
    }
}
