//! State of a recording in progress.

use pyo3::prelude::*;
use pyo3::types::{PyCode, PyDict, PyTuple, PyWeakrefMethods, PyWeakrefReference};
use rustc_hash::{FxHashMap, FxHashSet};

use super::counters::Counters;
use super::cpython::{self, Frame, is_tracked};
use super::effects::Purpose;
use super::guards::{Reads, address};
use super::known_code::KnownCode;
use super::sites::line_of_program;
use super::symbols::{Pending, Symbols};

/// Largest container that is read; larger ones are data, of which programs read a part.
pub(super) const MOST: usize = 10_000;
/// Deepest nesting of containers that are compared or printed.
pub(super) const DEEPEST: usize = 8;

/// Reason why a program is not captured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// It prints or imports something, where Dynamo breaks the graph and leaves that to Python.
    Prints,
    /// It writes to existing state.
    Writes,
    /// It calls something of PyTorch that is no operator.
    Torch,
    /// It does something unknown.
    Opaque,
    /// It uses transforms of `torch.func`, which Dynamo supports, whatever else they do.
    Transforms,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Prints => "prints",
            Self::Writes => "writes",
            Self::Torch | Self::Transforms => "torch",
            Self::Opaque => "opaque",
        }
    }
}

/// A code object that was executed.
pub(super) struct Code {
    pub(super) instructions: Vec<u8>,
    pub(super) names: Py<PyTuple>,
    /// Whether it belongs to the recorder.
    pub(super) is_ours: bool,
    /// Whether it asks if operators of tensors are intercepted, or if it is being compiled; the
    /// answer is no.
    pub(super) asks: bool,
    pub(super) known_code: Option<KnownCode>,
    /// Whether it belongs to PyTorch, which gets the true answer to whether operators are
    /// intercepted.
    pub(super) is_of_torch: bool,
    /// Whether it belongs to `torch.func`.
    pub(super) transforms: bool,
    /// Whether it is Python's own for copies, which looks objects up by identity, and copies alike
    /// what is alike.
    pub(super) copies: bool,
    pub(super) _object: Py<PyCode>,
}

/// Treatment of a function that is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hosting {
    /// Its instructions are seen.
    Seen,
    /// PyTorch runs it as it is.
    Hosted,
    /// That of the function that it wraps: Dynamo has such wrappers.
    Wrapped,
}

/// A frame that is being watched.
#[derive(Default)]
pub(super) struct Watched {
    /// Whether all its reads were recorded as it began.
    pub(super) is_read: bool,
    /// Number of operators recorded before the call of one that has to be.
    pub(super) expected: Option<u64>,
    /// Name of the callee, for a message.
    pub(super) called: String,
    /// Whether the next instruction finds a new iterator on the stack.
    pub(super) makes_iterator: bool,
    /// Whether results of Python functions that the C code of this instruction gets are passed on
    /// to the program.
    pub(super) moves: bool,
    /// Use that the C code of this instruction makes of results of Python functions.
    pub(super) purpose: Purpose,
    /// Whether the next call has keyword arguments.
    pub(super) keywords: bool,
    /// Their names, if the instruction has them.
    pub(super) names: Option<Py<PyAny>>,
    /// The symbol for the value that the next instruction finds on the stack.
    pub(super) pending: Option<Pending>,
}

/// A function that returns a setting, and its arguments.
pub(super) type Setting = (Py<PyAny>, Py<PyTuple>);

/// An object that was changed.
pub(super) enum Held {
    Strong(Py<PyAny>),
    /// An object with a finaliser, such as a generator. If it is gone, the program has made it:
    /// older objects are held by their owners.
    Weak(Py<PyWeakrefReference>),
}

