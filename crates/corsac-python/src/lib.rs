//! The Python extension module `corsac._core`: handles on the Rust graph.
//!
//! This is the only crate that names `pyo3`.

use pyo3::prelude::*;

/// The native half of the `corsac` package.
#[pymodule]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))
}
