//! Panics planted by tests, to see how Python reports a fault of the engine.

use std::sync::atomic::{AtomicU8, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Places for a planted panic.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Place {
    Compile = 1,
    Run = 2,
}

/// The place of the next panic; 0 for none.
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plant a panic, for tests: the next compilation (`"compile"`) or run of a program (`"run"`)
/// panics, once; None removes it.
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

/// Panics if a panic is planted here.
///
/// # Panics
///
/// Whenever it is planted here, as intended.
pub(super) fn panic_if_planted(place: Place) {
    let number = place as u8;
    if PLANTED.load(Ordering::Relaxed) == number {
        PLANTED.store(0, Ordering::Relaxed);
        panic!("planted for a test");
    }
}
