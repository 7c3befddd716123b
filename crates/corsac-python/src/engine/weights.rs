//! Weights of a model, read from tensors when they are asked for.

use std::sync::Mutex;

use corsac_engine::{DType, Element, Elements, Weights};
use pyo3::buffer::PyBuffer;
use pyo3::intern;
use pyo3::prelude::*;

use crate::runtime::TorchValues;

/// Weights read from tensors one by one: a model is not in memory twice.
pub(super) struct Loaded<'a> {
    pub(super) tensors: &'a [Py<PyAny>],
    pub(super) elements: Vec<Option<Element>>,
    /// What went wrong.
    pub(super) error: Mutex<Option<PyErr>>,
}

impl Loaded<'_> {
    fn take(&self, number: usize) -> Option<Elements> {
        let (tensor, element) = (self.tensors.get(number)?, (*self.elements.get(number)?)?);
        match Python::attach(|py| elements(tensor.bind(py), element)) {
            Ok(found) => Some(found),
            Err(error) => {
                if let Ok(mut place) = self.error.lock() {
                    *place = Some(error);
                }
                None
            }
        }
    }
}

impl Weights for Loaded<'_> {
    fn weight(&self, number: usize) -> Option<Vec<f32>> {
        match self.take(number)? {
            Elements::F32(data) => Some(data),
            Elements::I64(_) | Elements::Bool(_) => None,
        }
    }

    fn integers(&self, number: usize) -> Option<Vec<i64>> {
        match self.take(number)? {
            Elements::I64(data) => Some(data),
            Elements::F32(_) | Elements::Bool(_) => None,
        }
    }

    fn flags(&self, number: usize) -> Option<Vec<u8>> {
        match self.take(number)? {
            Elements::Bool(data) => Some(data),
            Elements::F32(_) | Elements::I64(_) => None,
        }
    }
}

/// The elements of a tensor, row by row.
pub(super) fn elements(tensor: &Bound<'_, PyAny>, element: Element) -> PyResult<Elements> {
    let py = tensor.py();
    let dtype = match element {
        Element::F32 => DType::Float32,
        Element::I64 => DType::Int64,
        Element::Bool => DType::Bool,
    };
    let array = tensor
        .call_method0(intern!(py, "detach"))?
        .call_method0(intern!(py, "resolve_neg"))?
        // Integers of fewer bits are held as int64; the same tensor comes back otherwise.
        .call_method1(intern!(py, "to"), (TorchValues::get(py)?.dtype(dtype),))?
        .call_method0(intern!(py, "contiguous"))?
        // A number has a buffer without a shape.
        .call_method1(intern!(py, "view"), (-1,))?
        .call_method0(intern!(py, "numpy"))?;
    Ok(match element {
        Element::F32 => Elements::F32(PyBuffer::<f32>::get(&array)?.to_vec(py)?),
        Element::I64 => Elements::I64(PyBuffer::<i64>::get(&array)?.to_vec(py)?),
        Element::Bool => {
            let bytes = array.call_method1(intern!(py, "view"), (intern!(py, "uint8"),))?;
            Elements::flags(PyBuffer::<u8>::get(&bytes)?.to_vec(py)?)
        }
    })
}
