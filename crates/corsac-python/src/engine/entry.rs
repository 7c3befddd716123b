//! Programs of a model, with everything that decides whether one may run a call.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::PyTraverseError;
use pyo3::exceptions::PyValueError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use smallvec::SmallVec;

use super::arguments::{Arguments, Signature, number_of};
use super::model_guards::PyModelGuards;
use super::program::PyProgram;
use super::tensors::{Described, Exchange};
use crate::capture::{Found, PyGuards, has_attributes};

/// Strides of an input; `None` if it is contiguous.
type Strides = Option<SmallVec<[i64; 4]>>;

/// Use of the results of a program.
pub(super) enum Finish {
    /// They are returned.
    Returned,
    /// A function is called with them, and its result is returned.
    Build(Py<PyAny>),
    /// A function is called with them, the inputs, and the objects and numbers that the program has found.
    Replay(Py<PyAny>),
}

/// A program, and the calls that it is for.
pub(super) struct Entry {
    pub(super) key: Py<PyAny>,
    pub(super) program: Py<PyProgram>,
    pub(super) signature: Signature,
    /// Checks that its weights are unchanged.
    pub(super) model_guards: Py<PyModelGuards>,
    /// Check that Python would do the same again; none for a graph.
    pub(super) guards: Option<Py<PyGuards>>,
    /// The indices, among the inputs, of the tensors that it finds in containers and in state; none
    /// if it looks at none.
    pub(super) found: Option<SmallVec<[usize; 4]>>,
    /// Tensors with other contents in each call: its last inputs.
    pub(super) rewritten: Vec<Py<PyAny>>,
    /// Strides of its inputs, if it was recorded.
    pub(super) strides: Vec<Strides>,
    pub(super) finish: Finish,
    /// Whether it has run since this flag was last read.
    pub(super) ran: AtomicBool,
}

/// Inputs of a program in a call, and the objects and numbers that it has found.
pub(super) struct Inputs<'py> {
    pub(super) tensors: SmallVec<[Bound<'py, PyAny>; 4]>,
    objects: Vec<Bound<'py, PyAny>>,
    numbers: Option<Bound<'py, PyDict>>,
}

/// Outcome of a call.
pub(super) enum Ran<'py> {
    Returned(Bound<'py, PyAny>),
    /// The program has failed before it has changed anything: PyTorch raises its own error.
    Failed,
    /// Memory of the inputs is none that the program may read or write.
    Not,
}

/// State in one call: programs for several sizes share guards and weights, which are checked once.
#[derive(Default)]
pub(super) struct State<'py> {
    /// By the addresses of guards.
    found: Vec<(usize, Option<Found<'py>>)>,
    /// By the addresses of guards and model guards.
    current: Vec<((usize, usize), bool)>,
}

impl<'py> State<'py> {
    /// The tensors and objects that guards find; `None` if something else is there.
    fn found(
        &mut self,
        guards: &Bound<'py, PyGuards>,
        structures: impl FnOnce() -> Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Option<&Found<'py>>> {
        let key = guards.as_ptr() as usize;
        let known = self.found.iter().position(|own| own.0 == key);
        let at = match known {
            Some(at) => at,
            None => {
                let found = guards.get().find(guards.py(), structures())?;
                self.found.push((key, found));
                self.found.len() - 1
            }
        };
        Ok(self.found[at].1.as_ref())
    }

    /// Whether a program may run now, with or without gradients.
    pub(super) fn is_current(
        &mut self,
        py: Python<'py>,
        entry: &Entry,
        records: bool,
    ) -> PyResult<bool> {
        let guards = entry.guards.as_ref().map_or(0, |own| own.as_ptr() as usize);
        let key = (guards, entry.model_guards.as_ptr() as usize);
        if let Some((_, known)) = self.current.iter().find(|own| own.0 == key) {
            return Ok(*known);
        }
        let is_current = entry.is_current(py, records)?;
        self.current.push((key, is_current));
        Ok(is_current)
    }
}

/// Strides of a tensor, as far as programs depend on them.
pub(super) fn strides_of(described: &Described<'_>) -> Strides {
    match described.is_as_made() {
        true => None,
        false => described
            .layout()
            .map(|(_, _, strides)| strides.into())
            .or_else(|| Some(SmallVec::new())),
    }
}

