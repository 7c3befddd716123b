//! Conversion of values between Python and the shape rules.

use corsac_ir::{DType, Device, DeviceKind, MemoryFormat};
use corsac_ops::shape::{Dim, Kind, Shape, Storage, Strides, Tensor, TensorType, Value};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyComplex, PyComplexMethods, PyDict, PyEllipsis, PyFloat, PyInt, PyList, PySlice,
    PyString, PyTuple, PyType,
};

use super::dim::{PyDim, read_dim, write_dim};
use crate::runtime::{TorchValue, TorchValues};

/// Deepest nesting of containers that is read.
const DEPTH: u16 = 32;

/// Converts Python values into values of the rules.
pub(crate) struct TypeReader<'py> {
    torch: &'py TorchValues,
    tensor: &'py Bound<'py, PyType>,
    spec: &'py Bound<'py, PyType>,
}

fn class<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyType>>,
    module: &str,
    name: &str,
) -> PyResult<&'py Bound<'py, PyType>> {
    cell.import(py, module, name)
}

impl<'py> TypeReader<'py> {
    pub(crate) fn new(py: Python<'py>) -> PyResult<Self> {
        static TENSOR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        static SPEC: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        Ok(Self {
            torch: TorchValues::get(py)?,
            tensor: class(py, &TENSOR, "torch", "Tensor")?,
            spec: class(py, &SPEC, "corsac.analysis._spec", "TensorSpec")?,
        })
    }

    pub(crate) fn is_tensor(&self, value: &Bound<'py, PyAny>) -> PyResult<bool> {
        value.is_instance(self.tensor)
    }

    /// Converts `value`; to [`Value::Object`] where the rules have no other kind of value for it.
    pub(crate) fn value(&self, value: &Bound<'py, PyAny>) -> PyResult<Value> {
        self.at_depth(value, 0)
    }

    /// Converts each of `values`.
    pub(crate) fn values(&self, values: &Bound<'py, PyTuple>) -> PyResult<Vec<Value>> {
        values.iter().map(|value| self.value(&value)).collect()
    }

    fn at_depth(&self, value: &Bound<'py, PyAny>, depth: u16) -> PyResult<Value> {
        if depth > DEPTH {
            return Ok(Value::Object);
        }
        if value.is_none() {
            return Ok(Value::None);
        }
        if let Ok(flag) = value.cast_exact::<PyBool>() {
            return Ok(Value::Bool(flag.is_true()));
        }
        if let Ok(int) = value.cast_exact::<PyInt>() {
            return Ok(int
                .extract::<i64>()
                .map_or(Value::Number(Kind::Int), Value::int));
        }
        if let Ok(float) = value.cast_exact::<PyFloat>() {
            return Ok(Value::Float(float.value()));
        }
        if let Ok(text) = value.cast_exact::<PyString>() {
            return Ok(text
                .to_str()
                .map_or(Value::Object, |text| Value::Str(text.into())));
        }
        if let Ok(dim) = value.cast::<PyDim>() {
            return Ok(Value::Int(dim.get().0.clone()));
        }
        if self.is_tensor(value)? {
            return self.tensor(value);
        }
        if let Ok(tuple) = value.cast::<PyTuple>() {
            let items = tuple.iter().map(|item| self.at_depth(&item, depth + 1));
            return Ok(Value::Tuple(items.collect::<PyResult<_>>()?));
        }
        if let Ok(list) = value.cast::<PyList>() {
            let items = list.iter().map(|item| self.at_depth(&item, depth + 1));
            return Ok(Value::List(items.collect::<PyResult<_>>()?));
        }
        if let Ok(dict) = value.cast::<PyDict>() {
            let entries = dict.items().iter().map(|entry| {
                let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = entry.extract()?;
                Ok((
                    self.at_depth(&key, depth + 1)?,
                    self.at_depth(&value, depth + 1)?,
                ))
            });
            let entries: PyResult<Vec<_>> = entries.collect();
            return Ok(Value::Dict(entries?.into()));
        }
        if let Ok(slice) = value.cast_exact::<PySlice>() {
            let py = value.py();
            let names = [
                intern!(py, "start"),
                intern!(py, "stop"),
                intern!(py, "step"),
            ];
            let [start, stop, step] = names.map(|name| {
                let part = slice.getattr(name)?;
                self.at_depth(&part, depth + 1)
            });
            return Ok(Value::Slice([start?, stop?, step?].into()));
        }
        if value.is_exact_instance_of::<PyEllipsis>() {
            return Ok(Value::Ellipsis);
        }
        if let Ok(complex) = value.cast_exact::<PyComplex>() {
            return Ok(Value::Complex(complex.real(), complex.imag()));
        }
        match self.torch.of(value) {
            Some(TorchValue::DType(dtype)) => return Ok(Value::DType(dtype)),
            Some(TorchValue::Layout(layout)) => return Ok(Value::Layout(layout)),
            Some(TorchValue::MemoryFormat(format)) => return Ok(Value::MemoryFormat(format)),
            None => {}
        }
        if value.get_type().is(self.torch.device_class()) {
            return Ok(device(value)?.map_or(Value::Object, Value::Device));
        }
        if value.is_instance(self.spec)? {
            return self.spec(value);
        }
        Ok(Value::Object)
    }

