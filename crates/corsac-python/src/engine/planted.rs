//! Panics where a test wants one: what Python makes of a fault of the engine is seen with a fault only.

use std::sync::atomic::{AtomicU8, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Where a panic may be planted.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Place {
    Compile = 1,
    Run = 2,
}

/// The place of the next panic; 0 for none.
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// For tests: the next compilation (`"compile"`) or run of a program (`"run"`) panics, once; None takes
/// that back.
#[pyfunction]
pub(super) fn plant_panic(place: Option<&str>) -> PyResult<()> {
    let number = match place {
        None => 0,
        Some("compile") => Place::Compile as u8,
        Some("run") => Place::Run as u8,
        Some(other) => {
            let text = format!("place is 'compile' or 'run', not {other:?}");
            return Err(PyValueError::new_err(text));
        }
    };
    PLANTED.store(number, Ordering::Relaxed);
    Ok(())
}

/// Panics if that was planted here.
///
/// # Panics
///
/// That is what it is for.
pub(super) fn panic_if_planted(place: Place) {
    let number = place as u8;
    if PLANTED.load(Ordering::Relaxed) == number {
        PLANTED.store(0, Ordering::Relaxed);
        panic!("planted for a test");
    }
}
