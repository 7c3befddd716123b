//! Guards as rows of addresses and versions, compared one after the other.
//!
//! A row is the state of a place when it was last checked: a version, or the address of an object
//! that is kept alive. Where that differs, the place is checked as in [`super::guards`], key by
//! key, and the new version is stored if everything is as it was. The guard that failed last is
//! checked first.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyType};

use super::cpython;
use super::guards::{CallRead, Reads, is_ordered, is_same_option};
use crate::engine::modes::{are_off, is_off};

/// Position of a guard: its table, and its row there.
#[derive(Clone, Copy)]
enum At {
    Kind(usize),
    Dict(usize),
    Class(usize),
    Function(usize),
    Cell(usize),
    Sequence(usize),
    Attribute(usize),
    Call(usize),
}

impl At {
    fn packed(self) -> u64 {
        let (table, row) = match self {
            Self::Kind(row) => (1, row),
            Self::Dict(row) => (2, row),
            Self::Class(row) => (3, row),
            Self::Function(row) => (4, row),
            Self::Cell(row) => (5, row),
            Self::Sequence(row) => (6, row),
            Self::Attribute(row) => (7, row),
            Self::Call(row) => (8, row),
        };
        table << 32 | row as u64
    }

    fn unpacked(own: u64) -> Option<Self> {
        let row = (own & u64::from(u32::MAX)) as usize;
        Some(match own >> 32 {
            1 => Self::Kind(row),
            2 => Self::Dict(row),
            3 => Self::Class(row),
            4 => Self::Function(row),
            5 => Self::Cell(row),
            6 => Self::Sequence(row),
            7 => Self::Attribute(row),
            8 => Self::Call(row),
            _ => return None,
        })
    }
}

/// The rows. Those of dictionaries, classes and cells are in the order of [`Reads`].
pub(super) struct Flat {
    /// Objects whose class may change, and their classes.
    kinds: Vec<(Py<PyAny>, Py<PyType>)>,
    dicts: Vec<(Py<PyDict>, AtomicU64)>,
    /// Rows of dictionaries with an order of their own, which versions do not cover.
    moving: Vec<usize>,
    classes: Vec<(Py<PyType>, AtomicU32)>,
    functions: Vec<(Py<PyAny>, [usize; 3])>,
    /// Cells, and the addresses of their contents, 0 for none.
    cells: Vec<(Py<PyAny>, usize)>,
    /// Objects and the addresses of their attribute dictionaries, with the rows of those
    /// attributes.
    stores: Vec<(Py<PyAny>, usize, usize)>,
    /// Rows of the other attributes that C computes.
    attributes: Vec<usize>,
    /// Rows of calls that are made again.
    calls: Vec<usize>,
    /// Rows of calls about PyTorch's modes, which need not be made while [none of these](are_off)
    /// is on.
    of_modes: Vec<usize>,
    /// The guard that failed last, 0 for none.
    failed: AtomicU64,
}

fn pointer(own: Option<&Py<PyAny>>) -> usize {
    own.map_or(0, |own| own.as_ptr().addr())
}

