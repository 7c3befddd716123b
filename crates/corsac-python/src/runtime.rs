//! Python objects that the bindings use often, looked up once.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyType};
use rustc_hash::FxHashMap;

use corsac_ir::{DType, Layout, MemoryFormat, Op};

/// Members of PyTorch's closed sets, from object to value and back.
pub(crate) struct TorchValues {
    by_object: FxHashMap<usize, TorchValue>,
    dtypes: FxHashMap<DType, Py<PyAny>>,
    layouts: FxHashMap<Layout, Py<PyAny>>,
    memory_formats: FxHashMap<MemoryFormat, Py<PyAny>>,
    device_class: Py<PyType>,
}

/// A member of a closed set.
#[derive(Clone, Copy)]
pub(crate) enum TorchValue {
    DType(DType),
    Layout(Layout),
    MemoryFormat(MemoryFormat),
}

impl TorchValues {
    fn load(py: Python<'_>) -> PyResult<Self> {
        let torch = py.import(intern!(py, "torch"))?;
        let mut values = Self {
            by_object: FxHashMap::default(),
            dtypes: FxHashMap::default(),
            layouts: FxHashMap::default(),
            memory_formats: FxHashMap::default(),
            device_class: torch.getattr("device")?.cast_into::<PyType>()?.unbind(),
        };
        // Members that an older torch lacks are left out.
        for &dtype in DType::ALL {
            if let Ok(object) = torch.getattr(dtype.name()) {
                values
                    .by_object
                    .insert(object.as_ptr() as usize, TorchValue::DType(dtype));
                values.dtypes.insert(dtype, object.unbind());
            }
        }
        for &layout in Layout::ALL {
            if let Ok(object) = torch.getattr(layout.name()) {
                values
                    .by_object
                    .insert(object.as_ptr() as usize, TorchValue::Layout(layout));
                values.layouts.insert(layout, object.unbind());
            }
        }
        for &format in MemoryFormat::ALL {
            if let Ok(object) = torch.getattr(format.name()) {
                values
                    .by_object
                    .insert(object.as_ptr() as usize, TorchValue::MemoryFormat(format));
                values.memory_formats.insert(format, object.unbind());
            }
        }
        Ok(values)
    }

    /// The values of the installed torch.
    pub(crate) fn get(py: Python<'_>) -> PyResult<&Self> {
        static VALUES: PyOnceLock<TorchValues> = PyOnceLock::new();
        VALUES.get_or_try_init(py, || Self::load(py))
    }

    /// The value for `object`, if it is a member of a closed set.
    pub(crate) fn of(&self, object: &Bound<'_, PyAny>) -> Option<TorchValue> {
        self.by_object.get(&(object.as_ptr() as usize)).copied()
    }

    pub(crate) fn dtype(&self, dtype: DType) -> Option<&Py<PyAny>> {
        self.dtypes.get(&dtype)
    }

    pub(crate) fn layout(&self, layout: Layout) -> Option<&Py<PyAny>> {
        self.layouts.get(&layout)
    }

    pub(crate) fn memory_format(&self, format: MemoryFormat) -> Option<&Py<PyAny>> {
        self.memory_formats.get(&format)
    }

    pub(crate) fn device_class(&self) -> &Py<PyType> {
        &self.device_class
    }
}

/// The interned name of an opcode.
pub(crate) fn op_name(py: Python<'_>, op: Op) -> &Bound<'_, PyString> {
    match op {
        Op::Placeholder => intern!(py, "placeholder"),
        Op::GetAttr => intern!(py, "get_attr"),
        Op::CallFunction => intern!(py, "call_function"),
        Op::CallMethod => intern!(py, "call_method"),
        Op::CallModule => intern!(py, "call_module"),
        Op::Output => intern!(py, "output"),
    }
}

/// An immutable list: `corsac.fx.immutable_collections.immutable_list`.
pub(crate) fn immutable_list<'py>(
    py: Python<'py>,
    items: Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS
        .import(py, "corsac.fx.immutable_collections", "immutable_list")?
        .call1((items,))
}

/// An immutable dictionary: `corsac.fx.immutable_collections.immutable_dict`.
pub(crate) fn immutable_dict<'py>(
    py: Python<'py>,
    entries: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS
        .import(py, "corsac.fx.immutable_collections", "immutable_dict")?
        .call1((entries,))
}
