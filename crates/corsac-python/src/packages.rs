//! Checks for graphs of torch.fx where those of corsac.fx are expected, and the other way round:
//! `corsac.fx._packages` decides which are errors.

use pyo3::PyTypeCheck;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyString};

/// Casts a graph or node of corsac.fx, for `taker`; one of torch.fx is an error that says how to
/// convert it.
pub(crate) fn ours<'a, 'py, T: PyTypeCheck>(
    value: &'a Bound<'py, PyAny>,
    taker: &str,
) -> PyResult<&'a Bound<'py, T>> {
    let found = value.cast::<T>();
    if found.is_err() {
        let packages = value.py().import("corsac.fx._packages")?;
        packages.call_method1("expect_ours", (value, taker))?;
    }
    Ok(found?)
}

/// Raises if the calling function is a part of torch.fx that only works on graphs of torch.fx.
pub(crate) fn refuse_torch_reader(py: Python<'_>) -> PyResult<()> {
    static GETFRAME: PyOnceLock<Py<PyCFunction>> = PyOnceLock::new();
    let frame = GETFRAME.import(py, "sys", "_getframe")?.call0()?;
    let globals = frame
        .getattr(intern!(py, "f_globals"))?
        .cast_into::<PyDict>()?;
    let Some(name) = globals.get_item(intern!(py, "__name__"))? else {
        return Ok(());
    };
    if name.cast::<PyString>().is_ok_and(|name| {
        name.to_cow()
            .is_ok_and(|name| name.starts_with("torch.fx."))
    }) {
        let packages = py.import("corsac.fx._packages")?;
        packages.call_method1("refuse_reader", (name,))?;
    }
    Ok(())
}