    /// Type of a tensor, in a storage of its own.
    pub(crate) fn tensor(&self, value: &Bound<'py, PyAny>) -> PyResult<Value> {
        let py = value.py();
        let layout = value.getattr(intern!(py, "layout"))?;
        if !matches!(
            self.torch.of(&layout),
            Some(TorchValue::Layout(corsac_ir::Layout::Strided))
        ) {
            return Ok(Value::unknown("a tensor that is not strided"));
        }
        let dtype = value.getattr(intern!(py, "dtype"))?;
        let Some(TorchValue::DType(dtype)) = self.torch.of(&dtype) else {
            return Ok(Value::unknown("a tensor of an element type not known here"));
        };
        if quantised(dtype) {
            return Ok(Value::unknown("a quantised tensor"));
        }
        let Some(device) = device(&value.getattr(intern!(py, "device"))?)? else {
            return Ok(Value::unknown("a tensor on a device not known here"));
        };
        let numbers = |numbers: Bound<'py, PyAny>| -> PyResult<Option<Shape>> {
            let mut dims = Shape::new();
            for number in numbers.try_iter()? {
                let Ok(number) = number?.extract::<i64>() else {
                    return Ok(None);
                };
                dims.push(Dim::Known(number));
            }
            Ok(Some(dims))
        };
        let shape = numbers(value.getattr(intern!(py, "shape"))?)?;
        let strides = numbers(value.call_method0(intern!(py, "stride"))?)?;
        let (Some(shape), Some(strides)) = (shape, strides) else {
            return Ok(Value::unknown("a tensor whose sizes are no numbers"));
        };
        let requires_grad = value.getattr(intern!(py, "requires_grad"))?.is_truthy()?;
        let strides = Strides::of(&shape, strides);
        Ok(Value::tensor(TensorType {
            dtype,
            shape,
            strides,
            device,
            requires_grad,
        }))
    }

    /// Type that a `corsac.analysis.TensorSpec` describes.
    fn spec(&self, value: &Bound<'py, PyAny>) -> PyResult<Value> {
        let py = value.py();
        let dims = |given: Bound<'py, PyAny>| -> PyResult<Shape> {
            given.try_iter()?.map(|size| read_dim(&size?)).collect()
        };
        let shape = dims(value.getattr(intern!(py, "shape"))?)?;
        let dtype = value.getattr(intern!(py, "dtype"))?;
        let Some(TorchValue::DType(dtype)) = self.torch.of(&dtype) else {
            return Ok(Value::unknown("an element type not known here"));
        };
        let strides = match value.getattr(intern!(py, "memory_format"))? {
            none if none.is_none() => Strides::Contiguous,
            format => match self.torch.of(&format) {
                Some(TorchValue::MemoryFormat(format)) => Strides::in_format(&shape, format),
                _ => Strides::Contiguous,
            },
        };
        let kind = value.getattr(intern!(py, "device"))?;
        let device = kind.cast::<PyString>()?.to_str()?.parse::<Device>();
        Ok(Value::tensor(TensorType {
            strides,
            device: device.unwrap_or(corsac_ops::shape::CPU),
            requires_grad: value.getattr(intern!(py, "requires_grad"))?.is_truthy()?,
            ..TensorType::new(dtype, shape)
        }))
    }
}

fn quantised(dtype: DType) -> bool {
    corsac_ops::shape::kind(dtype).is_none()
}

fn device(value: &Bound<'_, PyAny>) -> PyResult<Option<Device>> {
    let py = value.py();
    let kind = value.getattr(intern!(py, "type"))?;
    let Ok(kind) = kind.cast::<PyString>()?.to_str()?.parse::<DeviceKind>() else {
        return Ok(None);
    };
    let index = value.getattr(intern!(py, "index"))?;
    Ok(index
        .extract::<Option<u16>>()
        .ok()
        .map(|index| Device { kind, index }))
}

/// Converts values of the rules into Python values.
pub(crate) struct TypeWriter<'py> {
    py: Python<'py>,
    torch: &'py TorchValues,
    size: Bound<'py, PyAny>,
    metadata: Bound<'py, PyAny>,
}

impl<'py> TypeWriter<'py> {
    pub(crate) fn new(py: Python<'py>) -> PyResult<Self> {
        Ok(Self {
            py,
            torch: TorchValues::get(py)?,
            size: py
                .import(intern!(py, "torch"))?
                .getattr(intern!(py, "Size"))?,
            metadata: py
                .import(intern!(py, "torch.fx.passes.shape_prop"))?
                .getattr(intern!(py, "TensorMetadata"))?,
        })
    }

