//! Reads and writes of one run of a program.

#![expect(unsafe_code, reason = "the trace function that CPython calls")]

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use pyo3::PyTraverseError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};

use super::changes::changes;
use super::counters::{Counters, changed_numbers};
use super::cpython::{self, Frame, is_tracked};
use super::effects::{Effects, Purpose};
use super::effects_table::FUNCTIONS;
use super::guards::{PyGuards, address};
use super::known_code::KNOWN_CODE;
use super::look::{Look, Step};
use super::opcode as op;
use super::roots::{Known, roots};
use super::sites::Site;
use super::state::{Code, Held, Kind, State, Watched};
use super::symbols::{Condition, Symbols};

/// Watches a run of a program on the calling thread.
///
/// Args: ``ours``, code objects of functions that record operators, which are not analysed;
/// ``asking``, code that asks whether operators of tensors are intercepted, or whether it is being
/// compiled, and gets no for an answer; ``known_code``, code of functions through which modules are
/// called and find their parts, in the order of [`KNOWN_CODE`], or none; ``refused``, methods of C
/// that cannot be recorded; ``printing``, the code of ``ours`` that prints; ``callbacks``, an object
/// with callbacks:
///
/// - ``unrecorded(function, arguments, named)`` calls a function without recording its operators.
/// - ``host(function)`` returns a function that does the same for a program that is no longer
///   recorded, unless the call becomes nodes, and whether it does.
/// - ``prints(function, arguments, names)`` is called for each call that prints: with the function,
///   or None for one of ``printing`` that is being entered, all arguments and the names of the last
///   ones, or None if they are not known. It returns the reason why the call cannot be made later,
///   if there is one.
/// - ``assume(begins)`` is called when a function that is marked to return constants is entered and
///   left.
#[pyclass(name = "Recording", module = "corsac._core", frozen)]
pub(crate) struct PyRecording {
    state: Mutex<State>,
    ours: Vec<Py<PyAny>>,
    asking: Vec<Py<PyAny>>,
    known_code: Vec<Py<PyAny>>,
    refused: Vec<Py<PyAny>>,
    unrecorded: Py<PyAny>,
    host: Py<PyAny>,
    printing: Vec<Py<PyAny>>,
    prints: Py<PyAny>,
    assume: Py<PyAny>,
    /// Number of operators recorded so far.
    recorded: AtomicU64,
    /// Whether the program has done something unknown: nothing more is analysed then.
    over: AtomicBool,
    /// Whether looking at an instruction has run code of the program, such as the hash of a key.
    is_reentered: AtomicBool,
    recording: Mutex<BeingRecorded>,
    /// Objects that the program has made, once it has run.
    made: Mutex<Made>,
}

/// Objects made since the run began.
#[derive(Default)]
struct Made {
    tracked: FxHashSet<usize>,
    /// Version of the newest dictionary before the run.
    newest: u64,
    /// Code of the recorder that was called.
    entered: FxHashSet<usize>,
    symbols: Symbols,
    /// File and line where the program was refused.
    refused_at: Option<(String, i32)>,
}

impl Made {
    fn has(&self, own: &Bound<'_, PyAny>) -> bool {
        match own.cast::<PyDict>() {
            Ok(dict) => self.has_dict(dict, cpython::version(dict)),
            // A tuple counts by its elements.
            Err(_) => own.is_instance_of::<PyTuple>() || self.tracked.contains(&address(own)),
        }
    }

    /// Whether a dictionary that had this version when it was first met is new. The garbage
    /// collector does not track dictionaries that hold nothing that could be part of a cycle; an
    /// old one is tracked once it does.
    fn has_dict(&self, dict: &Bound<'_, PyDict>, version: u64) -> bool {
        version > self.newest
            && (self.tracked.contains(&address(dict)) || !is_tracked(dict.as_any()))
    }
}

/// Operators that are being recorded, during which nothing is watched.
#[derive(Default)]
struct BeingRecorded {
    /// Number of them, one within the other.
    depth: usize,
    /// The thread whose tracing is suspended meanwhile.
    thread: usize,
}

