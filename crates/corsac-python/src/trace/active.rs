//! The tracers at work in each thread.

use std::cell::RefCell;

use pyo3::prelude::*;

use super::tracer::PyTracer;

thread_local! {
    /// Innermost last: a trace may start another one.
    static ACTIVE: RefCell<Vec<Py<PyTracer>>> = const { RefCell::new(Vec::new()) };
}

/// The tracer at work in this thread.
pub(super) fn current(py: Python<'_>) -> Option<Bound<'_, PyTracer>> {
    ACTIVE.with_borrow(|stack| stack.last().map(|tracer| tracer.bind(py).clone()))
}

/// Makes a tracer the one at work in this thread, for as long as the value lives.
pub(super) struct AtWork(());

impl AtWork {
    pub(super) fn begin(tracer: &Bound<'_, PyTracer>) -> Self {
        ACTIVE.with_borrow_mut(|stack| stack.push(tracer.clone().unbind()));
        Self(())
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        // Dropped after the borrow: it may be the last reference to the tracer.
        let ended = ACTIVE.with_borrow_mut(Vec::pop);
        drop(ended);
    }
}
