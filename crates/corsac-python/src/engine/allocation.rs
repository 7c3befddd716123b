//! New tensors, made by PyTorch's C and C++ functions without the other costs of a call from
//! Python.
//!
//! `torch.empty_like` takes 0.7 µs, half of it to read arguments, to release the interpreter and to
//! find the operator. `aoti_torch_empty_strided` belongs to the stable interface that compiled
//! programs of PyTorch use, and makes a tensor as the operator does; `THPVariable_Wrap` passes it
//! to Python. [`Allocator::get`] compares tensors made in this way with those of `torch.empty`; if
//! they differ, or a function is missing, there is no allocator.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;

use corsac_engine::DType;
use corsac_ops::shape::element_bytes;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use super::probe::{in_new_thread, within};
use super::torch_library::Library;

/// `AtenTensorHandle`: an `at::Tensor` of the heap.
type Handle = *mut c_void;
/// `aoti_torch_empty_strided`: returns 0, or 1 after logging the reason.
type EmptyStrided =
    unsafe extern "C" fn(i64, *const i64, *const i64, i32, i32, i32, *mut Handle) -> i32;
/// `aoti_torch_delete_tensor_object`
type Delete = unsafe extern "C" fn(Handle) -> i32;
/// `THPVariable_Wrap(at::TensorBase&&)`: moves the tensor out of its argument.
type Wrap = unsafe extern "C-unwind" fn(Handle) -> *mut PyObject;
/// `aoti_torch_dtype_float32` and the like
type Number = unsafe extern "C" fn() -> i32;

/// Most bytes of a tensor made in this way. Larger ones may exceed memory, for which `torch.empty`
/// raises an exception.
const MOST_BYTES: i64 = 64 << 20;

/// The functions that make tensors.
pub(super) struct Allocator {
    empty_strided: EmptyStrided,
    delete: Delete,
    wrap: Wrap,
    /// The numbers of the types of results.
    dtypes: [(DType, i32); 6],
    cpu: i32,
}

/// Sizes and strides of a contiguous tensor, and the type of its elements.
pub(super) struct Form {
    sizes: Vec<i64>,
    strides: Vec<i64>,
    dtype: DType,
    is_small: bool,
}

impl Form {
    pub(super) fn new(dtype: DType, shape: &[usize]) -> Self {
        let mut strides = vec![1; shape.len()];
        for at in (1..shape.len()).rev() {
            strides[at - 1] = strides[at] * shape[at].max(1) as i64;
        }
        let len = shape.iter().fold(element_bytes(dtype), |len, &size| {
            len.saturating_mul(size.max(1) as i64)
        });
        Self {
            sizes: shape.iter().map(|&size| size as i64).collect(),
            strides,
            dtype,
            is_small: len <= MOST_BYTES,
        }
    }
}

