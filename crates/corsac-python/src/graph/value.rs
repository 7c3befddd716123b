//! Conversion of Python values to arguments, and of arguments to Python values.

use corsac_ir::{
    Arg, Device, DeviceKind, Dict, ExternalId, Graph, MAX_DEPTH, NodeId, Seq, Symbol, ThinVec,
};
use num_bigint::BigInt;
use pyo3::exceptions::{PyRecursionError, PyRuntimeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyComplexMethods, PyDict, PyEllipsis, PyFloat, PyInt, PyList,
    PyRange, PySlice, PyString, PyTuple,
};

use crate::error::graph_error;
use crate::graph::PyGraph;
use crate::graph::host::Host;
use crate::graph::node::PyNode;
use crate::runtime::{TorchValue, TorchValues, immutable_dict, immutable_list};

/// Converts Python values to arguments of one graph.
///
/// Only the contents of a value are read, by exact type where it matters, so that no code of the
/// value's class runs while the graph is borrowed. A value of any other type becomes an opaque
/// argument that stands for that very object.
pub(crate) struct Reader<'a, 'py> {
    pub(crate) ir: &'a mut Graph,
    pub(crate) host: &'a mut Host,
    /// The graph itself, to recognise its nodes.
    pub(crate) owner: &'a Bound<'py, PyGraph>,
    pub(crate) torch: &'py TorchValues,
}

