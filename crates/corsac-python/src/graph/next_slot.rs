//! The function that the interpreter calls for each node of a loop over `graph.nodes`.
//!
//! PyO3 counts calls into Rust and catches panics around them, which takes longer than returning a
//! node that has been looked up already. So such nodes are returned by a function without that,
//! which can neither panic nor drop an object; all else is left to the function of PyO3.

#![expect(
    unsafe_code,
    reason = "slots of a class are set through CPython's C interface"
)]

use std::ptr;
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::graph::nodes::PyNodeIterator;

/// PyO3's function for `__next__`.
static COMPLETE: OnceLock<ffi::iternextfunc> = OnceLock::new();

/// Installs the shorter function for loops.
pub(crate) fn shorten(py: Python<'_>) {
    let class = py.get_type::<PyNodeIterator>().as_type_ptr();
    // SAFETY: the class is complete and lives as long as the process, no class derives from it, and
    // the interpreter's lock is held, so that nobody reads the slot meanwhile.
    unsafe {
        if let Some(complete) = (*class).tp_iternext
            && COMPLETE.set(complete).is_ok()
        {
            (*class).tp_iternext = Some(next);
        }
    }
}

unsafe extern "C" fn next(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls the slot of a class with the lock held, and with an object of
    // that class, which it keeps alive.
    let known = unsafe {
        let py = Python::assume_attached();
        let iterator = Borrowed::from_ptr(py, object).cast_unchecked::<PyNodeIterator>();
        iterator.get().known(py)
    };
    match (known, COMPLETE.get()) {
        (Some(node), _) => node.into_ptr(),
        // SAFETY: as above, of the same slot.
        (None, Some(complete)) => unsafe { complete(object) },
        (None, None) => ptr::null_mut(),
    }
}
