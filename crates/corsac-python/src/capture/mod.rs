//! Capture by recording: CPython runs a program, and what it reads, writes and calls is watched.
//!
//! A trace function sees every instruction of Python that the program executes, with the values on the stack of
//! its frame ([`cpython`], [`opcode`]). What is read besides the arguments becomes a guard ([`guards`]);
//! functions of C are tensor operators, which are recorded elsewhere, or in a table of effects
//! ([`effects`]). What is not known, and what leaves something changed that was there before, is a reason not to
//! capture the program ([`recording`]); its run is an ordinary one all the same.

mod attributes;
mod calls;
mod changes;
mod containers;
mod counters;
mod cpython;
mod effects;
mod guards;
mod look;
mod opcode;
mod recording;
mod roots;
mod structure;
mod symbols;

use pyo3::prelude::*;

pub(crate) use guards::PyGuards;

/// Whether somebody has set attributes of an object that are in its dictionary.
pub(crate) fn has_attributes(object: &Bound<'_, PyAny>) -> bool {
    cpython::attributes(object, false).is_some_and(|own| !own.is_empty())
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyGuards>()?;
    m.add_class::<recording::PyRecording>()
}
