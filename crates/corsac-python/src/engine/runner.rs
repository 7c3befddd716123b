//! Calls of a compiled model in ordinary circumstances, found to be so and made without a step of
//! Python.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyTuple};
use rustc_hash::FxHashSet;

use super::program::PyProgram;
use super::situation::Situation;
use super::tensors::{Described, Exchange};
use super::watch::PyWatch;

/// How many profiles are being made: calls are to be looked at then.
static OBSERVERS: AtomicUsize = AtomicUsize::new(0);

/// Counts those who want to see what each call does.
#[pyfunction]
pub(super) fn observe_calls(start: bool) {
    match start {
        true => OBSERVERS.fetch_add(1, Ordering::Relaxed),
        false => OBSERVERS.fetch_sub(1, Ordering::Relaxed),
    };
}

/// A program, and what calls it is for.
struct Entry {
    key: Py<PyAny>,
    program: Py<PyProgram>,
    /// The integers among the arguments, with their places.
    numbers: Vec<(usize, i64)>,
    /// Whether it is only for calls that give no tensor twice.
    distinct: bool,
}

/// Runs the programs of a model for calls that nothing is special about.
#[pyclass(name = "Runner", module = "corsac._core", frozen)]
pub(crate) struct PyRunner {
    watch: Py<PyWatch>,
    /// Hooks of the compiled module itself, empty as a rule.
    hooks: Vec<Py<PyDict>>,
    /// The one that was used last comes last. Nothing of Python runs while this is locked.
    entries: Mutex<Vec<Entry>>,
}

/// What is known of an argument.
enum Argument {
    Tensor,
    Number(i64),
}

