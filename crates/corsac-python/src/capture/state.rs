//! What is known of a program while it is being watched.

use pyo3::prelude::*;
use pyo3::types::{PyCode, PyDict, PyTuple, PyWeakrefMethods, PyWeakrefReference};
use rustc_hash::{FxHashMap, FxHashSet};

use super::counters::Counters;
use super::cpython::{self, Frame, is_tracked};
use super::effects::Purpose;
use super::guards::{Reads, address};
use super::passages::Passage;
use super::sites::line_of_program;
use super::symbols::{Pending, Symbols};

/// Containers with more elements are data, of which programs read a part.
pub(super) const MOST: usize = 10_000;
/// How deep containers are looked into that are compared or printed.
pub(super) const DEEPEST: usize = 8;

/// Why a program is not captured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// It prints or imports something, where Dynamo ends a graph and leaves that to Python.
    Prints,
    /// It writes to something that was there before.
    Writes,
    /// It calls something of PyTorch that is no operator.
    Torch,
    /// It does something of which nothing is known.
    Opaque,
    /// It uses transforms of `torch.func`, which Dynamo knows whatever they do besides.
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

/// A code object that was met.
pub(super) struct Code {
    pub(super) instructions: Vec<u8>,
    pub(super) names: Py<PyTuple>,
    /// It belongs to the recorder.
    pub(super) is_ours: bool,
    /// It asks whether somebody looks at the operators of tensors, or compiles it, and is told that nobody does.
    pub(super) asks: bool,
    pub(super) passage: Option<Passage>,
    /// It belongs to PyTorch, which asks whether somebody looks at operators, and is told.
    pub(super) is_of_torch: bool,
    /// It belongs to `torch.func`.
    pub(super) transforms: bool,
    /// It is Python's own for copies, which finds objects by identity and makes the same of the same.
    pub(super) copies: bool,
    pub(super) _object: Py<PyCode>,
}

/// Who runs a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hosting {
    /// Its instructions are seen.
    Seen,
    /// PyTorch, as it is.
    Hosted,
    /// Whoever runs the function that it wraps: Dynamo has such.
    Wrapped,
}

/// A frame that is being watched.
#[derive(Default)]
pub(super) struct Watched {
    /// Whether all that it reads was noted as it began.
    pub(super) is_read: bool,
    /// How many operators had been recorded before one was called that has to be.
    pub(super) expected: Option<u64>,
    /// What was called, for a message.
    pub(super) called: String,
    /// Whether the next instruction finds a new iterator on the stack.
    pub(super) makes_iterator: bool,
    /// Whether what a function gives to the C code that this instruction runs goes on to the program.
    pub(super) moves: bool,
    /// What C code that this instruction runs does with what functions of Python give to it.
    pub(super) purpose: Purpose,
    /// Whether the next call has arguments with names.
    pub(super) keywords: bool,
    /// Their names, where the instruction has them.
    pub(super) names: Option<Py<PyAny>>,
    /// The symbol that the next instruction finds there.
    pub(super) pending: Option<Pending>,
}

