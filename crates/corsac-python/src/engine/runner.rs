//! Calls of a compiled model in ordinary circumstances, found to be so and made without a step of
//! Python.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use corsac_engine::DType;
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyInt, PyList, PyTuple};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::program::PyProgram;
use super::situation::Situation;
use super::tensors::{Described, Exchange};
use super::watch::PyWatch;
use crate::capture::{PyGuards, has_attributes};

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
    candidate: Candidate,
    /// The integers among the arguments, with their places.
    numbers: Vec<(usize, i64)>,
    /// Whether it is only for calls that give no tensor twice.
    distinct: bool,
}

/// A program, and when it may run.
struct Candidate {
    program: Py<PyProgram>,
    /// Tells whether its tensors are as they were.
    watch: Py<PyWatch>,
    /// Tell whether it would do the same again; none for a graph that was given.
    guards: Option<Py<PyGuards>>,
    /// Makes of its results what is returned, if that is more than tensors in Python's own containers.
    build: Option<Py<PyAny>>,
}

impl Candidate {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            program: self.program.clone_ref(py),
            watch: self.watch.clone_ref(py),
            guards: self.guards.as_ref().map(|own| own.clone_ref(py)),
            build: self.build.as_ref().map(|own| own.clone_ref(py)),
        }
    }

    /// Whether it may run now, with or without gradients.
    fn is_current(&self, py: Python<'_>, records: bool) -> PyResult<bool> {
        let watch = self.watch.get();
        if !watch.counts_writes || (records && watch.requires_grad(py)?) {
            return Ok(false);
        }
        if let Some(guards) = &self.guards
            && !guards.get().are_current(py)
        {
            return Ok(false);
        }
        watch.is_current(py)
    }
}

/// Calls that are left to PyTorch, which is faster.
struct Hosted {
    arguments: Vec<Outline>,
    /// For how many calls more.
    more: u64,
}

/// What is asked of an argument of calls that are left to PyTorch.
#[derive(PartialEq)]
enum Outline {
    Tensor(DType, SmallVec<[i64; 4]>),
    Other(Argument),
}