impl PyRunner {
    /// The program for these arguments, which is the one used last from now on.
    fn find(
        &self,
        py: Python<'_>,
        arguments: &[Argument],
        described: &[Described<'_>],
        tensors: &[Bound<'_, PyAny>],
    ) -> Option<Py<PyProgram>> {
        let mut entries = self.entries.lock().ok()?;
        let at = entries.iter().rposition(|entry| {
            let inputs = entry.program.get().inputs();
            let numbers = arguments.iter().enumerate();
            let mut numbers = numbers.filter_map(|(at, argument)| match argument {
                Argument::Tensor => None,
                Argument::Number(number) => Some((at, *number)),
            });
            inputs.len() == described.len()
                && inputs
                    .iter()
                    .zip(described)
                    .all(|(spec, own)| own.is(spec.dtype, &spec.shape))
                && entry
                    .numbers
                    .iter()
                    .all(|&known| numbers.next() == Some(known))
                && numbers.next().is_none()
                && !(entry.distinct && has_one_twice(tensors))
        })?;
        let last = entries.len() - 1;
        if at != last {
            entries[at..].rotate_left(1);
        }
        Some(entries[last].program.clone_ref(py))
    }
}

fn has_one_twice(tensors: &[Bound<'_, PyAny>]) -> bool {
    let mut seen = FxHashSet::default();
    !tensors.iter().all(|tensor| seen.insert(tensor.as_ptr()))
}

#[pymethods]
impl PyRunner {
    /// `watch` tells whether the model is as it was; `compiled` is the module that is called.
    #[new]
    fn new(watch: Py<PyWatch>, compiled: &Bound<'_, PyAny>) -> PyResult<Self> {
        let names = [
            "_forward_hooks",
            "_forward_pre_hooks",
            "_backward_hooks",
            "_backward_pre_hooks",
        ];
        let hooks = names.map(|name| Ok(compiled.getattr(name)?.cast_into::<PyDict>()?.unbind()));
        Ok(Self {
            watch,
            hooks: hooks.into_iter().collect::<PyResult<_>>()?,
            entries: Mutex::default(),
        })
    }

    /// Runs calls with arguments like `inputs` by `program` from now on; if `distinct`, only those that
    /// give no tensor twice, because it was made by a run that could have asked. `key` is its name.
    #[pyo3(signature = (key, program, inputs, *, distinct=false))]
    fn add(
        &self,
        key: Py<PyAny>,
        program: Py<PyProgram>,
        inputs: &Bound<'_, PyTuple>,
        distinct: bool,
    ) -> PyResult<()> {
        let mut numbers = Vec::new();
        for (at, input) in inputs.iter().enumerate() {
            if let Ok(number) = input.cast_exact::<PyInt>() {
                numbers.push((at, number.extract()?));
            }
        }
        let entry = Entry {
            key,
            program,
            numbers,
            distinct,
        };
        if let Ok(mut entries) = self.entries.lock() {
            entries.push(entry);
        }
        Ok(())
    }

    /// Forgets the program of this name.
    fn remove(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = key.py();
        let names: Vec<Py<PyAny>> = match self.entries.lock() {
            Ok(entries) => entries.iter().map(|e| e.key.clone_ref(py)).collect(),
            Err(_) => return Ok(()),
        };
        for name in names {
            if name.bind(py).eq(key)?
                && let Ok(mut entries) = self.entries.lock()
                && let Some(at) = entries.iter().position(|entry| entry.key.is(&name))
            {
                let entry = entries.remove(at);
                drop(entries);
                drop(entry);
            }
        }
        Ok(())
    }

    /// The names of all programs; the one that was used last comes last.
    fn recent<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let entries = self.entries.lock();
        let keys = entries.map(|all| all.iter().map(|e| e.key.clone_ref(py)).collect());
        PyList::new(py, keys.unwrap_or_else(|_| Vec::new()))
    }

    /// What the model answers to these arguments; `NotImplemented` for a call that has to be looked
    /// at: of other shapes than there are programs for, or where autograd records, a mode is on, a
    /// weight has changed, somebody observes.
    fn run<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let unknown = || Ok(py.NotImplemented().into_bound(py));
        if OBSERVERS.load(Ordering::Relaxed) > 0 {
            return unknown();
        }
        let (Some(exchange), situation) = (Exchange::get(py)?, Situation::get(py)?) else {
            return unknown();
        };
        let watch = self.watch.get();
        let hooked = self.hooks.iter().any(|own| !own.bind(py).is_empty());
        if hooked
            || situation.has_hooks(py)
            || !watch.counts_writes
            || situation.unusual(py)?.is_some()
        {
            return unknown();
        }
        let given: Vec<Bound<'py, PyAny>> = arguments.iter().collect();
        let mut kinds = Vec::with_capacity(given.len());
        let mut tensors = Vec::with_capacity(given.len());
        for argument in given {
            if exchange.is_tensor(&argument) {
                kinds.push(Argument::Tensor);
                tensors.push(argument);
            } else if let Ok(number) = argument.cast_exact::<PyInt>() {
                let Ok(number) = number.extract() else {
                    return unknown();
                };
                kinds.push(Argument::Number(number));
            } else {
                return unknown();
            }
        }
        if situation.records(py)? {
            for tensor in &tensors {
                let requires = tensor.getattr(intern!(py, "requires_grad"))?;
                if requires.is_truthy()? {
                    return unknown();
                }
            }
            if watch.requires_grad(py)? {
                return unknown();
            }
        }
        if !watch.is_current(py)? {
            return unknown();
        }
        // From here on no code of Python runs until the program does.
        let mut described = Vec::with_capacity(tensors.len());
        for tensor in &tensors {
            match exchange.described(tensor)? {
                Some(own) => described.push(own),
                None => return unknown(),
            }
        }
        match self.find(py, &kinds, &described, &tensors) {
            Some(program) => program
                .get()
                .call_described(py, exchange, &described, &tensors),
            None => unknown(),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.watch)?;
        for own in &self.hooks {
            visit.call(own)?;
        }
        if let Ok(entries) = self.entries.try_lock() {
            for entry in entries.iter() {
                visit.call(&entry.key)?;
                visit.call(&entry.program)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        if let Ok(mut entries) = self.entries.try_lock() {
            let held = std::mem::take(&mut *entries);
            drop(entries);
            drop(held);
        }
    }
}
