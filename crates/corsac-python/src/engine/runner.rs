//! Ordinary calls of a compiled model, recognised as such and made without a step of Python.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};
use smallvec::SmallVec;

use super::arguments::{Arguments, Outline, Signature};
use super::entry::{Entry, Finish, Ran, State, strides_of};
use super::model_guards::PyModelGuards;
use super::modes::Modes;
use super::program::PyProgram;
use super::tensors::{Described, Exchange};
use crate::capture::{PyGuards, Stamped};

/// Number of profiles being made, which need to see each call.
static OBSERVERS: AtomicUsize = AtomicUsize::new(0);

/// Starts or ends a profile, which sees each call in Python.
#[pyfunction]
pub(super) fn observe_calls(start: bool) {
    match start {
        true => OBSERVERS.fetch_add(1, Ordering::Relaxed),
        false => OBSERVERS.fetch_sub(1, Ordering::Relaxed),
    };
}

/// Calls that are left to PyTorch, which is faster.
struct Hosted {
    calls: Outline,
    /// The number of calls that are left.
    more: u64,
}

/// Largest number of kinds of calls that are left to PyTorch at a time.
const HOSTED: usize = 64;

/// In place of results: calls that PyTorch has to run.
#[pyclass(name = "NoResult", module = "corsac._core", frozen)]
pub(super) struct PyNoResult;

fn no_result<'py>(
    py: Python<'py>,
    known: &PyOnceLock<Py<PyNoResult>>,
) -> PyResult<Bound<'py, PyNoResult>> {
    let known = known.get_or_try_init(py, || Py::new(py, PyNoResult))?;
    Ok(known.bind(py).clone())
}

/// For calls that are left to PyTorch.
pub(super) fn host(py: Python<'_>) -> PyResult<Bound<'_, PyNoResult>> {
    static HOST: PyOnceLock<Py<PyNoResult>> = PyOnceLock::new();
    no_result(py, &HOST)
}

/// For calls of which a native program has failed before it has changed anything.
pub(super) fn failed(py: Python<'_>) -> PyResult<Bound<'_, PyNoResult>> {
    static FAILED: PyOnceLock<Py<PyNoResult>> = PyOnceLock::new();
    no_result(py, &FAILED)
}

/// Dictionaries of hooks that modules have.
const HOOKS: [&str; 4] = [
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
];

/// Runs the programs of a model for ordinary calls.
#[pyclass(name = "Runner", module = "corsac._core", frozen)]
pub(crate) struct PyRunner {
    /// Attributes of the compiled module itself.
    attributes: Stamped,
    /// Hooks of the compiled module itself, empty as a rule.
    hooks: Vec<Py<PyDict>>,
    /// The one that was used last comes last. No Python code runs while this is locked.
    entries: Mutex<Vec<Arc<Entry>>>,
    hosted: Mutex<Vec<Hosted>>,
    /// Whether its calls are those in autocast.
    autocast: bool,
}

/// A call that was recorded: `corsac._compile.recorded_programs.RecordedCall`.
#[derive(FromPyObject)]
pub(super) struct RecordedCall<'py> {
    keywords: Bound<'py, PyDict>,
    guards: Py<PyGuards>,
    structures: Vec<Bound<'py, PyAny>>,
    inputs: Vec<Bound<'py, PyAny>>,
    found: Option<Vec<usize>>,
    rewritten: Vec<Py<PyAny>>,
    build: Option<Py<PyAny>>,
    replay: Option<Py<PyAny>>,
}

impl RecordedCall<'_> {
    /// The program with the calls that it is for; `None` if one of its inputs cannot be described.
    fn entry(
        self,
        exchange: &Exchange,
        key: Bound<'_, PyAny>,
        program: Py<PyProgram>,
        arguments: &Bound<'_, PyTuple>,
        model_guards: Py<PyModelGuards>,
    ) -> PyResult<Option<Entry>> {
        let arguments = Arguments::of(arguments, Some(&self.keywords), exchange);
        let mut strides = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            match exchange.described_as_stored(input) {
                Some(described) => strides.push(strides_of(&described)),
                None => return Ok(None),
            }
        }
        let Some(signature) = Signature::new(&arguments, &self.structures, true) else {
            return Ok(None);
        };
        Ok(Some(Entry {
            key: key.unbind(),
            program,
            signature,
            model_guards,
            guards: Some(self.guards),
            found: self.found.map(SmallVec::from_vec),
            rewritten: self.rewritten,
            strides,
            finish: match (self.build, self.replay) {
                (_, Some(replay)) => Finish::Replay(replay),
                (Some(build), None) => Finish::Build(build),
                (None, None) => Finish::Returned,
            },
            ran: AtomicBool::new(false),
        }))
    }
}