impl PyRecording {
    /// Handles an event of a frame. `given` is the value that an ending frame returns.
    fn event<'py>(
        &self,
        py: Python<'py>,
        frame: &Frame<'py>,
        what: c_int,
        given: Option<&Bound<'py, PyAny>>,
    ) -> Step {
        let Ok(mut state) = self.state.try_lock() else {
            return Ok(());
        };
        let looked = self.look(py, &mut state, frame, what, given);
        if self.is_reentered.swap(false, Ordering::Relaxed) {
            state.opaque("it computes hashes or comparisons of its keys with tensors");
        }
        if state.is_opaque() && !self.over.swap(true, Ordering::Relaxed) {
            // The program may ask who traces it, and goes on faster. The kept objects are dropped
            // now, as without a recording; that may call code that looks at this recording.
            frame.leave();
            let kept = state.forget();
            drop(state);
            drop(kept);
        }
        looked
    }

    /// Uses the state; `None` within the trace function, which has called code of the program: that
    /// is refused then.
    fn with_state<T>(&self, used: impl FnOnce(&mut State) -> T) -> Option<T> {
        match self.state.try_lock() {
            Ok(mut state) => Some(used(&mut state)),
            Err(error) => {
                let is_held = matches!(error, TryLockError::WouldBlock);
                self.is_reentered.fetch_or(is_held, Ordering::Relaxed);
                None
            }
        }
    }

    fn look<'py>(
        &self,
        py: Python<'py>,
        state: &mut State,
        frame: &Frame<'py>,
        what: c_int,
        given: Option<&Bound<'py, PyAny>>,
    ) -> Step {
        match what {
            ffi::PyTrace_CALL => {
                let code = frame.code_address();
                let is_ours = match state.codes.get(&code) {
                    Some(known) => known.is_ours,
                    None => self.meet(py, state, frame)?,
                };
                let is_assumed = state.assumed.take() == Some(code);
                if state.skipped > 0 || is_ours || is_assumed || state.is_skipping {
                    if state.skipped == 0 && is_assumed {
                        state.is_assumed = true;
                        self.assume.call1(py, (true,))?;
                    }
                    if state.skipped == 0 {
                        state.entered.insert(code);
                        for (function, arguments) in
                            state.on_entry.remove(&code).unwrap_or_default()
                        {
                            state.reads.call(function.bind(py), arguments.bind(py))?;
                        }
                        if self
                            .printing
                            .iter()
                            .any(|own| address(own.bind(py)) == code)
                        {
                            let call = (py.None(), PyTuple::empty(py), py.None());
                            let why: Option<String> = self.prints.call1(py, call)?.extract(py)?;
                            if let Some(why) = why {
                                state.refuse(Kind::Prints, why);
                            }
                        }
                    }
                    state.skipped += 1;
                    frame.announce(false);
                } else {
                    if state.codes.get(&code).is_some_and(|own| own.transforms) {
                        state.refuse(Kind::Transforms, "it uses transforms of torch.func");
                    }
                    let known_code = state.codes.get(&code).and_then(|own| own.known_code);
                    state.frames.push(Watched::default());
                    let is_read = match known_code {
                        Some(known_code) => {
                            state.reads.sites.at = Site { code, offset: 0 };
                            let recorded = self.recorded.load(Ordering::Relaxed);
                            Look::new(py, state, recorded)?.known_code(frame, known_code)?
                        }
                        None => false,
                    };
                    if let Some(watched) = state.frames.last_mut() {
                        watched.is_read = is_read;
                    }
                    frame.announce(!is_read);
                }
            }
            ffi::PyTrace_RETURN => {
                if state.skipped > 0 {
                    state.skipped -= 1;
                    if state.skipped == 0 && std::mem::take(&mut state.is_assumed) {
                        self.assume.call1(py, (false,))?;
                    }
                } else {
                    self.settle(state);
                    if state.frames.last().is_some_and(|own| own.is_read)
                        && let Some(given) = given
                    {
                        Look::new(py, state, 0)?.gives(frame, given)?;
                    }
                    state.frames.pop();
                }
            }
            ffi::PyTrace_OPCODE if state.skipped == 0 => {
                self.settle(state);
                (state.makes_number, state.is_skipping) = (false, false);
                state.note_iterator(frame);
                if let Some(pending) = state.frames.last_mut().and_then(|own| own.pending.take()) {
                    state.symbols.settle(pending, frame)?;
                }
                let Some(offset) = frame.offset() else {
                    return Ok(());
                };
                let code = frame.code_address();
                state.reads.sites.at = Site { code, offset };
                let Some(code) = state.codes.get(&code) else {
                    state.opaque("a frame that was not seen to begin");
                    return Ok(());
                };
                let Some(instruction) = op::instruction(&code.instructions, offset) else {
                    state.opaque("code that ends within an instruction");
                    return Ok(());
                };
                if op::is_plain(instruction.opcode) {
                    return Ok(());
                }
                let (names, copies) = (code.names.clone_ref(py), code.copies);
                let (asks, is_of_torch) = (code.asks, code.is_of_torch);
                let recorded = self.recorded.load(Ordering::Relaxed);
                let mut look = Look::new(py, state, recorded)?;
                look.copies = copies;
                if instruction.opcode == op::CALL {
                    if asks {
                        look.answer_compiling(frame, instruction.arg);
                    }
                    if asks || !is_of_torch {
                        look.answer_functions(frame, instruction.arg)?;
                    }
                }
                if look.is_hosted(frame, instruction, &self.host)? {
                    return Ok(());
                }
                look.instruction(frame, &names, instruction)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Refuses the program if an operator that was called in this frame has not been recorded.
    fn settle(&self, state: &mut State) {
        let recorded = self.recorded.load(Ordering::Relaxed);
        if let Some(frame) = state.frames.last_mut()
            && let Some(expected) = frame.expected.take()
            && recorded == expected
        {
            let called = std::mem::take(&mut frame.called);
            state.refuse(
                Kind::Torch,
                format!("it calls {called}, which is not recorded"),
            );
        }
    }

    fn meet(&self, py: Python<'_>, state: &mut State, frame: &Frame<'_>) -> PyResult<bool> {
        let Some(code) = frame.code() else {
            return Ok(false);
        };
        let is_ours = self.ours.iter().any(|own| own.is(&code));
        let file: String = code.getattr(intern!(py, "co_filename"))?.extract()?;
        let names = code
            .getattr(intern!(py, "co_names"))?
            .cast_into::<PyTuple>()?;
        let known = Code {
            instructions: cpython::instructions(&code)?,
            names: names.unbind(),
            is_ours,
            asks: self.asking.iter().any(|own| own.is(&code)),
            known_code: (self.known_code.iter().zip(KNOWN_CODE))
                .find_map(|(own, known_code)| own.is(&code).then_some(known_code)),
            is_of_torch: file.contains("/torch/"),
            transforms: file.contains("/torch/_functorch/"),
            copies: file.ends_with("/copy.py") && !file.contains("site-packages"),
            _object: code.clone().unbind(),
        };
        state.codes.insert(address(code.as_any()), known);
        Ok(is_ours)
    }
}

/// The trace function.
///
/// # Safety
///
/// For CPython: `recording` is a [`PyRecording`], `frame` the frame that is being executed.
unsafe extern "C" fn on_event(
    recording: *mut ffi::PyObject,
    frame: *mut ffi::PyFrameObject,
    what: c_int,
    given: *mut ffi::PyObject,
) -> c_int {
    // SAFETY: CPython calls trace functions on a thread that is attached.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: CPython keeps the object alive that was passed with the function.
    let recording = unsafe { Bound::from_borrowed_ptr(py, recording) };
    let Ok(recording) = recording.cast::<PyRecording>() else {
        return 0;
    };
    // An exception that the program has raised stays as it is.
    let pending = PyErr::occurred(py).then(|| PyErr::take(py)).flatten();
    // SAFETY: the frame is alive while this function runs, and the version is a supported one.
    let frame = unsafe { Frame::new(py, frame) };
    // SAFETY: CPython keeps the returned value alive during the event, and passes null for an
    // exception.
    let given = unsafe { Bound::from_borrowed_ptr_or_opt(py, given) };
    let looked = catch_unwind(AssertUnwindSafe(|| {
        recording.get().event(py, &frame, what, given.as_ref())
    }));
    let failure = match looked {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("the recorder panicked".to_owned()),
    };
    if let Some(text) = failure {
        // The reads until then are of no use.
        let mut state = even_after_a_panic(&recording.get().state);
        state.opaque(format!("it could not be looked at: {text}"));
    }
    if PyErr::occurred(py) {
        drop(PyErr::take(py));
    }
    if let Some(error) = pending {
        error.restore(py);
    }
    0
}

#[pymethods]
impl PyRecording {
    #[new]
    fn new(
        ours: Vec<Py<PyAny>>,
        asking: Vec<Py<PyAny>>,
        known_code: Vec<Py<PyAny>>,
        refused: Vec<Py<PyAny>>,
        printing: Vec<Py<PyAny>>,
        callbacks: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let function = |name: &str| callbacks.getattr(name).map(Bound::unbind);
        Ok(Self {
            state: Mutex::default(),
            ours,
            asking,
            known_code,
            refused,
            printing,
            unrecorded: function("unrecorded")?,
            host: function("host")?,
            prints: function("prints")?,
            assume: function("assume")?,
            recorded: AtomicU64::new(0),
            over: AtomicBool::new(false),
            is_reentered: AtomicBool::new(false),
            recording: Mutex::default(),
            made: Mutex::default(),
        })
    }

    /// The reason why nothing can be watched here and now; None if it can.
    #[staticmethod]
    fn unavailable(py: Python<'_>) -> PyResult<Option<&'static str>> {
        if !cpython::is_supported(py) {
            return Ok(Some("programs are watched on CPython 3.11 only"));
        }
        Ok(cpython::is_traced(py)?
            .then_some("a debugger or a measurement of coverage traces this thread"))
    }

    /// The table of effects, for tests: effects of functions, and their paths.
    #[staticmethod]
    fn effects() -> Vec<(String, &'static str)> {
        FUNCTIONS
            .iter()
            .flat_map(|(effect, paths)| {
                paths.iter().map(move |path| (format!("{effect:?}"), *path))
            })
            .collect()
    }

    /// Begin to record an operator: nothing is analysed until `recorded` is called. Returns whether
    /// the program is still analysed.
    pub(super) fn operator(&self, py: Python<'_>) -> bool {
        self.recorded.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut recording) = self.recording.lock() {
            if recording.depth == 0 {
                recording.thread = cpython::pause(py);
            }
            recording.depth += 1;
        }
        !self.over.load(Ordering::Relaxed)
    }

    /// End the recording of an operator.
    pub(super) fn recorded(&self, py: Python<'_>) {
        if let Ok(mut recording) = self.recording.lock()
            && recording.depth > 0
            && (recording.depth > 1 || cpython::resume(py, recording.thread))
        {
            recording.depth -= 1;
        }
    }

    /// Record a read of the contents of a container that is an argument of an operator.
    pub(super) fn reads(&self, container: &Bound<'_, PyAny>) -> PyResult<()> {
        self.with_state(|state| {
            Look::new(container.py(), state, 0)?.deep(container, 0, Purpose::Compared)
        })
        .unwrap_or(Ok(()))
    }

    /// A new object with the value of `value` that stands for a size or, `of_values`, for an
    /// expression of tensor values.
    fn symbol<'py>(
        &self,
        expression: Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        of_values: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.with_state(|state| state.symbols.add(expression, value, of_values))
            .unwrap_or_else(|| Ok(value.clone()))
    }

    /// Set the places that hold other numbers in each call, which become symbols: dictionaries with
    /// keys, and cells, which are their own keys.
    fn count(&self, places: Vec<(Py<PyAny>, Py<PyAny>)>) -> PyResult<()> {
        match self.state.lock() {
            Ok(mut state) => {
                state.counters = Counters::new(places);
                Ok(())
            }
            Err(_) => Err(PyRuntimeError::new_err("another thread panicked")),
        }
    }

    /// Whether the number that a tensor method returns goes to the program, not to a C function
    /// that calls the method.
    fn makes_number(&self) -> bool {
        self.with_state(|state| state.makes_number)
            .unwrap_or_default()
    }

    /// Expression that a number stands for; None if it is not one of this recording. Also for a
    /// recording that is finished.
    fn expression<'py>(&self, own: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let running = self.with_state(|state| state.symbols.expression(own))?;
        running.or_else(|| self.made.lock().ok()?.symbols.expression(own))
    }

    /// Fix the symbols in a value to their numbers. Also for a recording that is finished.
    fn fix(&self, own: &Bound<'_, PyAny>) -> PyResult<()> {
        self.with_state(|state| state.symbols.fix(own, 0))
            .unwrap_or(Ok(()))?;
        (self.made.lock()).map_or(Ok(()), |mut made| made.symbols.fix(own, 0))
    }

    /// Comparisons of symbols and integers that have to give the same results again; or the name of
    /// an operation that cannot be followed. For a recording that is finished.
    fn conditions(&self, py: Python<'_>) -> PyResult<Conditions> {
        match self.made.lock() {
            Ok(mut made) => Ok(match made.symbols.lost.clone() {
                Some(text) => Conditions::Lost(text),
                None => Conditions::All(made.symbols.take_conditions(py, false)),
            }),
            Err(_) => Err(PyRuntimeError::new_err("another thread panicked")),
        }
    }

    /// Conditions on values, with all symbols fixed if an operation cannot be followed. For a
    /// recording that is finished.
    fn conditions_on_values(&self, py: Python<'_>) -> PyResult<Vec<Condition>> {
        match self.made.lock() {
            Ok(mut made) => {
                if made.symbols.lost.is_some() {
                    made.symbols.fix_all(py)?;
                }
                Ok(made.symbols.take_conditions(py, true))
            }
            Err(_) => Err(PyRuntimeError::new_err("another thread panicked")),
        }
    }

    /// Call `program`, and watch it. Returns its result, and raises its exceptions.
    #[pyo3(signature = (program, args, kwargs))]
    fn run<'py>(
        slf: &Bound<'py, Self>,
        program: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        {
            let young = young_objects(py)?;
            let own = slf.get();
            let Ok(mut state) = own.state.lock() else {
                return Err(PyRuntimeError::new_err("another thread panicked"));
            };
            // Another thread may be about to fill a tuple, which must have no other owner then.
            let kept = young.iter().filter(|own| !own.is_instance_of::<PyTuple>());
            state._young = kept.map(Bound::unbind).collect();
            state.young = state
                ._young
                .iter()
                .map(|own| address(own.bind(py)))
                .collect();
            drop(young);
            state.newest = cpython::version(&PyDict::new(py));
            state.refused = own
                .refused
                .iter()
                .map(|own| address(own.bind(py)))
                .collect();
            state.unrecorded = Some(own.unrecorded.clone_ref(py));
            state.prints = Some(own.prints.clone_ref(py));
            Look::new(py, &mut state, 0)?.call(program, &[], 0)?;
        }
        cpython::traced(slf.as_any(), on_event, || program.call(args, Some(kwargs)))
    }

    /// Reads of the program as guards, and its changes; or the reason why it is not captured:
    /// `"prints"`, `"writes"`, `"torch"` (something of PyTorch that is no operator) or `"opaque"`,
    /// and a text.
    ///
    /// Args: ``given``, the tensors among the arguments, which differ in each call; ``arguments``,
    /// those that are neither tensors nor constants; ``replays``, whether changes may be part of
    /// the program, and objects among the arguments may differ in each call.
    fn finish<'py>(
        &self,
        py: Python<'py>,
        program: &Bound<'py, PyAny>,
        given: Vec<Bound<'py, PyAny>>,
        arguments: Vec<Bound<'py, PyAny>>,
        replays: bool,
    ) -> PyResult<FinishedRecording<'py>> {
        let mut made = even_after_a_panic(&self.made);
        let mut state = std::mem::take(&mut *even_after_a_panic(&self.state));
        made.symbols = std::mem::take(&mut state.symbols);
        made.refused_at = state.refused_at.take();
        made.newest = state.newest;
        made.tracked = young_objects(py)?.iter().map(|own| address(&own)).collect();
        made.tracked.retain(|own| !state.young.contains(own));
        made.entered = state.entered;
        let is_made = |own: &Bound<'_, PyAny>| match state.owners.get(&address(own)) {
            Some(owner) => made.has(owner.bind(py)),
            None => made.has(own),
        };
        let mut refusal = state.refusal;
        for (object, what) in &state.writes {
            if refusal.is_none() && object.get(py).is_some_and(|own| !is_made(&own)) {
                refusal = Some((Kind::Writes, what.clone()));
            }
        }
        let tensor = Effects::get(py)?.tensor.bind(py);
        let given: FxHashSet<usize> = given.iter().map(address).collect();
        let mut strict = FxHashSet::default();
        for object in &state.identities {
            let object = object.bind(py);
            strict.insert(address(object));
            if is_made(object) || given.contains(&address(object)) {
                refusal = Some((Kind::Opaque, "it asks which object a value is".to_owned()));
            }
        }
        for (left, right) in &state.compared {
            let (left, right) = (left.bind(py), right.bind(py));
            // Two different arguments are kept apart by their structures.
            let are_arguments = [left, right]
                .iter()
                .all(|own| arguments.iter().any(|given| given.is(own)));
            if !are_arguments {
                strict.extend([address(left), address(right)]);
            }
            for (own, other) in [(left, right), (right, left)] {
                if given.contains(&address(own))
                    && !given.contains(&address(other))
                    && other.is_instance(tensor)?
                    && !is_made(other)
                {
                    let text = "it asks whether an argument is a tensor that it knows";
                    refusal = Some((Kind::Opaque, text.to_owned()));
                }
            }
        }
        strict.extend(state.strict.iter().map(|own| address(own.bind(py))));
        if let Some((kind, text)) = refusal {
            return Ok(FinishedRecording::Refused((kind.name(), text)));
        }
        let mut reads = state.reads;
        let codes = state.codes.values().map(|own| &own._object);
        reads.sites.keep(py, codes);
        reads.forget(
            py,
            |own| is_made(own) || given.contains(&address(own)),
            |own, version| match state.owners.get(&address(own)) {
                Some(owner) => made.has(owner.bind(py)),
                None => made.has_dict(own, version),
            },
        );
        if reads.has_lone_weak_reference(py, program, &arguments) {
            let text = "it follows a weak reference to what it finds in no other way";
            return Ok(FinishedRecording::Refused((
                Kind::Opaque.name(),
                text.to_owned(),
            )));
        }
        let refused = |text: String| {
            let text = format!("it changes {text}");
            Ok(FinishedRecording::Refused((Kind::Writes.name(), text)))
        };
        let changes = match changes(py, &mut reads, &made.symbols, &state.counters)? {
            Err(text) => return refused(text),
            Ok(changes) => changes,
        };
        let is_known = || {
            let text = "an argument is a tensor that it finds in another place, too";
            let refused = (Kind::Opaque.name(), text.to_owned());
            Ok(FinishedRecording::Refused(refused))
        };
        if !replays {
            if reads.find_any(py, &given) {
                return is_known();
            }
            let guards = PyGuards::new(py, reads, Vec::new(), Vec::new(), Vec::new())?;
            if let Some(what) = guards.changed(py)? {
                return refused(what);
            }
            return Ok(FinishedRecording::Guarded((
                Py::new(py, guards)?,
                Replay::default(),
            )));
        }
        let counters = changed_numbers(py, &reads, &changes, &made.symbols)?;
        let found = roots(
            py,
            &mut reads,
            program,
            &arguments,
            &changes,
            Known {
                strict,
                given: &given,
                counters: &state.counters,
            },
        )?;
        if reads.find_any(py, &given) {
            return is_known();
        }
        let mut replay = Replay {
            tensors: found.tensors,
            objects: found.objects,
            edits: Vec::new(),
            counted: state.counters.used(py)?,
        };
        let mut written = Vec::new();
        for change in changes {
            let Some(number) = found.numbers.get(&address(change.container.bind(py))) else {
                return refused("something that it finds in no way of its own".to_owned());
            };
            written.push(*number);
            let edits = change.edits.into_iter().map(|own| (*number, own.written()));
            replay
                .edits
                .extend(edits.map(|(number, (kind, key, values))| (number, kind, key, values)));
        }
        let guards = PyGuards::new(py, reads, found.roots, written, counters)?;
        if let Some(what) = guards.changed(py)? {
            return refused(what);
        }
        Ok(FinishedRecording::Guarded((Py::new(py, guards)?, replay)))
    }

    /// Whether the program has made an object, as far as the garbage collector tracks it. For a
    /// recording that is finished.
    fn made(&self, object: &Bound<'_, PyAny>) -> bool {
        self.made.lock().is_ok_and(|made| made.has(object))
    }

    /// File and line of the program that does what cannot be recorded, if known. For a recording
    /// that is finished.
    fn refused_at(&self) -> Option<(String, i32)> {
        self.made.lock().ok()?.refused_at.clone()
    }

    /// Whether the program has called this code of ``ours``. For a recording that is finished.
    fn entered(&self, code: &Bound<'_, PyAny>) -> bool {
        self.made
            .lock()
            .is_ok_and(|made| made.entered.contains(&address(code)))
    }

    /// Guard a setting that the program depends on: the function is called now, and before each
    /// call, unless the program has made the function or one of its arguments.
    #[pyo3(signature = (function, *arguments))]
    fn ask(&self, function: &Bound<'_, PyAny>, arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.with_state(|state| state.reads.call(function, arguments))
            .unwrap_or(Ok(()))
    }

    /// Guard a setting once the program calls this code of ``ours``, which may change it: as it is before the first
    /// call.
    #[pyo3(signature = (code, function, *arguments))]
    fn ask_on_entry(
        &self,
        code: &Bound<'_, PyAny>,
        function: Py<PyAny>,
        arguments: Py<PyTuple>,
    ) -> PyResult<()> {
        match self.state.lock() {
            Ok(mut state) => {
                let all = state.on_entry.entry(address(code)).or_default();
                all.push((function, arguments));
                Ok(())
            }
            Err(_) => Err(PyRuntimeError::new_err("another thread panicked")),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.unrecorded)?;
        visit.call(&self.host)?;
        visit.call(&self.prints)?;
        visit.call(&self.assume)?;
        if let Ok(state) = self.state.try_lock() {
            state.reads.traverse(&visit)?;
            for (function, arguments) in state.on_entry.values().flatten() {
                visit.call(function)?;
                visit.call(arguments)?;
            }
            for (object, _) in &state.writes {
                match object {
                    Held::Strong(own) => visit.call(own)?,
                    Held::Weak(own) => visit.call(own)?,
                }
            }
        }
        Ok(())
    }
}