impl Hosted {
    fn is_for(&self, arguments: &[Argument], described: &[Described<'_>]) -> bool {
        let mut tensors = described.iter();
        self.arguments.len() == arguments.len()
            && self
                .arguments
                .iter()
                .zip(arguments)
                .all(|(known, own)| match (known, own) {
                    (Outline::Tensor(dtype, shape), Argument::Tensor) => {
                        tensors.next().and_then(Described::outline) == Some((*dtype, shape))
                    }
                    (Outline::Other(known), own) => known == own,
                    _ => false,
                })
    }
}

/// How many kinds of calls are left to PyTorch at a time.
const HOSTED: usize = 64;

/// What is answered to calls that PyTorch is to run.
#[pyclass(name = "Host", module = "corsac._core", frozen)]
pub(super) struct PyHost;

/// The one there is.
pub(super) fn host(py: Python<'_>) -> PyResult<Bound<'_, PyHost>> {
    static HOST: PyOnceLock<Py<PyHost>> = PyOnceLock::new();
    let host = HOST.get_or_try_init(py, || Py::new(py, PyHost))?;
    Ok(host.bind(py).clone())
}

/// Runs the programs of a model for calls that nothing is special about.
#[pyclass(name = "Runner", module = "corsac._core", frozen)]
pub(crate) struct PyRunner {
    /// Hooks of the compiled module itself, empty as a rule.
    hooks: Vec<Py<PyDict>>,
    /// The one that was used last comes last. Nothing of Python runs while this is locked.
    entries: Mutex<Vec<Entry>>,
    hosted: Mutex<Vec<Hosted>>,
}

/// What is known of an argument.
#[derive(Clone, Copy, PartialEq)]
enum Argument {
    Tensor,
    Number(i64),
    /// Of no use to a program; where its class lies.
    Other(usize),
}

impl Argument {
    fn of(argument: &Bound<'_, PyAny>, exchange: &Exchange) -> Self {
        if exchange.is_tensor(argument) {
            return Self::Tensor;
        }
        let number = argument.cast_exact::<PyInt>().ok();
        match number.and_then(|number| number.extract().ok()) {
            Some(number) => Self::Number(number),
            None => Self::Other(argument.get_type().as_ptr() as usize),
        }
    }
}

impl PyRunner {
    /// The programs for such arguments, the one used last first.
    fn find(
        &self,
        py: Python<'_>,
        arguments: &[Argument],
        described: &[Described<'_>],
        tensors: &[Bound<'_, PyAny>],
    ) -> SmallVec<[Candidate; 1]> {
        let Ok(entries) = self.entries.lock() else {
            return SmallVec::new();
        };
        let fitting = entries.iter().rev().filter(|entry| {
            let inputs = entry.candidate.program.get().inputs();
            let numbers = arguments.iter().enumerate();
            let mut numbers = numbers.filter_map(|(at, argument)| match argument {
                Argument::Number(number) => Some((at, *number)),
                Argument::Tensor | Argument::Other(_) => None,
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
        });
        fitting.map(|entry| entry.candidate.clone_ref(py)).collect()
    }

    /// Whether such a call is left to PyTorch.
    fn is_hosted(&self, arguments: &[Argument], described: &[Described<'_>]) -> bool {
        let Ok(mut all) = self.hosted.lock() else {
            return false;
        };
        let Some(at) = (all.iter()).position(|own| own.is_for(arguments, described)) else {
            return false;
        };
        if all[at].more == 0 {
            all.remove(at);
            return false;
        }
        all[at].more -= 1;
        true
    }

    /// This program is the one used last.
    fn used(&self, program: &Py<PyProgram>) {
        if let Ok(mut entries) = self.entries.lock()
            && let Some(at) = entries
                .iter()
                .rposition(|own| own.candidate.program.is(program))
        {
            entries[at..].rotate_left(1);
        }
    }
}

fn has_one_twice(tensors: &[Bound<'_, PyAny>]) -> bool {
    if tensors.len() < 2 {
        return false;
    }
    let mut seen = FxHashSet::default();
    !tensors.iter().all(|tensor| seen.insert(tensor.as_ptr()))
}

#[pymethods]
impl PyRunner {
    /// `compiled` is the module that is called.
    #[new]
    fn new(compiled: &Bound<'_, PyAny>) -> PyResult<Self> {
        let names = [
            "_forward_hooks",
            "_forward_pre_hooks",
            "_backward_hooks",
            "_backward_pre_hooks",
        ];
        let hooks = names.map(|name| Ok(compiled.getattr(name)?.cast_into::<PyDict>()?.unbind()));
        Ok(Self {
            hooks: hooks.into_iter().collect::<PyResult<_>>()?,
            entries: Mutex::default(),
            hosted: Mutex::default(),
        })
    }

    /// Runs calls with arguments like `inputs` by `program` from now on, as long as `guards` hold and the tensors
    /// are as `watch` knows them; if `distinct`, only those that give no tensor twice, because it was made by
    /// a run that could have asked. `key` is its name; `build` is called with what it gives, and makes of that what is
    /// returned.
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    #[pyo3(signature = (key, program, inputs, watch, guards=None, *, distinct=false, build=None))]
    fn add(
        &self,
        key: Py<PyAny>,
        program: Py<PyProgram>,
        inputs: &Bound<'_, PyTuple>,
        watch: Py<PyWatch>,
        guards: Option<Py<PyGuards>>,
        distinct: bool,
        build: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let mut numbers = Vec::new();
        for (at, input) in inputs.iter().enumerate() {
            if let Ok(number) = input.cast_exact::<PyInt>() {
                numbers.push((at, number.extract()?));
            }
        }
        let entry = Entry {
            key,
            candidate: Candidate {
                program,
                watch,
                guards,
                build,
            },
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

    /// Leaves so many calls with arguments like these to PyTorch, which is faster than to look at them; not those
    /// of which an argument needs gradients.
    fn leave(&self, py: Python<'_>, arguments: &Bound<'_, PyTuple>, calls: u64) -> PyResult<()> {
        let Some(exchange) = Exchange::get(py)? else {
            return Ok(());
        };
        let mut outlines = Vec::new();
        for argument in arguments.iter() {
            outlines.push(match Argument::of(&argument, exchange) {
                Argument::Tensor => {
                    let described = exchange.described_as_stored(&argument);
                    match described.as_ref().and_then(Described::outline) {
                        Some((dtype, shape)) => Outline::Tensor(dtype, shape.into()),
                        None => return Ok(()),
                    }
                }
                other => Outline::Other(other),
            });
        }
        if let Ok(mut all) = self.hosted.lock() {
            all.retain(|own| own.arguments != outlines);
            all.truncate(HOSTED - 1);
            all.insert(
                0,
                Hosted {
                    arguments: outlines,
                    more: calls,
                },
            );
        }
        Ok(())
    }

    /// What the model answers to these arguments; `HOST` for a call that is left to PyTorch, and
    /// `NotImplemented` for one that has to be looked at: of other shapes than there are programs for, or where
    /// autograd records, a mode is on, a weight has changed, somebody observes.
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
        let hooked = self.hooks.iter().any(|own| !own.bind(py).is_empty());
        if hooked || situation.has_hooks(py) || situation.unusual(py)?.is_some() {
            return unknown();
        }
        let mut kinds: SmallVec<[Argument; 4]> = SmallVec::new();
        let mut tensors: SmallVec<[Bound<'py, PyAny>; 4]> = SmallVec::new();
        for argument in arguments.iter() {
            let kind = Argument::of(&argument, exchange);
            if kind == Argument::Tensor {
                tensors.push(argument);
            }
            kinds.push(kind);
        }
        let records = situation.records(py)?;
        if records {
            for tensor in &tensors {
                let requires = tensor.getattr(intern!(py, "requires_grad"))?;
                if requires.is_truthy()? {
                    return unknown();
                }
            }
        }
        let mut described: SmallVec<[Described<'_>; 4]> = SmallVec::new();
        let mut plain = true;
        for tensor in &tensors {
            plain &= exchange.is_plain(tensor) && !has_attributes(tensor);
            // Whether it is stored as its negative is asked below, once.
            match exchange.described_as_stored(tensor) {
                Some(own) => {
                    // How results lie in memory goes by that.
                    plain &= own.is_in_rows();
                    described.push(own);
                }
                None => return unknown(),
            }
        }
        let others = kinds.iter().any(|own| matches!(own, Argument::Other(_)));
        if !(records && others) && self.is_hosted(&kinds, &described) {
            return Ok(host(py)?.into_any());
        }
        if others {
            return unknown();
        }
        let fitting = self.find(py, &kinds, &described, &tensors);
        for own in &fitting {
            if own.guards.is_some() && !plain {
                // Programs may ask for classes and attributes of inputs, and results may lie as they do.
                continue;
            }
            if !own.is_current(py, records)? {
                continue;
            }
            self.used(&own.program);
            // What was looked at may have run code of Python, which may have changed a tensor.
            let program = own.program.get();
            let mut described: SmallVec<[Described<'_>; 4]> = SmallVec::new();
            for tensor in &tensors {
                let now = match program.writes_inputs() {
                    true => exchange.described_by_torch(tensor)?,
                    false => exchange.described(tensor)?,
                };
                match now {
                    Some(own) => described.push(own),
                    None => return unknown(),
                }
            }
            let results = program.call_described(py, exchange, &described, &tensors)?;
            return match &own.build {
                Some(build) => build.bind(py).call1((results,)),
                None => Ok(results),
            };
        }
        unknown()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for own in &self.hooks {
            visit.call(own)?;
        }
        if let Ok(entries) = self.entries.try_lock() {
            for entry in entries.iter() {
                visit.call(&entry.key)?;
                visit.call(&entry.candidate.program)?;
                visit.call(&entry.candidate.watch)?;
                visit.call(&entry.candidate.guards)?;
                visit.call(&entry.candidate.build)?;
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
