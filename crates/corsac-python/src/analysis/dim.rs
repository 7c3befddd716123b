//! Sizes that depend on symbols, in Python.

use std::hash::{DefaultHasher, Hash, Hasher};

use corsac_ops::shape::Dim;
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A size that depends on symbols: `batch`, `2*seq + 1`. Equal expressions are equal.
///
/// A symbol stands for any integer of at least 2.
#[pyclass(name = "Dim", module = "corsac._core", frozen)]
pub(crate) struct PyDim(pub(crate) Dim);

/// Converts a size: to an int where it is known, to a [`PyDim`] otherwise.
pub(crate) fn write_dim<'py>(py: Python<'py>, dim: &Dim) -> PyResult<Bound<'py, PyAny>> {
    match dim {
        Dim::Known(value) => Ok(value.into_pyobject(py)?.into_any()),
        Dim::Symbolic(_) => Ok(Bound::new(py, PyDim(dim.clone()))?.into_any()),
    }
}

/// Reads a size: an int, a [`PyDim`], or the name of a symbol.
pub(crate) fn read_dim(value: &Bound<'_, PyAny>) -> PyResult<Dim> {
    if let Ok(dim) = value.cast::<PyDim>() {
        return Ok(dim.get().0.clone());
    }
    if let Ok(number) = value.extract::<i64>() {
        return Ok(Dim::Known(number));
    }
    if let Ok(name) = value.extract::<String>()
        && !name.is_empty()
    {
        return Ok(Dim::symbol(&name));
    }
    let class = value.get_type().qualname()?;
    Err(PyTypeError::new_err(format!(
        "expected an int, a Dim or the name of a symbol as a size, got {class}"
    )))
}

#[pymethods]
impl PyDim {
    /// The symbol called `name`.
    #[new]
    fn new(name: &str) -> Self {
        Self(Dim::symbol(name))
    }

    /// Value for the symbols' values in `sizes`; raises `KeyError` if one is missing.
    #[pyo3(signature = (sizes))]
    fn evaluate(&self, sizes: &Bound<'_, PyDict>) -> PyResult<i64> {
        let mut known = Vec::new();
        for item in sizes.items() {
            known.push(item.extract::<(String, i64)>()?);
        }
        let of = |name: &str| known.iter().find(|(own, _)| own == name).map(|(_, v)| *v);
        self.0
            .evaluate(&of)
            .ok_or_else(|| PyKeyError::new_err(format!("a symbol of {} has no value", self.0)))
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        read_dim(other).is_ok_and(|other| self.0 == other)
    }

    fn __add__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        write_dim(py, &(self.0.clone() + read_dim(other)?))
    }

    fn __radd__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.__add__(py, other)
    }

    fn __sub__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        write_dim(py, &(self.0.clone() - read_dim(other)?))
    }

    fn __rsub__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        write_dim(py, &(read_dim(other)? - self.0.clone()))
    }

    fn __mul__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        write_dim(py, &(self.0.clone() * read_dim(other)?))
    }

    fn __rmul__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.__mul__(py, other)
    }

    fn __floordiv__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let quotient = self.0.floor_div(&read_dim(other)?);
        let quotient = quotient
            .ok_or_else(|| pyo3::exceptions::PyZeroDivisionError::new_err("division by zero"))?;
        write_dim(py, &quotient)
    }
}