impl PyRunner {
    /// Whether the compiled module has hooks, or another dictionary of hooks than it had.
    fn is_hooked(&self, py: Python<'_>) -> PyResult<bool> {
        let has_same = self.attributes.is_current(py, |attributes| {
            for (name, known) in HOOKS.iter().zip(&self.hooks) {
                let now = attributes.get_item(name)?;
                if !now.is_some_and(|now| now.is(known)) {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        Ok(!has_same || self.hooks.iter().any(|own| !own.bind(py).is_empty()))
    }

    /// The programs that may be for such arguments, the one used last first.
    fn find(
        &self,
        arguments: &Arguments<'_>,
        described: &[Described<'_>],
    ) -> SmallVec<[Arc<Entry>; 1]> {
        let Ok(entries) = self.entries.lock() else {
            return SmallVec::new();
        };
        let fitting = entries.iter().rev();
        let fitting = fitting.filter(|entry| entry.may_be_for(arguments, described));
        fitting.cloned().collect()
    }

    /// Whether such a call is left to PyTorch.
    fn is_hosted(&self, arguments: &Arguments<'_>, described: &[Described<'_>]) -> bool {
        let Ok(mut all) = self.hosted.lock() else {
            return false;
        };
        let known = (all.iter()).position(|own| own.calls.is_of(arguments, described));
        let Some(at) = known else {
            return false;
        };
        if all[at].more == 0 {
            all.remove(at);
            return false;
        }
        all[at].more -= 1;
        true
    }

    /// Moves the program that was used last to the end.
    fn used(&self, entry: &Arc<Entry>) {
        if let Ok(mut entries) = self.entries.lock()
            && let Some(at) = entries.iter().rposition(|own| Arc::ptr_eq(own, entry))
        {
            entries[at..].rotate_left(1);
        }
    }

    fn all(&self) -> Vec<Arc<Entry>> {
        let entries = self.entries.lock();
        entries.map(|all| all.clone()).unwrap_or_default()
    }
}

#[pymethods]
impl PyRunner {
    /// `compiled` is the module that is called, `autocast` whether its calls are those in autocast.
    #[new]
    #[pyo3(signature = (compiled, *, autocast = false))]
    fn new(compiled: &Bound<'_, PyAny>, autocast: bool) -> PyResult<Self> {
        let hooks = HOOKS.map(|name| Ok(compiled.getattr(name)?.cast_into::<PyDict>()?.unbind()));
        let attributes = compiled.getattr(intern!(compiled.py(), "__dict__"))?;
        Ok(Self {
            attributes: Stamped::new(attributes.cast_into()?),
            hooks: hooks.into_iter().collect::<PyResult<_>>()?,
            entries: Mutex::default(),
            hosted: Mutex::default(),
            autocast,
        })
    }

    /// Runs calls with arguments like these by a program from now on.
    ///
    /// Args:
    ///     key: its name.
    ///     program: takes the tensors among the arguments; if it was recorded, each tensor once,
    ///         followed by those that it finds in containers and in state, and by those that are
    ///         rewritten.
    ///     arguments: positional arguments of a call that it is for.
    ///     model_guards: checks that its weights are unchanged.
    ///     recorded: a `corsac._compile.recorded_programs.RecordedCall`; None for a graph.
    #[pyo3(signature = (key, program, arguments, model_guards, recorded=None))]
    fn add(
        &self,
        key: Bound<'_, PyAny>,
        program: Py<PyProgram>,
        arguments: &Bound<'_, PyTuple>,
        model_guards: Py<PyModelGuards>,
        recorded: Option<RecordedCall<'_>>,
    ) -> PyResult<()> {
        let Some(exchange) = Exchange::get(key.py())? else {
            return Ok(());
        };
        let entry = match recorded {
            Some(recorded) => recorded.entry(exchange, key, program, arguments, model_guards)?,
            None => {
                let signature =
                    Signature::new(&Arguments::of(arguments, None, exchange), &[], false);
                signature.map(|signature| Entry {
                    key: key.unbind(),
                    program,
                    signature,
                    model_guards,
                    guards: None,
                    found: None,
                    rewritten: Vec::new(),
                    strides: Vec::new(),
                    finish: Finish::Returned,
                    ran: AtomicBool::new(false),
                })
            }
        };
        if let Some(entry) = entry
            && let Ok(mut entries) = self.entries.lock()
        {
            entries.push(Arc::new(entry));
        }
        Ok(())
    }

    /// Removes the program of this name.
    fn remove(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        for own in self.all() {
            if own.key.bind(key.py()).eq(key)?
                && let Ok(mut entries) = self.entries.lock()
            {
                entries.retain(|entry| !Arc::ptr_eq(entry, &own));
            }
        }
        Ok(())
    }

    /// The names of all programs; the one that was used last comes last.
    fn recent<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let all = self.all();
        PyList::new(py, all.iter().map(|own| &own.key))
    }

    /// The names of the programs that have run since the last call of this, in the order of their
    /// last calls.
    fn take_ran<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let all = self.all();
        let ran = all
            .iter()
            .filter(|own| own.ran.swap(false, Ordering::Relaxed));
        PyList::new(py, ran.map(|own| &own.key).collect::<Vec<_>>())
    }

    /// Leaves so many calls with arguments like these to PyTorch, where that is faster than
    /// checking them; not those with an argument that requires gradients.
    fn leave(
        &self,
        py: Python<'_>,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
        calls: u64,
    ) -> PyResult<()> {
        let Some(exchange) = Exchange::get(py)? else {
            return Ok(());
        };
        let outline = Outline::of(&Arguments::of(arguments, keywords, exchange), exchange);
        if let Some(outline) = outline
            && let Ok(mut all) = self.hosted.lock()
        {
            all.retain(|own| own.calls != outline);
            all.truncate(HOSTED - 1);
            let hosted = Hosted {
                calls: outline,
                more: calls,
            };
            all.insert(0, hosted);
        }
        Ok(())
    }

    /// Run a call, and return the results of the model; `HOST` for a call that is left to PyTorch,
    /// and `NotImplemented` for one that needs Python: of other shapes than there are programs for,
    /// or where autograd records, a mode is on, a weight has changed, or calls are observed.
    #[pyo3(signature = (arguments, keywords=None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let unknown = || Ok(py.NotImplemented().into_bound(py));
        if OBSERVERS.load(Ordering::Relaxed) > 0 {
            return unknown();
        }
        let (Some(exchange), modes) = (Exchange::get(py)?, Modes::get(py)?) else {
            return unknown();
        };
        if self.is_hooked(py)? || modes.has_hooks(py) || modes.unusual(py, self.autocast)?.is_some()
        {
            return unknown();
        }
        let arguments = Arguments::of(arguments, keywords, exchange);
        let records = modes.records(py)?;
        let mut described: SmallVec<[Described<'_>; 4]> = SmallVec::new();
        for tensor in &arguments.tensors {
            if records && exchange.requires_grad(tensor)? {
                return unknown();
            }
            match exchange.described_as_stored(tensor) {
                Some(own) => described.push(own),
                None => return unknown(),
            }
        }
        if !(records && arguments.has_others()) && self.is_hosted(&arguments, &described) {
            return Ok(host(py)?.into_any());
        }
        let mut state = State::default();
        for entry in &self.find(&arguments, &described) {
            let Some(inputs) = entry.inputs(py, &arguments, &mut state)? else {
                continue;
            };
            if !entry.fits(exchange, &inputs, records)? || !state.is_current(py, entry, records)? {
                continue;
            }
            self.used(entry);
            // The checks may have run Python code, which may have changed a tensor.
            return match entry.run(py, exchange, &inputs)? {
                Ran::Returned(results) => Ok(results),
                Ran::Failed => Ok(failed(py)?.into_any()),
                Ran::Not => unknown(),
            };
        }
        unknown()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.attributes.dict)?;
        for own in &self.hooks {
            visit.call(own)?;
        }
        if let Ok(entries) = self.entries.try_lock() {
            for entry in entries.iter() {
                entry.traverse(&visit)?;
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