impl Flat {
    pub(super) fn new(py: Python<'_>, reads: &Reads) -> PyResult<Self> {
        let kinds = reads.kinds.values();
        let kinds = kinds.filter(|(_, kind)| !cpython::keeps_class(kind.bind(py)));
        let mut moving = Vec::new();
        for (row, own) in reads.dicts.values().enumerate() {
            let has_order = own.contents.as_ref().is_some_and(|own| own.len() > 1);
            if has_order && is_ordered(own.store.bind(py))? {
                moving.push(row);
            }
        }
        let (mut stores, mut attributes) = (Vec::new(), Vec::new());
        for (row, own) in reads.attributes.values().enumerate() {
            // Their classes provide the dictionary, which is guarded, too.
            let store = cpython::attributes(own.object.bind(py), false);
            let is_store = own.place.key.bind(py).eq("__dict__")?
                && is_same_object(store.as_ref(), own.place.before.as_ref());
            match (is_store, store) {
                (true, Some(store)) => {
                    stores.push((own.object.clone_ref(py), store.as_ptr().addr(), row));
                }
                _ => attributes.push(row),
            }
        }
        let (mut calls, mut of_modes) = (Vec::new(), Vec::new());
        for (row, own) in reads.calls.iter().enumerate() {
            let is_about_modes = own.result.as_ref().is_some_and(|result| {
                own.arguments.bind(py).is_empty()
                    && is_off(own.callable.bind(py), result.bind(py)).unwrap_or(false)
            });
            match is_about_modes {
                true => of_modes.push(row),
                false if lacks_driver(py, own) => {}
                false => calls.push(row),
            }
        }
        let dicts = reads.dicts.values();
        let classes = reads.classes.values();
        let functions = reads.functions.values();
        let cells = reads.cells.values();
        Ok(Self {
            kinds: kinds
                .map(|(object, kind)| (object.clone_ref(py), kind.clone_ref(py)))
                .collect(),
            dicts: dicts
                .map(|own| (own.store.clone_ref(py), AtomicU64::new(own.version)))
                .collect(),
            moving,
            classes: classes
                .map(|own| (own.kind.clone_ref(py), AtomicU32::new(own.version)))
                .collect(),
            functions: functions
                .map(|own| {
                    let parts = own.parts.each_ref().map(|part| pointer(part.as_ref()));
                    (own.function.clone_ref(py), parts)
                })
                .collect(),
            cells: cells
                .map(|own| (own.key.clone_ref(py), pointer(own.before.as_ref())))
                .collect(),
            stores,
            attributes,
            calls,
            of_modes,
            failed: AtomicU64::new(0),
        })
    }

    /// Whether all guards hold.
    pub(super) fn hold(&self, py: Python<'_>, reads: &Reads) -> PyResult<bool> {
        if !self.may_hold(py, reads)? {
            return Ok(false);
        }
        let failing = self.failing(py, reads)?;
        if let Some(at) = failing {
            self.failed.store(at.packed(), Relaxed);
        }
        Ok(failing.is_none())
    }

    /// Whether the guard that failed last holds.
    pub(super) fn may_hold(&self, py: Python<'_>, reads: &Reads) -> PyResult<bool> {
        match At::unpacked(self.failed.load(Relaxed)) {
            Some(at) => self.holds_at(py, reads, at),
            None => Ok(true),
        }
    }

    fn failing(&self, py: Python<'_>, reads: &Reads) -> PyResult<Option<At>> {
        for (row, (object, kind)) in self.kinds.iter().enumerate() {
            if !cpython::is_of(object, kind, py) {
                return Ok(Some(At::Kind(row)));
            }
        }
        for (row, (store, version)) in self.dicts.iter().enumerate() {
            if !cpython::has_version(store, version.load(Relaxed), py)
                && !self.dict(py, reads, row)?
            {
                return Ok(Some(At::Dict(row)));
            }
        }
        for row in &self.moving {
            if !self.dict(py, reads, *row)? {
                return Ok(Some(At::Dict(*row)));
            }
        }
        for (row, (kind, version)) in self.classes.iter().enumerate() {
            if !cpython::has_type_version(kind, version.load(Relaxed), py)
                && !self.class(py, reads, row)
            {
                return Ok(Some(At::Class(row)));
            }
        }
        for (row, (function, parts)) in self.functions.iter().enumerate() {
            if !cpython::has_parts(function, parts, py) {
                return Ok(Some(At::Function(row)));
            }
        }
        for (row, (cell, content)) in self.cells.iter().enumerate() {
            if !cpython::holds(cell, *content, py) && !cell_is_same(py, reads, row) {
                return Ok(Some(At::Cell(row)));
            }
        }
        for row in 0..reads.sequences.len() {
            if !sequence_is_same(py, reads, row)? {
                return Ok(Some(At::Sequence(row)));
            }
        }
        for (object, store, row) in &self.stores {
            if !cpython::has_store(object, *store, py) && !attribute_is_same(py, reads, *row)? {
                return Ok(Some(At::Attribute(*row)));
            }
        }
        for row in &self.attributes {
            if !attribute_is_same(py, reads, *row)? {
                return Ok(Some(At::Attribute(*row)));
            }
        }
        let of_modes: &[usize] = match self.of_modes.is_empty() || are_off(py) == Some(true) {
            true => &[],
            false => &self.of_modes,
        };
        for row in of_modes.iter().chain(&self.calls) {
            if !reads.calls[*row].is_current(py) {
                return Ok(Some(At::Call(*row)));
            }
        }
        Ok(None)
    }