impl Allocator {
    /// The allocator of the installed PyTorch, if it makes tensors as `torch.empty` does.
    pub(super) fn get(py: Python<'_>) -> Option<&Self> {
        static ALLOCATOR: PyOnceLock<Option<Allocator>> = PyOnceLock::new();
        let probed = |py: Python<'_>| {
            let own = Self::load(py).ok()?;
            own.is_right(py).unwrap_or(false).then_some(own)
        };
        let own = ALLOCATOR.get_or_init(py, || in_new_thread(py, probed).flatten());
        own.as_ref()
    }

    fn load(py: Python<'_>) -> PyResult<Self> {
        let cpu = Library::loaded(py, "libtorch_cpu.so")?;
        let python = Library::loaded(py, "libtorch_python.so")?;
        let number = |name: &str| -> PyResult<i32> {
            let function = cpu.function(name)?;
            // SAFETY: it is the function of this name, which PyTorch declares so, in a library that
            // stays loaded.
            Ok(unsafe { std::mem::transmute::<*const c_void, Number>(function)() })
        };
        let empty_strided = cpu.function("aoti_torch_empty_strided")?;
        let delete = cpu.function("aoti_torch_delete_tensor_object")?;
        let wrap = python.function("_Z16THPVariable_WrapON2at10TensorBaseE")?;
        // SAFETY: they are the functions of these names, which PyTorch declares so, in libraries
        // that stay loaded.
        let (empty_strided, delete, wrap) = unsafe {
            (
                std::mem::transmute::<*const c_void, EmptyStrided>(empty_strided),
                std::mem::transmute::<*const c_void, Delete>(delete),
                std::mem::transmute::<*const c_void, Wrap>(wrap),
            )
        };
        Ok(Self {
            empty_strided,
            delete,
            wrap,
            dtypes: [
                (DType::Float32, number("aoti_torch_dtype_float32")?),
                (DType::Float64, number("aoti_torch_dtype_float64")?),
                (DType::Int64, number("aoti_torch_dtype_int64")?),
                (DType::Bool, number("aoti_torch_dtype_bool")?),
                (DType::BFloat16, number("aoti_torch_dtype_bfloat16")?),
                (DType::Float16, number("aoti_torch_dtype_float16")?),
            ],
            cpu: number("aoti_torch_device_type_cpu")?,
        })
    }

    /// A new tensor with unset elements; None where PyTorch has to make it, or to raise an
    /// exception.
    pub(super) fn empty<'py>(&self, py: Python<'py>, form: &Form) -> Option<Bound<'py, PyAny>> {
        if !form.is_small {
            return None;
        }
        let mut dtypes = self.dtypes.iter();
        let &(_, dtype) = dtypes.find(|(dtype, _)| *dtype == form.dtype)?;
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: there are as many sizes and strides as it receives; it sets `handle` if it returns
        // 0. The thread is attached to the interpreter, and `wrap` moves the tensor, of which there
        // is no other name, and returns a new reference or null with an exception. What is left of
        // the handle is deleted once.
        unsafe {
            let rank = form.sizes.len() as i64;
            let (sizes, strides) = (form.sizes.as_ptr(), form.strides.as_ptr());
            let failed =
                (self.empty_strided)(rank, sizes, strides, dtype, self.cpu, 0, &raw mut handle);
            if failed != 0 || handle.is_null() {
                return None;
            }
            let tensor = (self.wrap)(handle);
            (self.delete)(handle);
            let tensor = Bound::from_owned_ptr_or_opt(py, tensor);
            if tensor.is_none() {
                drop(PyErr::take(py));
            }
            tensor
        }
    }

    /// Whether tensors equal those of `torch.empty`, in inference mode and without.
    fn is_right(&self, py: Python<'_>) -> PyResult<bool> {
        let torch = py.import("torch")?;
        let count = py.import("sys")?.getattr("getrefcount")?;
        let mut is_so = true;
        for inference in [false, true] {
            let mode = torch.call_method1("inference_mode", (inference,))?;
            within(&mode, || {
                for (dtype, _) in self.dtypes {
                    for shape in [&[2, 3][..], &[4, 0, 5], &[]] {
                        let Some(own) = self.empty(py, &Form::new(dtype, shape)) else {
                            is_so = false;
                            continue;
                        };
                        let options = PyDict::new(py);
                        options.set_item("dtype", torch.getattr(dtype.name())?)?;
                        options.set_item("device", "cpu")?;
                        let sizes = PyTuple::new(py, shape)?;
                        let other = torch.call_method("empty", (sizes,), Some(&options))?;
                        is_so &= own.get_type().is(other.get_type())
                            && count.call1((&own,))?.eq(count.call1((&other,))?)?;
                        for name in ["dtype", "device", "layout", "shape", "requires_grad"] {
                            is_so &= own.getattr(name)?.eq(other.getattr(name)?)?;
                        }
                        for name in ["stride", "is_inference", "storage_offset", "is_contiguous"] {
                            is_so &= own.call_method0(name)?.eq(other.call_method0(name)?)?;
                        }
                        let [own, other] =
                            [own, other].map(|own| own.call_method0("untyped_storage"));
                        let (own, other) = (own?, other?);
                        for name in ["nbytes", "resizable"] {
                            is_so &= own.call_method0(name)?.eq(other.call_method0(name)?)?;
                        }
                    }
                }
                Ok(())
            })?;
        }
        Ok(is_so)
    }
}

/// Whether results of programs are made in this way, for tests.
#[pyfunction]
pub(super) fn makes_tensors_directly(py: Python<'_>) -> bool {
    Allocator::get(py).is_some()
}