/// An object that something was done to.
pub(super) enum Held {
    Strong(Py<PyAny>),
    /// One that does something when it goes away, as generators do. If it has, the program has made it: what was there
    /// before is held by what had it.
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
    /// Places of numbers that were others in each call so far.
    pub(super) counters: Counters,
    /// What was written to, and what the program did.
    pub(super) writes: Vec<(Held, String)>,
    pub(super) written: FxHashSet<usize>,
    pub(super) codes: FxHashMap<usize, Code>,
    pub(super) frames: Vec<Watched>,
    /// Dictionaries of attributes that were made while the program ran, and whose attributes they are.
    pub(super) owners: FxHashMap<usize, Py<PyAny>>,
    /// Objects whose identity was asked for.
    pub(super) identities: Vec<Py<PyAny>>,
    /// Values of which the program asks whether they are one object.
    pub(super) compared: Vec<(Py<PyAny>, Py<PyAny>)>,
    /// Objects by which dictionaries were asked.
    pub(super) strict: Vec<Py<PyAny>>,
    /// Classes whose methods for operators have been looked at.
    pub(super) computed: FxHashSet<usize>,
    /// New iterators that the collector does not know: kept, so that no others have their addresses.
    pub(super) iterators: Vec<Py<PyAny>>,
    /// Code whose results C code will use, and what for, whoever calls it.
    pub(super) consumed: FxHashSet<(usize, Purpose)>,
    /// Whether it is noted that nothing is traced by TorchScript, and that there are no hooks of all modules.
    pub(super) knows_hooks_of_all: bool,
    /// Who runs functions that were called, by their code.
    pub(super) hosting: FxHashMap<usize, (Hosting, Py<PyAny>)>,
    /// Variables of the context that were set.
    pub(super) variables: FxHashSet<usize>,
    /// How many frames of the recorder, and of what it calls, are being executed.
    pub(super) skipped: usize,
    /// The code of a function whose results are taken to be constants, and that is being called.
    pub(super) assumed: Option<usize>,
    /// Whether the frames that are skipped are those of such a function.
    pub(super) is_assumed: bool,
    pub(super) refusal: Option<(Kind, String)>,
    /// The file and the line of the program where that was.
    pub(super) refused_at: Option<(String, i32)>,
    /// Whether the instruction gives the program the number that a method of a tensor gives: `item`, or `int` and `float`
    /// of one.
    pub(super) makes_number: bool,
    /// Calls a function with arguments, whose operators are not recorded.
    pub(super) quiet: Option<Py<PyAny>>,
    /// Whether what the instruction calls is nothing of the program's: it prints, or computes numbers of others.
    pub(super) is_skipping: bool,
    /// Is told of calls that print.
    pub(super) prints: Option<Py<PyAny>>,
    /// Code of the recorder that was called.
    pub(super) entered: FxHashSet<usize>,
    /// Methods of C that cannot be recorded.
    pub(super) refused: FxHashSet<usize>,
    /// Objects that were young before the program ran.
    pub(super) young: FxHashSet<usize>,
    pub(super) _young: Vec<Py<PyAny>>,
    /// The version of the newest dictionary then.
    pub(super) newest: u64,
}

impl State {
    pub(super) fn refuse(&mut self, kind: Kind, text: impl Into<String>) {
        if self.refusal.as_ref().is_none_or(|known| known.0 < kind) {
            self.refusal = Some((kind, text.into()));
            self.refused_at = line_of_program();
        }
    }

    /// Keeps nothing but why nothing is captured; gives what it had.
    pub(super) fn forget(&mut self) -> Self {
        let rest = Self {
            refusal: self.refusal.take(),
            refused_at: self.refused_at.take(),
            entered: std::mem::take(&mut self.entered),
            ..Self::default()
        };
        std::mem::replace(self, rest)
    }

    /// Whether the program has done something of which nothing is known.
    pub(super) fn is_opaque(&self) -> bool {
        matches!(self.refusal, Some((Kind::Opaque, _)))
    }

    /// Something is called or made of which nothing is known.
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

    /// Something is changed of which nobody can say afterwards whether it is as it was: it must be the program's own.
    pub(super) fn write(&mut self, object: &Bound<'_, PyAny>, what: &str) {
        if self.written.insert(address(object)) {
            match Held::new(object) {
                Ok(held) => self.writes.push((held, what.to_owned())),
                Err(_) => self.opaque(what),
            }
        }
    }

    /// An iterator has been made, if the last instruction was to make one. The collector does not know all of them.
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

    /// The dictionary of an object's attributes. It may be made by whoever asks for it, and is as old as the object.
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

    /// An operator of PyTorch is called, which the recorder has to see.
    pub(super) fn expect_operator(&mut self, recorded: u64, what: impl FnOnce() -> String) {
        if let Some(frame) = self.frames.last_mut()
            && frame.expected.is_none()
        {
            frame.expected = Some(recorded);
            frame.called = what();
        }
    }
}
