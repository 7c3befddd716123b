//! Tensors in arguments and results, and the addresses of their storages.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use super::tensor_layout::Dense;
use super::tensors::Exchange;

/// Deepest nesting of containers that is searched.
const DEEPEST: usize = 100;

/// Finds tensors in containers, and the addresses of their storages.
pub(crate) struct TensorFinder<'py> {
    exchange: Option<&'py Exchange>,
    /// The class `torch.Tensor`.
    class: &'py Bound<'py, PyType>,
}

/// Objects of `torch`.
struct Torch {
    tensor: Py<PyType>,
    strided: Py<PyAny>,
}

impl Torch {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
        TORCH.get_or_try_init(py, || {
            let torch = py.import("torch")?;
            Ok(Self {
                tensor: torch.getattr("Tensor")?.cast_into()?.unbind(),
                strided: torch.getattr("strided")?.unbind(),
            })
        })
    }
}

impl<'py> TensorFinder<'py> {
    pub(crate) fn new(py: Python<'py>) -> PyResult<Self> {
        Ok(Self {
            exchange: Exchange::get(py)?,
            class: Torch::get(py)?.tensor.bind(py),
        })
    }

    /// The class `torch.Tensor`.
    pub(crate) fn class(&self) -> &Bound<'py, PyType> {
        self.class
    }

    fn is_ordinary(&self, own: &Bound<'py, PyAny>) -> bool {
        self.exchange.is_some_and(|known| known.is_tensor(own))
    }

    /// Calls `found` with each tensor in a value.
    pub(crate) fn each(
        &self,
        own: &Bound<'py, PyAny>,
        depth: usize,
        found: &mut impl FnMut(&Bound<'py, PyAny>) -> PyResult<()>,
    ) -> PyResult<()> {
        if self.is_ordinary(own) {
            return found(own);
        }
        if depth > DEEPEST {
            return Ok(());
        }
        if let Ok(dict) = own.cast::<PyDict>() {
            let values = dict.values();
            return (values.iter()).try_for_each(|own| self.each(&own, depth + 1, found));
        }
        if let Ok(tuple) = own.cast::<PyTuple>() {
            return (tuple.iter()).try_for_each(|own| self.each(&own, depth + 1, found));
        }
        if let Ok(list) = own.cast::<PyList>() {
            return (list.iter()).try_for_each(|own| self.each(&own, depth + 1, found));
        }
        match own.is_instance(self.class)? {
            true => found(own),
            false => Ok(()),
        }
    }

    /// Address of the storage of an ordinary tensor on the CPU: strided, with elements that are stored
    /// as their values, and of no subclass; None for others.
    pub(crate) fn storage_of_ordinary(&self, own: &Bound<'py, PyAny>) -> Option<usize> {
        let is_plain = self.exchange.is_some_and(|known| known.is_plain(own));
        is_plain
            .then(|| Dense::of(own))
            .flatten()
            .map(|own| own.storage)
    }

    /// Address of the storage; None if `strided` is set and the tensor is not strided.
    pub(crate) fn storage(
        &self,
        own: &Bound<'py, PyAny>,
        strided: bool,
    ) -> PyResult<Option<usize>> {
        let py = own.py();
        if self.is_ordinary(own)
            && let Some(dense) = Dense::of(own)
        {
            return Ok(Some(dense.storage));
        }
        if strided
            && !own
                .getattr(intern!(py, "layout"))?
                .is(&Torch::get(py)?.strided)
        {
            return Ok(None);
        }
        let storage = own.call_method0(intern!(py, "untyped_storage"))?;
        storage.getattr(intern!(py, "_cdata"))?.extract().map(Some)
    }

    /// Addresses of the storages of the strided tensors in some values.
    pub(crate) fn all_in(&self, values: &Bound<'py, PyAny>) -> PyResult<Vec<usize>> {
        let mut found = Vec::new();
        self.each(values, 0, &mut |own| {
            found.extend(self.storage(own, true)?);
            Ok(())
        })?;
        Ok(found)
    }
}

/// The tensors among the arguments or results of PyTorch's functions, including those in tuples,
/// lists and dictionaries.
#[pyfunction]
#[pyo3(signature = (*values))]
pub(super) fn tensors_in<'py>(values: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyList>> {
    let found = PyList::empty(values.py());
    TensorFinder::new(values.py())?.each(values.as_any(), 0, &mut |own| found.append(own))?;
    Ok(found)
}

/// Address of the storage of a strided tensor, which all its views share; valid while the storage
/// lives.
#[pyfunction]
pub(super) fn storage_of(own: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    TensorFinder::new(own.py())?.storage(own, false)
}

/// Addresses of the storages of the strided tensors in some values.
#[pyfunction]
#[pyo3(signature = (*values))]
pub(super) fn storages_in(values: &Bound<'_, PyTuple>) -> PyResult<Vec<usize>> {
    TensorFinder::new(values.py())?.all_in(values.as_any())
}