    fn dims(&self, dims: &[Dim]) -> PyResult<Bound<'py, PyTuple>> {
        let items = dims.iter().map(|dim| write_dim(self.py, dim));
        PyTuple::new(self.py, items.collect::<PyResult<Vec<_>>>()?)
    }

    /// Converts a shape: to `torch.Size`, or to a tuple where sizes depend on symbols.
    pub(crate) fn shape(&self, shape: &[Dim]) -> PyResult<Bound<'py, PyAny>> {
        let dims = self.dims(shape)?;
        if shape.iter().all(|dim| dim.known().is_some()) {
            self.size.call1((dims,))
        } else {
            Ok(dims.into_any())
        }
    }

    /// Metadata of a tensor, as `ShapeProp` records it. Strides that are unknown are None.
    pub(crate) fn tensor(&self, ty: &TensorType) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let none = || py.None().into_bound(py);
        let dtype = self
            .torch
            .dtype(ty.dtype)
            .map_or_else(none, |d| d.bind(py).clone());
        let stride = match ty.stride_list() {
            Some(strides) => self.dims(&strides)?.into_any(),
            None => none(),
        };
        let format: Option<MemoryFormat> = ty.memory_format();
        let format = format.and_then(|format| self.torch.memory_format(format));
        let format = format.map_or_else(none, |format| format.bind(py).clone());
        self.metadata.call1((
            self.shape(&ty.shape)?,
            dtype,
            ty.requires_grad,
            stride,
            format,
            false,
            PyDict::new(py),
        ))
    }

    /// Converts a value, with tensors as their metadata.
    pub(crate) fn value(&self, value: &Value) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let all = |items: &[Value]| -> PyResult<Vec<Bound<'py, PyAny>>> {
            items.iter().map(|item| self.value(item)).collect()
        };
        Ok(match value {
            Value::Tensor(tensor) => self.tensor(tensor)?,
            Value::Tuple(items) => PyTuple::new(py, all(items)?)?.into_any(),
            Value::List(items) => PyList::new(py, all(items)?)?.into_any(),
            Value::Named(items) => {
                let items = items.iter().map(|(_, item)| self.value(item));
                PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any()
            }
            Value::Dict(entries) => {
                let dict = PyDict::new(py);
                for (key, value) in entries.iter() {
                    dict.set_item(self.value(key)?, self.value(value)?)?;
                }
                dict.into_any()
            }
            Value::Int(dim) => write_dim(py, dim)?,
            Value::Bool(flag) => PyBool::new(py, *flag).to_owned().into_any(),
            Value::Float(value) => PyFloat::new(py, *value).into_any(),
            Value::Complex(re, im) => PyComplex::from_doubles(py, *re, *im).into_any(),
            Value::Str(text) => PyString::new(py, text).into_any(),
            Value::DType(dtype) => match self.torch.dtype(*dtype) {
                Some(dtype) => dtype.bind(py).clone(),
                None => py.None().into_bound(py),
            },
            Value::Device(device) => self
                .torch
                .device_class()
                .bind(py)
                .call1((device.to_string(),))?,
            Value::Layout(layout) => match self.torch.layout(*layout) {
                Some(layout) => layout.bind(py).clone(),
                None => py.None().into_bound(py),
            },
            Value::MemoryFormat(format) => match self.torch.memory_format(*format) {
                Some(format) => format.bind(py).clone(),
                None => py.None().into_bound(py),
            },
            Value::Ellipsis => py.Ellipsis().into_bound(py),
            Value::Slice(parts) => {
                let parts = (
                    self.value(&parts[0])?,
                    self.value(&parts[1])?,
                    self.value(&parts[2])?,
                );
                py.import(intern!(py, "builtins"))?
                    .getattr(intern!(py, "slice"))?
                    .call1(parts)?
            }
            Value::None
            | Value::Unknown(_)
            | Value::Number(_)
            | Value::Graph(_)
            | Value::Object => py.None().into_bound(py),
        })
    }

    /// Python class of a value of this type.
    pub(crate) fn class(&self, value: &Value) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let builtin = |name: &str| py.import(intern!(py, "builtins"))?.getattr(name);
        match value {
            Value::Tensor(_) => py
                .import(intern!(py, "torch"))?
                .getattr(intern!(py, "Tensor")),
            Value::Tuple(_) | Value::Named(_) => builtin("tuple"),
            Value::List(_) => builtin("list"),
            Value::Dict(_) => builtin("dict"),
            Value::Int(_) | Value::Number(Kind::Int) => builtin("int"),
            Value::Bool(_) | Value::Number(Kind::Bool) => builtin("bool"),
            Value::Float(_) | Value::Number(Kind::Float) => builtin("float"),
            Value::Str(_) => builtin("str"),
            Value::None => Ok(py.None().bind(py).get_type().into_any()),
            _ => builtin("object"),
        }
    }
}

/// `value` with all its tensors in `storage`.
pub(crate) fn in_storage(value: Value, storage: Storage) -> Value {
    value.map_tensors(&mut |tensor: Tensor| Tensor { storage, ..tensor })
}
