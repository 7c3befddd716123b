//! New tensors, whose elements a program makes.

#![expect(unsafe_code, reason = "memory that PyTorch owns")]

use std::ffi::c_void;

use corsac_engine::{DType, DataMut, Elements, Half};
use corsac_ops::shape::element_bytes;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::allocation::Form;
use crate::runtime::TorchValues;

/// Template of results: sizes, and, where PyTorch makes them, a tensor without memory.
/// `torch.empty_like` takes half of the time that `torch.empty` takes, which reads sizes, type and
/// device each time.
pub(crate) struct Template {
    pub(super) form: Form,
    pub(super) like: PyOnceLock<Py<PyAny>>,
}

impl Template {
    pub(crate) fn new(dtype: DType, shape: &[usize]) -> Self {
        Self {
            form: Form::new(dtype, shape),
            like: PyOnceLock::new(),
        }
    }
}

/// A new tensor that nobody else has yet.
pub(crate) struct Fresh<'py> {
    tensor: Bound<'py, PyAny>,
    data: *mut c_void,
    len: usize,
    dtype: DType,
}

impl<'py> Fresh<'py> {
    /// A tensor with unset elements.
    ///
    /// # Safety
    /// `data` must be the first of `len` elements of this type, aligned, of `tensor`, which nobody else may have.
    pub(super) unsafe fn new(
        tensor: Bound<'py, PyAny>,
        data: *mut c_void,
        len: usize,
        dtype: DType,
    ) -> Self {
        Self {
            tensor,
            data,
            len,
            dtype,
        }
    }

    /// Its elements, of a type that programs compute with.
    pub(crate) fn data_mut(&mut self) -> DataMut<'_> {
        let (data, len) = match self.len {
            0 => (std::ptr::dangling_mut::<i64>().cast(), 0),
            len => (self.data, len),
        };
        // SAFETY: by [`Self::new`] there are `len` elements of this type here, aligned, in a
        // tensor that nobody else has. PyTorch does not set them; any bits are a number, and truth
        // values are written before they are read.
        unsafe {
            match self.dtype {
                DType::Int64 => DataMut::I64(std::slice::from_raw_parts_mut(data.cast(), len)),
                DType::Bool => DataMut::Bool(std::slice::from_raw_parts_mut(data.cast(), len)),
                DType::Float32 => DataMut::F32(std::slice::from_raw_parts_mut(data.cast(), len)),
                DType::Float64 => DataMut::F64(std::slice::from_raw_parts_mut(data.cast(), len)),
                _ => DataMut::default(),
            }
        }
    }

    /// Sets its elements, of a type that programs do not compute with, to `wide`: rounds them, or takes their low bits.
    pub(crate) fn set(&mut self, wide: &Elements) {
        match (wide, Half::of(self.dtype)) {
            (Elements::F32(wide), Some(half)) => half.round(wide, self.bits_mut()),
            (Elements::I64(wide), _) => match self.dtype {
                DType::Int32 => narrow(wide, self.bits_mut::<i32>(), |x| x as i32),
                DType::Int16 => narrow(wide, self.bits_mut::<i16>(), |x| x as i16),
                DType::Int8 => narrow(wide, self.bits_mut::<i8>(), |x| x as i8),
                DType::UInt8 => narrow(wide, self.bits_mut::<u8>(), |x| x as u8),
                _ => {}
            },
            _ => {}
        }
    }

    /// Its elements, of which any bits are one; none if they have another size.
    fn bits_mut<T: Bits>(&mut self) -> &mut [T] {
        if self.len == 0 || element_bytes(self.dtype) as usize != size_of::<T>() {
            return &mut [];
        }
        // SAFETY: by [`Self::new`] there are `len` elements of this size here, aligned, in a tensor
        // that nobody else has. Any bits are an integer.
        unsafe { std::slice::from_raw_parts_mut(self.data.cast(), self.len) }
    }

    /// Whether it has this element type.
    pub(crate) fn is(&self, dtype: DType) -> bool {
        self.dtype == dtype
    }

    /// The tensor, once its elements are set, converted to another element type.
    pub(crate) fn converted(self, dtype: DType) -> PyResult<Bound<'py, PyAny>> {
        let py = self.tensor.py();
        let dtype = TorchValues::get(py)?.dtype(dtype);
        self.tensor.call_method1(intern!(py, "to"), (dtype,))
    }

    /// The tensor, once its elements are set.
    pub(crate) fn into_tensor(self) -> Bound<'py, PyAny> {
        self.tensor
    }
}

/// Integers, of which any bits are one.
trait Bits: Copy {}
impl Bits for u16 {}
impl Bits for i32 {}
impl Bits for i16 {}
impl Bits for i8 {}
impl Bits for u8 {}

fn narrow<T>(wide: &[i64], to: &mut [T], narrowed: impl Fn(i64) -> T) {
    for (to, &x) in to.iter_mut().zip(wide) {
        *to = narrowed(x);
    }
}