impl<'py> Reader<'_, 'py> {
    /// The positional arguments of a node.
    pub(crate) fn args(&mut self, args: &Bound<'py, PyTuple>) -> PyResult<ThinVec<Arg>> {
        let mut read = ThinVec::with_capacity(args.len());
        for arg in args.iter_borrowed() {
            read.push(self.arg(&arg, 0)?);
        }
        Ok(read)
    }

    /// The keyword arguments of a node.
    pub(crate) fn kwargs(
        &mut self,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<ThinVec<(Symbol, Arg)>> {
        let mut read = ThinVec::with_capacity(kwargs.len());
        for (key, value) in items_of(kwargs)? {
            let key = key
                .cast::<PyString>()
                .map_err(|_| PyTypeError::new_err("the keys of kwargs must be str"))?;
            let key = self.ir.intern(key.to_str()?);
            read.push((key, self.arg(&value, 0)?));
        }
        Ok(read)
    }

    /// One argument. `depth` is the number of containers that it is in.
    pub(crate) fn arg(&mut self, value: &Bound<'py, PyAny>, depth: u16) -> PyResult<Arg> {
        if let Ok(node) = value.cast::<PyNode>() {
            return self.node(node).map(Arg::Node);
        }
        if depth > MAX_DEPTH {
            return Err(PyRecursionError::new_err(format!(
                "an argument nests containers more than {MAX_DEPTH} deep"
            )));
        }
        if let Ok(int) = value.cast_exact::<PyInt>() {
            return Ok(match int.extract::<i64>() {
                Ok(small) => Arg::Int(small),
                Err(_) => Arg::BigInt(Box::new(int.extract::<BigInt>()?)),
            });
        }
        if value.is_none() {
            return Ok(Arg::None);
        }
        if let Ok(float) = value.cast_exact::<PyFloat>() {
            return Ok(Arg::Float(float.value()));
        }
        if let Ok(bool) = value.cast_exact::<PyBool>() {
            return Ok(Arg::Bool(bool.is_true()));
        }
        if let Ok(string) = value.cast_exact::<PyString>() {
            // A string with surrogates has no UTF-8 form and stays with the host.
            if let Ok(text) = string.to_str() {
                return Ok(Arg::Str(self.ir.intern(text)));
            }
            return Ok(self.opaque(value));
        }
        if let Ok(tuple) = value.cast::<PyTuple>() {
            return self.tuple(tuple, depth);
        }
        if let Ok(list) = value.cast::<PyList>() {
            return Ok(Arg::List(self.items(list.iter(), depth)?));
        }
        if let Ok(dict) = value.cast::<PyDict>() {
            let mut entries = ThinVec::with_capacity(dict.len());
            for (key, value) in items_of(dict)? {
                entries.push((self.arg(&key, depth + 1)?, self.arg(&value, depth + 1)?));
            }
            return Dict::new(entries).map(Arg::Dict).map_err(graph_error);
        }
        if let Ok(slice) = value.cast_exact::<PySlice>() {
            let py = value.py();
            let parts = [
                intern!(py, "start"),
                intern!(py, "stop"),
                intern!(py, "step"),
            ];
            let parts = parts.map(|part| slice.getattr(part));
            let items = parts.into_iter().collect::<PyResult<Vec<_>>>()?;
            return Ok(Arg::Slice(self.items(items.into_iter(), depth)?));
        }
        if let Ok(range) = value.cast_exact::<PyRange>() {
            let py = value.py();
            let parts = [
                intern!(py, "start"),
                intern!(py, "stop"),
                intern!(py, "step"),
            ];
            let parts = parts.map(|part| range.getattr(part));
            let items = parts.into_iter().collect::<PyResult<Vec<_>>>()?;
            return Ok(Arg::Range(self.items(items.into_iter(), depth)?));
        }
        if let Ok(complex) = value.cast_exact::<PyComplex>() {
            return Ok(Arg::Complex(Box::new((complex.real(), complex.imag()))));
        }
        if value.is_exact_instance_of::<PyEllipsis>() {
            return Ok(Arg::Ellipsis);
        }
        if let Ok(bytes) = value.cast_exact::<PyBytes>() {
            return Ok(Arg::Bytes(Box::new(bytes.as_bytes().to_vec())));
        }
        match self.torch.of(value) {
            Some(TorchValue::DType(dtype)) => return Ok(Arg::DType(dtype)),
            Some(TorchValue::Layout(layout)) => return Ok(Arg::Layout(layout)),
            Some(TorchValue::MemoryFormat(format)) => return Ok(Arg::MemoryFormat(format)),
            None => {}
        }
        if value.get_type().is(self.torch.device_class())
            && let Some(device) = read_device(value)?
        {
            return Ok(Arg::Device(device));
        }
        if is_node_of_torch(value)? {
            let name = value.str()?;
            return Err(PyTypeError::new_err(format!(
                "argument {} is a torch.fx.Node, which is no value in a graph of corsac.fx: convert \
                 its graph with corsac.fx.from_torch",
                name.to_string_lossy()
            )));
        }
        Ok(self.opaque(value))
    }

    fn node(&self, node: &Bound<'py, PyNode>) -> PyResult<NodeId> {
        let node = node.get();
        if !node.graph_is(self.owner) {
            return Err(PyRuntimeError::new_err(format!(
                "Argument '{}' does not belong to this Graph, but was used as an argument! If you are \
                 copying nodes from another graph, make sure to use ``arg_transform`` on node_copy() \
                 to remap values",
                node.name_or_id(self.owner.py())
            )));
        }
        if node.id().is_root() {
            return Err(PyRuntimeError::new_err("the root of a graph is no value"));
        }
        Ok(node.id())
    }

    fn items(
        &mut self,
        items: impl Iterator<Item = Bound<'py, PyAny>>,
        depth: u16,
    ) -> PyResult<Seq> {
        let items = items
            .map(|item| self.arg(&item, depth + 1))
            .collect::<PyResult<ThinVec<_>>>()?;
        Seq::new(items).map_err(graph_error)
    }

    fn tuple(&mut self, tuple: &Bound<'py, PyTuple>, depth: u16) -> PyResult<Arg> {
        let items = self.items(tuple.iter(), depth)?;
        if tuple.is_exact_instance_of::<PyTuple>() {
            return Ok(Arg::Tuple(items));
        }
        let class = tuple.get_type();
        if class.hasattr(intern!(tuple.py(), "_fields"))? {
            let class = self.host.external(self.ir, class.as_any());
            return Ok(Arg::NamedTuple(Box::new((class, items))));
        }
        // torch.Size and the like: a plain tuple from now on, as in torch.fx.
        Ok(Arg::Tuple(items))
    }

    fn opaque(&mut self, value: &Bound<'py, PyAny>) -> Arg {
        Arg::Opaque(self.host.external(self.ir, value))
    }
}

/// Whether a value is a node of torch.fx: as a constant, it would have no users.
fn is_node_of_torch(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    static NODE: PyOnceLock<Py<pyo3::types::PyType>> = PyOnceLock::new();
    let class = NODE.import(value.py(), "torch.fx.node", "Node")?;
    Ok(value.get_type().is(class))
}

/// The entries of a dictionary as they are now. Reading one may run Python code in odd cases (a
/// metaclass, a finalizer), which may change the dictionary.
fn items_of<'py>(
    dict: &Bound<'py, PyDict>,
) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    dict.items().iter().map(|entry| entry.extract()).collect()
}

fn read_device(value: &Bound<'_, PyAny>) -> PyResult<Option<Device>> {
    let py = value.py();
    let kind = value.getattr(intern!(py, "type"))?;
    let index = value
        .getattr(intern!(py, "index"))?
        .extract::<Option<u16>>();
    let Ok(kind) = kind.cast::<PyString>()?.to_str()?.parse::<DeviceKind>() else {
        return Ok(None);
    };
    Ok(index.ok().map(|index| Device { kind, index }))
}

