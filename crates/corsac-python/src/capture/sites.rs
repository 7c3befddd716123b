//! Instructions of a program that caused the guards.

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCode;
use rustc_hash::{FxHashMap, FxHashSet};

use super::cpython;
use super::guards::Address;

/// Kinds of guards, which have one table each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Family {
    Entry,
    Contents,
    Class,
    Kind,
    Sequence,
    Cell,
    Function,
    Attribute,
    Call,
}

/// An instruction: the address of its code object, and its offset there, in bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Site {
    pub(super) code: Address,
    pub(super) offset: usize,
}

/// The first instruction that read a place, by the family, the object and the name or key.
#[derive(Default)]
pub(super) struct Sites {
    /// The current instruction.
    pub(super) at: Site,
    first: FxHashMap<(Family, Address, Address), Site>,
    codes: FxHashMap<Address, Py<PyCode>>,
}

impl Sites {
    pub(super) fn note(&mut self, family: Family, object: Address, key: Address) {
        self.first.entry((family, object, key)).or_insert(self.at);
    }

    /// Keeps the code objects that lines are looked up in.
    pub(super) fn keep<'a>(&mut self, py: Python<'_>, codes: impl Iterator<Item = &'a Py<PyCode>>) {
        let used: FxHashSet<_> = self.first.values().map(|own| own.code).collect();
        let codes = codes.map(|own| (own.as_ptr().addr(), own));
        let codes = codes.filter(|(at, _)| used.contains(at));
        self.codes = codes.map(|(at, own)| (at, own.clone_ref(py))).collect();
    }

    /// File and line that a guard comes from; None for reads before the program began.
    pub(super) fn line(
        &self,
        py: Python<'_>,
        family: Family,
        object: Address,
        key: Address,
    ) -> Option<(String, i32)> {
        let site = self.first.get(&(family, object, key))?;
        let code = self.codes.get(&site.code)?.bind(py);
        let file = code.getattr(intern!(py, "co_filename")).ok()?;
        Some((file.extract().ok()?, cpython::line(code, site.offset)))
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.codes.values().try_for_each(|own| visit.call(own))
    }
}

/// File and line that are being executed, outside PyTorch and corsac.
pub(super) fn line_of_program() -> Option<(String, i32)> {
    Python::attach(|py| {
        let lines = py.import("corsac._messages.lines").ok()?;
        let found = lines.call_method0(intern!(py, "line_of_program"));
        found.ok()?.extract().ok()?
    })
}