    fn holds_at(&self, py: Python<'_>, reads: &Reads, at: At) -> PyResult<bool> {
        Ok(match at {
            At::Kind(row) => {
                let own = self.kinds.get(row);
                own.is_none_or(|(object, kind)| cpython::is_of(object, kind, py))
            }
            At::Dict(row) => self.dict(py, reads, row)?,
            At::Class(row) => self.class(py, reads, row),
            At::Function(row) => {
                let own = self.functions.get(row);
                own.is_none_or(|(function, parts)| cpython::has_parts(function, parts, py))
            }
            At::Cell(row) => cell_is_same(py, reads, row),
            At::Sequence(row) => sequence_is_same(py, reads, row)?,
            At::Attribute(row) => attribute_is_same(py, reads, row)?,
            At::Call(row) => reads.calls.get(row).is_none_or(|own| own.is_current(py)),
        })
    }

    /// Whether the guards of a dictionary hold, entry by entry.
    #[cold]
    fn dict(&self, py: Python<'_>, reads: &Reads, row: usize) -> PyResult<bool> {
        let (Some((_, read)), Some((store, version))) =
            (reads.dicts.get_index(row), self.dicts.get(row))
        else {
            return Ok(true);
        };
        // Comparing runs no code of Python for most, but may.
        let now = cpython::version(store.bind(py));
        let is_same = read.is_same(py)?;
        if is_same {
            version.store(now, Relaxed);
        }
        Ok(is_same)
    }

    /// Whether the guards of a class hold, name by name.
    #[cold]
    fn class(&self, py: Python<'_>, reads: &Reads, row: usize) -> bool {
        let (Some((_, read)), Some((kind, version))) =
            (reads.classes.get_index(row), self.classes.get(row))
        else {
            return true;
        };
        if cpython::has_type_version(kind, version.load(Relaxed), py) {
            return true;
        }
        let is_same = read.is_same(py);
        if is_same {
            // The lookups have given it a version.
            version.store(cpython::type_version(kind.bind(py)), Relaxed);
        }
        is_same
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for (object, kind) in &self.kinds {
            visit.call(object)?;
            visit.call(kind)?;
        }
        for (store, _) in &self.dicts {
            visit.call(store)?;
        }
        for (kind, _) in &self.classes {
            visit.call(kind)?;
        }
        for (function, _) in &self.functions {
            visit.call(function)?;
        }
        for (cell, _) in &self.cells {
            visit.call(cell)?;
        }
        for (object, ..) in &self.stores {
            visit.call(object)?;
        }
        Ok(())
    }
}

/// Whether a call fails for lack of CUDA's driver, which no process gets while it runs. To find
/// that out takes ten times as long as all else.
fn lacks_driver(py: Python<'_>, own: &CallRead) -> bool {
    const WANT: &str = "cudaErrorInsufficientDriver";
    own.result.is_none()
        && match own.callable.bind(py).call1(own.arguments.bind(py).clone()) {
            Ok(_) => false,
            Err(error) => error.value(py).to_string().contains(WANT),
        }
}

fn is_same_object(now: Option<&Bound<'_, PyDict>>, then: Option<&Py<PyAny>>) -> bool {
    match (now, then) {
        (Some(now), Some(then)) => now.is(then),
        _ => false,
    }
}

fn attribute_is_same(py: Python<'_>, reads: &Reads, row: usize) -> PyResult<bool> {
    match reads.attributes.get_index(row) {
        Some((_, own)) => own.is_current(py),
        None => Ok(true),
    }
}

#[cold]
fn cell_is_same(py: Python<'_>, reads: &Reads, row: usize) -> bool {
    reads.cells.get_index(row).is_none_or(|(_, own)| {
        let now = cpython::cell_content(own.key.bind(py));
        is_same_option(now.as_ref(), own.before.as_ref())
    })
}

fn sequence_is_same(py: Python<'_>, reads: &Reads, row: usize) -> PyResult<bool> {
    let Some((_, own)) = reads.sequences.get_index(row) else {
        return Ok(true);
    };
    if own.object.bind(py).is_exact_instance_of::<PyList>()
        && cpython::has_items(&own.object, &own.items, py)
    {
        return Ok(true);
    }
    own.is_same(py)
}