/// Converts arguments of a graph to Python values.
pub(crate) struct Writer<'a, 'py> {
    pub(crate) graph: &'a Bound<'py, PyGraph>,
    pub(crate) ir: &'a Graph,
    pub(crate) host: &'a Host,
    /// Whether lists and dictionaries are immutable, as those of nodes are.
    pub(crate) immutable: bool,
}

impl<'py> Writer<'_, 'py> {
    fn py(&self) -> Python<'py> {
        self.graph.py()
    }

    /// Positional arguments as a tuple.
    pub(crate) fn args(&self, args: &[Arg]) -> PyResult<Bound<'py, PyTuple>> {
        let items = args
            .iter()
            .map(|arg| self.arg(arg))
            .collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(self.py(), items)
    }

    /// Keyword arguments as an immutable dictionary.
    pub(crate) fn kwargs(&self, kwargs: &[(Symbol, Arg)]) -> PyResult<Bound<'py, PyAny>> {
        let dict = PyDict::new(self.py());
        for (key, arg) in kwargs {
            dict.set_item(
                PyString::intern(self.py(), self.ir.text(*key)),
                self.arg(arg)?,
            )?;
        }
        immutable_dict(self.py(), dict)
    }

    /// One argument.
    pub(crate) fn arg(&self, arg: &Arg) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py();
        Ok(match arg {
            Arg::None => py.None().into_bound(py),
            Arg::Ellipsis => py.Ellipsis().into_bound(py),
            Arg::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
            Arg::Int(value) => value.into_pyobject(py)?.into_any(),
            Arg::BigInt(value) => value.as_ref().into_pyobject(py)?.into_any(),
            Arg::Float(value) => PyFloat::new(py, *value).into_any(),
            Arg::Complex(parts) => PyComplex::from_doubles(py, parts.0, parts.1).into_any(),
            Arg::Str(symbol) => PyString::intern(py, self.ir.text(*symbol)).into_any(),
            Arg::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
            Arg::DType(dtype) => known(py, TorchValues::get(py)?.dtype(*dtype), dtype)?,
            Arg::Layout(layout) => known(py, TorchValues::get(py)?.layout(*layout), layout)?,
            Arg::MemoryFormat(format) => {
                known(py, TorchValues::get(py)?.memory_format(*format), format)?
            }
            Arg::Device(device) => TorchValues::get(py)?
                .device_class()
                .bind(py)
                .call1((device.to_string(),))?,
            Arg::Node(id) => PyNode::handle(self.graph, self.host, *id)?
                .into_bound(py)
                .into_any(),
            Arg::Tuple(items) => self.args(items)?.into_any(),
            Arg::List(items) => {
                let items = items
                    .iter()
                    .map(|a| self.arg(a))
                    .collect::<PyResult<Vec<_>>>()?;
                let list = PyList::new(py, items)?;
                if self.immutable {
                    immutable_list(py, list)?
                } else {
                    list.into_any()
                }
            }
            Arg::Dict(entries) => {
                let dict = PyDict::new(py);
                for (key, value) in entries.iter() {
                    dict.set_item(self.arg(key)?, self.arg(value)?)?;
                }
                if self.immutable {
                    immutable_dict(py, dict)?
                } else {
                    dict.into_any()
                }
            }
            Arg::Slice(items) => self.call_builtin("slice", items)?,
            Arg::Range(items) => self.call_builtin("range", items)?,
            Arg::NamedTuple(named) => {
                let class = self.object(named.0);
                class.call1(self.args(&named.1)?)?
            }
            Arg::Opaque(id) => self.object(*id),
        })
    }

    fn object(&self, id: ExternalId) -> Bound<'py, PyAny> {
        self.host.external_object(self.py(), id)
    }

    fn call_builtin(&self, name: &str, items: &[Arg]) -> PyResult<Bound<'py, PyAny>> {
        let builtins = self.py().import(intern!(self.py(), "builtins"))?;
        builtins.getattr(name)?.call1(self.args(items)?)
    }
}

fn known<'py>(
    py: Python<'py>,
    object: Option<&Py<PyAny>>,
    name: &dyn std::fmt::Display,
) -> PyResult<Bound<'py, PyAny>> {
    object
        .map(|object| object.bind(py).clone())
        .ok_or_else(|| PyTypeError::new_err(format!("the installed torch has no {name}")))
}
