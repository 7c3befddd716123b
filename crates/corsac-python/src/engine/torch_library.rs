//! Functions of PyTorch's libraries, by their names.

use std::ffi::c_void;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Prefix of the versions of PyTorch whose functions and structures are known.
const KNOWN: &str = "2.15.";

/// A library of the installed PyTorch.
pub(super) struct Library<'py> {
    ctypes: Bound<'py, PyModule>,
    own: Bound<'py, PyAny>,
}

impl<'py> Library<'py> {
    /// The library of this name, which stays loaded.
    ///
    /// # Errors
    /// It is not loaded, or PyTorch is of another version than those that are known.
    pub(super) fn loaded(py: Python<'py>, name: &str) -> PyResult<Self> {
        let version: String = py
            .import("torch")?
            .getattr("__version__")?
            .str()?
            .extract()?;
        if !version.starts_with(KNOWN) {
            let text = format!("its functions are not known in version {version}");
            return Err(PyRuntimeError::new_err(text));
        }
        let (ctypes, os) = (py.import("ctypes")?, py.import("os")?);
        let folder = py.import("torch")?.getattr("__path__")?.get_item(0)?;
        let path = os
            .getattr("path")?
            .call_method1("join", (folder, "lib", name))?;
        let [no_load, now] = ["RTLD_NOLOAD", "RTLD_NOW"].map(|name| os.getattr(name)?.extract());
        let (no_load, now): (i32, i32) = (no_load?, now?);
        let options = PyDict::new(py);
        options.set_item("mode", no_load | now)?;
        let own = ctypes.call_method("CDLL", (path,), Some(&options))?;
        Ok(Self { ctypes, own })
    }

    /// The address of the function of this name.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn function(&self, name: &str) -> PyResult<*const c_void> {
        let function = self.own.get_item(name)?;
        let kind = self.ctypes.getattr("c_void_p")?;
        let pointer = self.ctypes.call_method1("cast", (function, kind))?;
        let address = pointer.getattr("value")?.extract::<usize>()?;
        Ok(std::ptr::with_exposed_provenance(address))
    }
}
