//! Weights of a model, read from tensors on demand.

use std::borrow::Cow;
use std::sync::Mutex;

use corsac_engine::{
    Byte, DType, Data, Element, Elements, Half, HalfBits, Program, Source, Weights,
};
use pyo3::buffer::PyBuffer;
use pyo3::intern;
use pyo3::prelude::*;

use super::tensors::Exchange;
use crate::runtime::TorchValues;

/// Weights that are borrowed in place, or else read from tensors one by one: a model is not in
/// memory twice.
pub(super) struct Loaded<'a> {
    tensors: &'a [Py<PyAny>],
    elements: Vec<Option<Element>>,
    borrowed: Vec<Option<Data<'a>>>,
    /// The bits of those whose numbers have 16 bits.
    halves: Vec<Option<(&'a [u16], Half)>>,
    /// Those of int8 and uint8.
    bytes: Vec<Option<Bytes<'a>>>,
    error: Mutex<Option<PyErr>>,
}

/// A weight of int8 or uint8.
#[derive(Clone, Copy)]
struct Bytes<'a> {
    byte: Byte,
    /// Its bytes, if they can be borrowed.
    borrowed: Option<&'a [u8]>,
}

impl<'a> Loaded<'a> {
    pub(super) fn of(
        py: Python<'a>,
        tensors: &'a [Py<PyAny>],
        program: &Program,
    ) -> PyResult<Self> {
        let exchange = Exchange::get(py)?;
        let mut weights = Self {
            tensors,
            elements: vec![None; tensors.len()],
            borrowed: vec![None; tensors.len()],
            halves: vec![None; tensors.len()],
            bytes: vec![None; tensors.len()],
            error: Mutex::default(),
        };
        for value in &program.values {
            let Source::Weight(number) = value.source else {
                continue;
            };
            weights.elements[number] = Some(value.element);
            if let Some(exchange) = exchange
                && let Some(described) = exchange.described(tensors[number].bind(py))?
            {
                if value.element.is_float() {
                    weights.borrowed[number] = described.data(value.element, &value.shape);
                }
                weights.halves[number] = described.halves(&value.shape);
                let byte = match described.dtype() {
                    Some(DType::Int8) => Some(Byte::Signed),
                    Some(DType::UInt8) => Some(Byte::Unsigned),
                    _ => None,
                };
                let borrowed = described.content(&value.shape).map(|(_, bytes)| bytes);
                weights.bytes[number] = byte.map(|byte| Bytes { byte, borrowed });
            }
        }
        Ok(weights)
    }

    /// Whether a weight is borrowed.
    pub(super) fn can_borrow(&self, number: usize) -> bool {
        matches!(self.borrowed.get(number), Some(Some(_)))
    }

    /// The error that was raised when a weight was read.
    pub(super) fn error(self) -> Option<PyErr> {
        self.error.into_inner().ok().flatten()
    }

    fn take(&self, number: usize) -> Option<Elements> {
        let element = (*self.elements.get(number)?)?;
        self.read(number, |tensor| elements(tensor, element))
    }

    /// The result of `read` for a tensor; its error is kept.
    fn read<T>(
        &self,
        number: usize,
        read: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Option<T> {
        let tensor = self.tensors.get(number)?;
        match Python::attach(|py| read(tensor.bind(py))) {
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
    fn weight(&self, number: usize) -> Option<Cow<'_, [f32]>> {
        if let Some(&Some(Data::F32(borrowed))) = self.borrowed.get(number) {
            return Some(Cow::Borrowed(borrowed));
        }
        match self.take(number)? {
            Elements::F32(data) => Some(Cow::Owned(data)),
            Elements::F64(_) | Elements::I64(_) | Elements::Bool(_) => None,
        }
    }

    fn f64_weight(&self, number: usize) -> Option<Cow<'_, [f64]>> {
        if let Some(&Some(Data::F64(borrowed))) = self.borrowed.get(number) {
            return Some(Cow::Borrowed(borrowed));
        }
        match self.take(number)? {
            Elements::F64(data) => Some(Cow::Owned(data)),
            Elements::F32(_) | Elements::I64(_) | Elements::Bool(_) => None,
        }
    }

    fn half_weight(&self, number: usize) -> Option<HalfBits<'_>> {
        let (bits, half) = (*self.halves.get(number)?)?;
        Some((Cow::Borrowed(bits), half))
    }

    fn byte_weight(&self, number: usize) -> Option<(Cow<'_, [u8]>, Byte)> {
        let Bytes { byte, borrowed } = (*self.bytes.get(number)?)?;
        let bytes = match borrowed {
            Some(bytes) => Cow::Borrowed(bytes),
            None => Cow::Owned(self.read(number, bytes)?),
        };
        Some((bytes, byte))
    }

    fn i64_weight(&self, number: usize) -> Option<Vec<i64>> {
        match self.take(number)? {
            Elements::I64(data) => Some(data),
            Elements::F32(_) | Elements::F64(_) | Elements::Bool(_) => None,
        }
    }

    fn bool_weight(&self, number: usize) -> Option<Vec<u8>> {
        match self.take(number)? {
            Elements::Bool(data) => Some(data),
            Elements::F32(_) | Elements::F64(_) | Elements::I64(_) => None,
        }
    }
}

/// The elements of a tensor, in row-major order.
pub(super) fn elements(tensor: &Bound<'_, PyAny>, element: Element) -> PyResult<Elements> {
    let py = tensor.py();
    let dtype = match element {
        Element::F32 => DType::Float32,
        Element::F64 => DType::Float64,
        Element::I64 => DType::Int64,
        Element::Bool => DType::Bool,
    };
    let array = tensor
        .call_method0(intern!(py, "detach"))?
        .call_method0(intern!(py, "resolve_neg"))?
        // Integers of fewer bits are held as int64; the same tensor comes back otherwise.
        .call_method1(intern!(py, "to"), (TorchValues::get(py)?.dtype(dtype),))?
        .call_method0(intern!(py, "contiguous"))?;
    let start: usize = array.call_method0(intern!(py, "data_ptr"))?.extract()?;
    let array = match start.is_multiple_of(element.size_bytes()) {
        true => array,
        // A view of bytes may be unaligned, which a buffer does not support.
        false => array.call_method0(intern!(py, "clone"))?,
    };
    let array = array
        // A scalar has a buffer without a shape.
        .call_method1(intern!(py, "view"), (-1,))?
        .call_method0(intern!(py, "numpy"))?;
    Ok(match element {
        Element::F32 => Elements::F32(PyBuffer::<f32>::get(&array)?.to_vec(py)?),
        Element::F64 => Elements::F64(PyBuffer::<f64>::get(&array)?.to_vec(py)?),
        Element::I64 => Elements::I64(PyBuffer::<i64>::get(&array)?.to_vec(py)?),
        Element::Bool => {
            let bytes = array.call_method1(intern!(py, "view"), (intern!(py, "uint8"),))?;
            Elements::bools(PyBuffer::<u8>::get(&bytes)?.to_vec(py)?)
        }
    })
}

/// The bytes of a tensor of int8 or uint8, in row-major order.
fn bytes(tensor: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let py = tensor.py();
    let array = tensor
        .call_method0(intern!(py, "detach"))?
        .call_method0(intern!(py, "contiguous"))?
        .call_method1(intern!(py, "view"), (-1,))?
        .call_method1(
            intern!(py, "view"),
            (TorchValues::get(py)?.dtype(DType::UInt8),),
        )?
        .call_method0(intern!(py, "numpy"))?;
    PyBuffer::<u8>::get(&array)?.to_vec(py)
}
