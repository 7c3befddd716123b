//! Capture by recording: CPython runs a program, while its reads, writes and calls are watched.
//!
//! A trace function sees every Python instruction that the program executes, with the values on the
//! stack of its frame ([`cpython`], [`opcode`]). Reads of anything but the arguments become guards
//! ([`guards`]). Functions of C are tensor operators, which are recorded elsewhere, or are listed
//! in a table of effects ([`effects`]). Unknown functions, and changes of existing state that
//! cannot be made again, are reasons not to capture the program ([`recording`]); its run is an
//! ordinary one all the same.

mod attributes;
mod calls;
mod changes;
mod containers;
mod counters;
mod cpython;
mod effects;
mod effects_table;
mod flat;
mod getters;
mod guard_text;
mod guards;
mod iteration;
mod known_code;
mod look;
mod opcode;
mod pure_calls;
mod recorded_constants;
mod recorded_tensors;
mod recording;
mod roots;
mod sites;
mod state;
mod structure;
mod symbols;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pyo3::prelude::*;
use pyo3::types::PyDict;

pub(crate) use guards::{Found, PyGuards, is_same};

/// Whether an object has attributes in its dictionary.
pub(crate) fn has_attributes(object: &Bound<'_, PyAny>) -> bool {
    cpython::attributes(object, false).is_some_and(|own| !own.is_empty())
}

/// A dictionary that others may change, with its version when it was last checked.
pub(crate) struct Stamped {
    pub(crate) dict: Py<PyDict>,
    /// None where versions of dictionaries are not supported.
    version: Option<AtomicU64>,
}

impl Stamped {
    pub(crate) fn new(dict: Bound<'_, PyDict>) -> Self {
        let version = cpython::is_supported(dict.py()).then(|| cpython::version(&dict));
        Self {
            version: version.map(AtomicU64::new),
            dict: dict.unbind(),
        }
    }

    /// Whether the dictionary is known to be unchanged since the last check.
    #[inline]
    pub(crate) fn is_unchanged(&self, py: Python<'_>) -> bool {
        let version = self.version.as_ref();
        version.is_some_and(|own| cpython::has_version(&self.dict, own.load(Relaxed), py))
    }

    /// Whether the dictionary is current: if it has changed, `look` decides.
    #[inline]
    pub(crate) fn is_current(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<bool>,
    ) -> PyResult<bool> {
        if self.is_unchanged(py) {
            return Ok(true);
        }
        let dict = self.dict.bind(py);
        let now = self.version.as_ref().map(|_| cpython::version(dict));
        let is_current = look(dict)?;
        if let (true, Some(known), Some(now)) = (is_current, &self.version, now) {
            known.store(now, Relaxed);
        }
        Ok(is_current)
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyGuards>()?;
    m.add_function(wrap_pyfunction!(pure_calls::pure_call, m)?)?;
    m.add_function(wrap_pyfunction!(pure_calls::note_pure_call, m)?)?;
    m.add_class::<recorded_tensors::PyRecordedTensors>()?;
    m.add_function(wrap_pyfunction!(guards::not_failing, m)?)?;
    m.add_class::<recording::PyRecording>()
}