impl Held {
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(match &*object.get_type().name()?.to_cow()? {
            "generator" | "coroutine" | "async_generator" => {
                Self::Weak(PyWeakrefReference::new(object)?.unbind())
            }
            _ => Self::Strong(object.clone().unbind()),
        })
    }

    pub(super) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        match self {
            Self::Strong(own) => Some(own.bind(py).clone()),
            Self::Weak(own) => own.bind(py).upgrade(),
        }
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) reads: Reads,
    pub(super) symbols: Symbols,
    /// Places of numbers that differed in each call so far.
    pub(super) counters: Counters,
    /// Objects that were written to, and the operations.
    pub(super) writes: Vec<(Held, String)>,
    pub(super) written: FxHashSet<usize>,
    pub(super) codes: FxHashMap<usize, Code>,
    pub(super) frames: Vec<Watched>,
    /// Attribute dictionaries created while the program ran, and their owners.
    pub(super) owners: FxHashMap<usize, Py<PyAny>>,
    /// Objects whose identity was read.
    pub(super) identities: Vec<Py<PyAny>>,
    /// Pairs of values that the program compares by identity.
    pub(super) compared: Vec<(Py<PyAny>, Py<PyAny>)>,
    /// Objects that have to be the same ones, such as keys of dictionaries.
    pub(super) strict: Vec<Py<PyAny>>,
    /// Classes whose methods for operators have been recorded.
    pub(super) computed: FxHashSet<usize>,
    /// Classes without methods for attributes, which are guarded not to get some.
    pub(super) plain: FxHashSet<usize>,
    /// New iterators that the garbage collector does not track: kept alive, so that their addresses
    /// stay unique.
    pub(super) iterators: Vec<Py<PyAny>>,
    /// Code whose results C code will use, with the use, whoever calls it.
    pub(super) consumed: FxHashSet<(usize, Purpose)>,
    /// Whether it is recorded that TorchScript traces nothing, and that there are no hooks of all
    /// modules.
    pub(super) knows_hooks_of_all: bool,
    /// Treatment of functions that were called, by their code.
    pub(super) hosting: FxHashMap<usize, (Hosting, Py<PyAny>)>,
    /// Context variables that were set.
    pub(super) variables: FxHashSet<usize>,
    /// Number of frames on the stack of the recorder, and of functions that it calls.
    pub(super) skipped: usize,
    /// Code of the function being called that is marked to return constants.
    pub(super) assumed: Option<usize>,
    /// Whether the frames that are skipped are those of such a function.
    pub(super) is_assumed: bool,
    pub(super) refusal: Option<(Kind, String)>,
    /// File and line of the program at the refusal.
    pub(super) refused_at: Option<(String, i32)>,
    /// Whether the instruction gives the program the number that a tensor method returns: `item`,
    /// or `int` and `float` of one.
    pub(super) makes_number: bool,
    /// Calls a function with arguments, without recording its operators.
    pub(super) unrecorded: Option<Py<PyAny>>,
    /// Whether the callee of the instruction does not concern the program: it prints, or computes
    /// with plain numbers.
    pub(super) is_skipping: bool,
    /// Called for each call that prints.
    pub(super) prints: Option<Py<PyAny>>,
    /// Code of the recorder that was called.
    pub(super) entered: FxHashSet<usize>,
    /// Settings that are read once code of the recorder is called, with the arguments that they are asked with.
    pub(super) on_entry: FxHashMap<usize, Vec<Setting>>,
    /// Methods of C that cannot be recorded.
    pub(super) refused: FxHashSet<usize>,
    /// Objects in the youngest generation before the program ran.
    pub(super) young: FxHashSet<usize>,
    pub(super) _young: Vec<Py<PyAny>>,
    /// Version of the newest dictionary then.
    pub(super) newest: u64,
}

impl State {
    pub(super) fn refuse(&mut self, kind: Kind, text: impl Into<String>) {
        if self.refusal.as_ref().is_none_or(|known| known.0 < kind) {
            self.refusal = Some((kind, text.into()));
            self.refused_at = line_of_program();
        }
    }

    /// Forgets everything except the reason why nothing is captured; returns the rest.
    pub(super) fn forget(&mut self) -> Self {
        let rest = Self {
            refusal: self.refusal.take(),
            refused_at: self.refused_at.take(),
            entered: std::mem::take(&mut self.entered),
            ..Self::default()
        };
        std::mem::replace(self, rest)
    }

    /// Whether the program has done something unknown.
    pub(super) fn is_opaque(&self) -> bool {
        matches!(self.refusal, Some((Kind::Opaque, _)))
    }

    /// Refuses the program, since something unknown is called or made.
    pub(super) fn unknown(&mut self, does: &str, name: &str) {
        let kind = match name.starts_with("torch") || name.starts_with("_VariableFunctions") {
            true => Kind::Torch,
            false => Kind::Opaque,
        };
        self.refuse(kind, format!("it {does} {name}"));
    }

    pub(super) fn opaque(&mut self, text: impl Into<String>) {
        self.refuse(Kind::Opaque, text);
    }

    /// Records a change whose undoing cannot be checked afterwards: the object must be the
    /// program's own.
    pub(super) fn write(&mut self, object: &Bound<'_, PyAny>, what: &str) {
        if self.written.insert(address(object)) {
            match Held::new(object) {
                Ok(held) => self.writes.push((held, what.to_owned())),
                Err(_) => self.opaque(what),
            }
        }
    }

    /// Records a new iterator, if the last instruction was to make one. The garbage collector does
    /// not track all of them.
    pub(super) fn note_iterator(&mut self, frame: &Frame<'_>) {
        if let Some(watched) = self.frames.last_mut()
            && std::mem::take(&mut watched.makes_iterator)
            && let Some(iterator) = frame.stack(1)
            && !is_tracked(&iterator)
        {
            self.written.insert(address(&iterator));
            self.iterators.push(iterator.unbind());
        }
    }

    /// The attribute dictionary of an object. It may be created here, but counts as old as the
    /// object.
    pub(super) fn attributes<'py>(
        &mut self,
        object: &Bound<'py, PyAny>,
    ) -> Option<Bound<'py, PyDict>> {
        let dict = cpython::attributes(object, true)?;
        if cpython::version(&dict) > self.newest {
            let owner = self.owners.entry(address(&dict));
            owner.or_insert_with(|| object.clone().unbind());
        }
        Some(dict)
    }

    /// Notes a call of an operator of PyTorch, which the recorder has to see.
    pub(super) fn expect_operator(&mut self, recorded: u64, what: impl FnOnce() -> String) {
        if let Some(frame) = self.frames.last_mut()
            && frame.expected.is_none()
        {
            frame.expected = Some(recorded);
            frame.called = what();
        }
    }
}