/// Outcome of a recording.
#[derive(IntoPyObject)]
enum FinishedRecording<'py> {
    Guarded((Py<PyGuards>, Replay<'py>)),
    Refused((&'static str, String)),
}

/// Conditions of a program on sizes.
#[derive(IntoPyObject)]
enum Conditions {
    All(Vec<Condition>),
    Lost(String),
}

/// Inputs that a program takes from arguments and state, besides tensors that are arguments, and
/// its changes there.
#[derive(IntoPyObject, Default)]
struct Replay<'py> {
    /// Tensors, in the order in which guards find them.
    tensors: Vec<Bound<'py, PyAny>>,
    /// Objects that guards find, by their numbers, even if the program has dropped them.
    objects: Vec<Bound<'py, PyAny>>,
    /// Changes: the number of an object, the kind of edit, a key, values.
    edits: Vec<WrittenChange>,
    /// Numbers in places that hold others in each call, by their names in expressions.
    counted: FxHashMap<String, Bound<'py, PyAny>>,
}

/// An edit of the object with a number.
type WrittenChange = (usize, &'static str, Option<Py<PyAny>>, Vec<Py<PyAny>>);

/// The contents of a lock, which a panic may have left half done.
fn even_after_a_panic<T>(own: &Mutex<T>) -> MutexGuard<'_, T> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Objects in the youngest generation of the garbage collector. The list must not be kept while
/// other threads run.
fn young_objects(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let found = py.import("gc")?.call_method1("get_objects", (0,))?;
    Ok(found.cast_into::<PyList>()?)
}