impl Entry {
    /// Whether a call may be for this program, without a check of Python's objects.
    pub(super) fn may_be_for(
        &self,
        arguments: &Arguments<'_>,
        described: &[Described<'_>],
    ) -> bool {
        let inputs = self.program.get().inputs().iter().zip(described);
        self.signature.may_be(arguments)
            && (self.signature.repeats()
                || inputs
                    .into_iter()
                    .all(|(spec, own)| own.is(spec.dtype, &spec.shape)))
    }

    /// Inputs of the program in a call; `None` if the call is not for this program.
    pub(super) fn inputs<'py>(
        &self,
        py: Python<'py>,
        arguments: &Arguments<'py>,
        state: &mut State<'py>,
    ) -> PyResult<Option<Inputs<'py>>> {
        if !self.signature.has_same(arguments) {
            return Ok(None);
        }
        let Some(mut tensors) = self.signature.tensors(arguments) else {
            return Ok(None);
        };
        let (mut objects, mut numbers) = (Vec::new(), None);
        if let (Some(expected), Some(guards)) = (&self.found, &self.guards) {
            let structures = || self.signature.structures(arguments);
            let Some(found) = state.found(guards.bind(py), structures)? else {
                return Ok(None);
            };
            let places = found.0.iter().map(|own| number_of(&mut tensors, own));
            if !places.eq(expected.iter().copied()) {
                return Ok(None);
            }
            objects.clone_from(&found.1);
            numbers = Some((&found.2).into_pyobject(py)?);
        }
        tensors.extend(self.rewritten.iter().map(|own| own.bind(py).clone()));
        Ok(Some(Inputs {
            tensors,
            objects,
            numbers,
        }))
    }

    /// Whether inputs have the types, sizes and layouts of the program, and are ordinary tensors.
    pub(super) fn fits(
        &self,
        exchange: &Exchange,
        inputs: &Inputs<'_>,
        records: bool,
    ) -> PyResult<bool> {
        let specs = self.program.get().inputs();
        if inputs.tensors.len() != specs.len() {
            return Ok(false);
        }
        for (number, (tensor, spec)) in inputs.tensors.iter().zip(specs).enumerate() {
            if !exchange.is_tensor(tensor) || (records && exchange.requires_grad(tensor)?) {
                return Ok(false);
            }
            // Whether it is stored as its negative is asked before the call, once.
            let described = exchange.described_as_stored(tensor);
            let described = described.filter(|own| own.is(spec.dtype, &spec.shape));
            let Some(described) = described else {
                return Ok(false);
            };
            // Programs may depend on classes and attributes of inputs, and results on their strides.
            let is_alike = self.guards.is_none()
                || (exchange.is_plain(tensor)
                    && !has_attributes(tensor)
                    && self.strides.get(number) == Some(&strides_of(&described)));
            if !is_alike {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_current(&self, py: Python<'_>, records: bool) -> PyResult<bool> {
        let model_guards = self.model_guards.get();
        if !model_guards.counts_writes || (records && model_guards.requires_grad(py)?) {
            return Ok(false);
        }
        if let Some(guards) = &self.guards
            && !guards.get().are_current(py)
        {
            return Ok(false);
        }
        model_guards.is_current(py)
    }

    /// Runs the program.
    pub(super) fn run<'py>(
        &self,
        py: Python<'py>,
        exchange: &Exchange,
        inputs: &Inputs<'py>,
    ) -> PyResult<Ran<'py>> {
        let program = self.program.get();
        let mut described: SmallVec<[Described<'_>; 4]> = SmallVec::new();
        for tensor in &inputs.tensors {
            let now = match program.writes_inputs() {
                true => exchange.described_by_torch(tensor)?,
                false => exchange.described(tensor)?,
            };
            match now {
                Some(own) => described.push(own),
                None => return Ok(Ran::Not),
            }
        }
        let results = program.call_described(py, exchange, &described, &inputs.tensors);
        let results = match results {
            Err(error) if error.is_instance_of::<PyValueError>(py) => return Ok(Ran::Failed),
            results => results?,
        };
        let Some(results) = results else {
            return Ok(Ran::Not);
        };
        self.ran.store(true, Ordering::Relaxed);
        match &self.finish {
            Finish::Returned => Ok(results),
            Finish::Build(build) => build.bind(py).call1((results,)),
            Finish::Replay(replay) => {
                let given = PyTuple::new(py, &inputs.tensors)?;
                let objects = PyList::new(py, &inputs.objects)?;
                let numbers = match &inputs.numbers {
                    Some(numbers) => numbers.clone(),
                    None => PyDict::new(py),
                };
                replay.bind(py).call1((results, given, objects, numbers))
            }
        }
        .map(Ran::Returned)
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.key)?;
        visit.call(&self.program)?;
        visit.call(&self.model_guards)?;
        visit.call(&self.guards)?;
        self.signature.traverse(visit)?;
        self.rewritten.iter().try_for_each(|own| visit.call(own))?;
        match &self.finish {
            Finish::Returned => Ok(()),
            Finish::Build(function) | Finish::Replay(function) => visit.call(function),
        }
    }
}
