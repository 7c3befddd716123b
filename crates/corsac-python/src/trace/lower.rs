//! Conversion of Python values to arguments while tracing: `create_arg` without handles of nodes.

use corsac_ir::{Arg, Dict, MAX_DEPTH, NodeId, Seq, Symbol, ThinVec};
use pyo3::exceptions::PyRecursionError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PySlice, PyString, PyTuple};

use super::attribute::PyAttribute;
use super::modules;
use super::proxy::PyProxy;
use super::record::foreign_value;
use super::tracer::PyTracer;
use crate::error::graph_error;
use crate::graph::PyGraph;
use crate::graph::node::PyNode;
use crate::runtime::{TorchValue, TorchValues};

/// Converts values to arguments of the graph that `tracer` records into.
///
/// The graph is borrowed for an instant at a time only, since making an argument may make nodes.
pub(super) struct Lowering<'a, 'py> {
    pub(super) tracer: &'a Bound<'py, PyTracer>,
    pub(super) graph: &'a Bound<'py, PyGraph>,
    pub(super) torch: &'py TorchValues,
}

impl<'py> Lowering<'_, 'py> {
    pub(super) fn intern(&self, text: &Bound<'py, PyString>) -> PyResult<Symbol> {
        let text = text.to_str()?;
        Ok(self
            .graph
            .try_borrow_mut()?
            .parts_to_extend()
            .0
            .intern(text))
    }

    /// One argument. `depth` is the number of containers that it is in.
    pub(super) fn arg(&self, value: &Bound<'py, PyAny>, depth: u16) -> PyResult<Arg> {
        if let Some(node) = self.proxy(value)? {
            return Ok(Arg::Node(node));
        }
        if let Ok(int) = value.cast_exact::<PyInt>() {
            return match int.extract::<i64>() {
                Ok(small) => Ok(Arg::Int(small)),
                Err(_) => self.literal(value),
            };
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
        if let Ok(text) = value.cast_exact::<PyString>() {
            return match text.to_str() {
                Ok(text) => Ok(Arg::Str(
                    self.graph
                        .try_borrow_mut()?
                        .parts_to_extend()
                        .0
                        .intern(text),
                )),
                Err(_) => self.literal(value),
            };
        }
        if depth >= MAX_DEPTH {
            return Err(PyRecursionError::new_err(format!(
                "an argument nests containers more than {MAX_DEPTH} deep"
            )));
        }
        if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            return Ok(Arg::Tuple(self.items(tuple.iter(), depth)?));
        }
        if let Ok(list) = value.cast_exact::<PyList>() {
            return Ok(Arg::List(self.items(list.iter(), depth)?));
        }
        if let Ok(slice) = value.cast_exact::<PySlice>() {
            let py = value.py();
            let parts = [
                slice.getattr(intern!(py, "start"))?,
                slice.getattr(intern!(py, "stop"))?,
                slice.getattr(intern!(py, "step"))?,
            ];
            return Ok(Arg::Slice(self.items(parts.into_iter(), depth)?));
        }
        if let Ok(dict) = value.cast_exact::<PyDict>()
            && let Some(dict) = self.dict(dict, depth)?
        {
            return Ok(dict);
        }
        match self.torch.of(value) {
            Some(TorchValue::DType(dtype)) => return Ok(Arg::DType(dtype)),
            Some(TorchValue::Layout(layout)) => return Ok(Arg::Layout(layout)),
            Some(TorchValue::MemoryFormat(format)) => return Ok(Arg::MemoryFormat(format)),
            None => {}
        }
        // Everything else is converted by the method, which may make nodes.
        let made = self
            .tracer
            .call_method1(intern!(value.py(), "create_arg"), (value,))?;
        self.literal(&made)
    }

    /// The node of a proxy.
    fn proxy(&self, value: &Bound<'py, PyAny>) -> PyResult<Option<NodeId>> {
        if let Ok(proxy) = value.cast_exact::<PyProxy>() {
            return self.own(proxy).map(Some);
        }
        if let Ok(attribute) = value.cast_exact::<PyAttribute>() {
            return self.own(attribute.as_super()).map(Some);
        }
        if !value.is_instance_of::<PyProxy>() {
            return Ok(None);
        }
        // A class of the user's may define `node` in another way.
        let node = value.getattr(intern!(value.py(), "node"))?;
        match self.literal(&node)? {
            Arg::Node(node) => Ok(Some(node)),
            _ => Err(foreign_value(&node.repr()?.to_string_lossy())),
        }
    }

    fn own(&self, proxy: &Bound<'py, PyProxy>) -> PyResult<NodeId> {
        let (graph, node) = PyProxy::node_id(proxy)?;
        if graph.is(self.graph) {
            return Ok(node);
        }
        Err(foreign_value(graph.try_borrow()?.ir().node(node).name()))
    }

    fn items(
        &self,
        items: impl ExactSizeIterator<Item = Bound<'py, PyAny>>,
        depth: u16,
    ) -> PyResult<Seq> {
        let mut read = ThinVec::with_capacity(items.len());
        for item in items {
            read.push(self.arg(&item, depth + 1)?);
        }
        Seq::new(read).map_err(graph_error)
    }

    /// A dictionary whose keys are strings or numbers.
    fn dict(&self, dict: &Bound<'py, PyDict>, depth: u16) -> PyResult<Option<Arg>> {
        let mut entries = ThinVec::with_capacity(dict.len());
        for (key, value) in modules::entries(dict) {
            if !key.is_exact_instance_of::<PyString>() && !key.is_exact_instance_of::<PyInt>() {
                return Ok(None);
            }
            entries.push((self.literal(&key)?, self.arg(&value, depth + 1)?));
        }
        Ok(Some(Arg::Dict(Dict::new(entries).map_err(graph_error)?)))
    }

    /// A value in terms of nodes and constants.
    fn literal(&self, value: &Bound<'py, PyAny>) -> PyResult<Arg> {
        if let Ok(node) = value.cast::<PyNode>()
            && !node.get().graph_is(self.graph)
        {
            return Err(foreign_value(&node.get().name_or_id(value.py())));
        }
        PyGraph::change(self.graph, |reader| reader.arg(value, 0))
    }
}
