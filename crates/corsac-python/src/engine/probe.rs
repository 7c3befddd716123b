//! Probes of the installed PyTorch, made once per process.

use std::thread::{Builder, scope};

use pyo3::intern;
use pyo3::prelude::*;

/// Result of `probe` in a thread of its own: modes of PyTorch that happen to be on in the caller's
/// thread (of dispatch, of gradients, fake tensors, a default device) would otherwise affect it,
/// and thus every later call. None if the system provides no thread.
pub(super) fn in_new_thread<T: Send>(
    py: Python<'_>,
    probe: impl FnOnce(Python<'_>) -> T + Send,
) -> Option<T> {
    py.detach(|| {
        scope(|threads| {
            let name = "corsac-probe".to_owned();
            let probe = || Python::attach(probe);
            let thread = Builder::new().name(name).spawn_scoped(threads, probe);
            thread.ok()?.join().ok()
        })
    })
}

/// Calls `work` within a context manager of Python.
pub(super) fn within<T>(
    context: &Bound<'_, PyAny>,
    work: impl FnOnce() -> PyResult<T>,
) -> PyResult<T> {
    let py = context.py();
    let none = py.None();
    context.call_method0(intern!(py, "__enter__"))?;
    let result = work();
    context.call_method1(intern!(py, "__exit__"), (&none, &none, &none))?;
    result
}
