//! Copying nodes between graphs, with the Python objects that belong to them.

use corsac_ir::{ExternalId, GraphError, NodeId, Op, Origin, SecondaryMap, Source, Translation};
use pyo3::exceptions::{PyKeyError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::PyGraph;
use crate::collector::PausedCollector;
use crate::error::graph_error;
use crate::graph::node::PyNode;
use crate::graph::value::Writer;
use crate::packages::ours;

impl PyGraph {
    /// Attaches the Python objects behind the entries that `translation` added to this graph.
    pub(crate) fn adopt(
        graph: &Bound<'_, Self>,
        from: &Self,
        translation: &mut Translation,
    ) -> PyResult<()> {
        let py = graph.py();
        let mut borrowed = graph.try_borrow_mut()?;
        for (old, new) in translation.take_new_externals() {
            borrowed
                .host
                .attach_external(new, &from.host.external_object(py, old));
        }
        let me = &mut *borrowed;
        for (old, new) in translation.take_new_functions() {
            if let Some(callable) = from.host.function_object(old) {
                me.host.attach_function(new, callable.bind(py));
            }
        }
        Ok(())
    }

    /// A translation from `from` to `graph` that knows the Python objects of both.
    pub(crate) fn translation(&self, from: &Self) -> Translation {
        let mut translation = Translation::new();
        for (id, object) in from.host.externals() {
            if let Some(known) = self.host.known_external(object) {
                translation.know_external(id, known);
            }
        }
        for (id, _) in from.ir.functions() {
            let callable = from.host.function_object(id);
            if let Some(known) = callable.and_then(|c| self.host.known_function(c)) {
                translation.know_function(id, known);
            }
        }
        translation
    }

    /// [`PyGraph::translation`] for the objects of `origin` only.
    fn origin_translation(&self, py: Python<'_>, from: &Self, origin: Origin) -> Translation {
        let mut translation = Translation::new();
        let mut know = |id: ExternalId| {
            let object = from.host.external_object(py, id);
            if let Some(known) = self.host.known_external(object.as_unbound()) {
                translation.know_external(id, known);
            }
        };
        if let Some(Source::Host { code, .. }) = origin.source.map(|id| from.ir.source(id)) {
            know(code);
        }
        for scope in from.ir.scope_chain(origin.scope) {
            know(scope.class);
        }
        translation
    }

    /// Copies metadata that was accessed or set to the copies of nodes.
    fn copy_metas(
        graph: &Bound<'_, Self>,
        from: &Bound<'_, Self>,
        map: impl Fn(NodeId) -> Option<NodeId>,
    ) -> PyResult<()> {
        let py = graph.py();
        let metas: Vec<_> = from
            .try_borrow()?
            .host
            .metas()
            .filter_map(|(id, meta)| Some((map(id)?, meta.clone_ref(py))))
            .collect();
        for (id, meta) in metas {
            Self::set_meta_copy(graph, id, meta.bind(py))?;
        }
        Ok(())
    }
}

#[pymethods]
impl PyGraph {
    /// Copies a node of another graph (or this one) to the insertion point. `arg_transform(node)`
    /// returns the replacement of each node in its arguments.
    #[pyo3(signature = (node, arg_transform = None))]
    fn node_copy<'py>(
        slf: &Bound<'py, Self>,
        node: &Bound<'py, PyAny>,
        arg_transform: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Py<PyNode>> {
        let py = slf.py();
        let node = ours::<PyNode>(node, "node_copy")?;
        let source = node.get().graph(py);
        let id = node.get().id();
        let (op, target, args, kwargs, name, ty, origin) = {
            let from = source.try_borrow()?;
            let view = from.ir.node(id);
            let writer = Writer {
                graph: source,
                ir: &from.ir,
                host: &from.host,
                immutable: false,
            };
            let kwargs = PyDict::new(py);
            for (key, arg) in view.kwargs() {
                kwargs.set_item(from.ir.text(*key), writer.arg(arg)?)?;
            }
            let ty = view.ty().map(|ty| from.host.external_object(py, ty));
            let target = from.target_object(py, id)?;
            let (args, name) = (writer.args(view.args())?, view.name().to_owned());
            (view.op(), target, args, kwargs, name, ty, view.origin())
        };
        let (args, kwargs) = match arg_transform {
            None => (args, kwargs),
            Some(transform) => {
                let map = py
                    .import(intern!(py, "corsac.fx.node"))?
                    .getattr("map_arg")?;
                let args = map.call1((args, transform))?.cast_into::<PyTuple>()?;
                (args, map.call1((kwargs, transform))?.cast_into::<PyDict>()?)
            }
        };
        let target = target.bind(py);
        let copy = Self::create(
            slf,
            op,
            target,
            Some(&args),
            Some(&kwargs),
            Some(&name),
            ty.as_ref(),
        )?;
        let new = copy.get().id();
        if slf.is(source) {
            slf.try_borrow_mut()?.ir.change().set_origin(new, origin);
        } else {
            let from = source.try_borrow()?;
            let mut translation = slf.try_borrow()?.origin_translation(py, &from, origin);
            {
                let mut to = slf.try_borrow_mut()?;
                let to = to.ir.change();
                let origin = translation.origin(&from.ir, to, origin);
                to.set_origin(new, origin);
            }
            Self::adopt(slf, &from, &mut translation)?;
        }
        let meta = source
            .try_borrow()?
            .host
            .meta(id)
            .map(|meta| meta.clone_ref(py));
        if let Some(meta) = meta {
            Self::set_meta_copy(slf, new, meta.bind(py))?;
        }
        Ok(copy)
    }

    /// Copies all nodes of `g` up to its output node to the insertion point. `val_map` has the
    /// values of some nodes of `g` in this graph, and afterwards those of all. Returns the value of
    /// the output of `g` in this graph; with `return_output_node`, also the output node of `g`.
    #[pyo3(signature = (g, val_map, return_output_node = false))]
    fn graph_copy<'py>(
        slf: &Bound<'py, Self>,
        g: &Bound<'py, PyAny>,
        val_map: &Bound<'py, PyDict>,
        return_output_node: bool,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let g = ours::<Self>(g, "graph_copy")?;
        if slf.is(g) {
            return Err(PyRuntimeError::new_err(
                "a graph cannot be copied into itself",
            ));
        }
        let mut map = SecondaryMap::new();
        for (key, value) in val_map.iter() {
            // Other entries, such as those of a deepcopy memo, do not belong to `g`.
            let Ok(key) = key.cast::<PyNode>() else {
                continue;
            };
            if !key.get().graph_is(g) {
                continue;
            }
            match value.cast::<PyNode>() {
                Ok(value) => map.set(key.get().id(), Some(Self::own(slf, value)?)),
                Err(_) => return Self::copy_with_values(slf, g, val_map, return_output_node),
            }
        }
        let given = map.clone();
        let from = g.try_borrow()?;
        let mut translation = slf.try_borrow()?.translation(&from);
        let output = {
            let mut to = slf.try_borrow_mut()?;
            to.ir_mut()
                .copy_graph(&from.ir, &mut map, &mut translation)
                .map_err(|error| copy_error(&from.ir, error))?
        };
        Self::adopt(slf, &from, &mut translation)?;
        {
            let _paused = PausedCollector::new(py)?;
            let to = slf.try_borrow()?;
            for old in from.ir.nodes() {
                if let Some(new) = map[old]
                    && given[old].is_none()
                {
                    let key = PyNode::handle(g, &from.host, old)?;
                    val_map.set_item(key, PyNode::handle(slf, &to.host, new)?)?;
                }
            }
        }
        drop(from);
        Self::copy_metas(slf, g, |old| map[old].filter(|_| given[old].is_none()))?;
        let Some((node, value)) = output else {
            return Ok(py.None());
        };
        let to = slf.try_borrow()?;
        let value = to.writer(slf).arg(&value)?;
        if return_output_node {
            let node = PyNode::handle(g, &g.try_borrow()?.host, node)?;
            return Ok((value, node).into_pyobject(py)?.into_any().unbind());
        }
        Ok(value.unbind())
    }

    /// As `graph_copy`, where the value of some node of `g` is no node.
    fn copy_with_values<'py>(
        slf: &Bound<'py, Self>,
        g: &Bound<'py, Self>,
        val_map: &Bound<'py, PyDict>,
        return_output_node: bool,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let lookup = val_map.getattr(intern!(py, "__getitem__"))?;
        let nodes = {
            let from = g.try_borrow()?;
            let handle = |id| PyNode::handle(g, &from.host, id);
            from.ir.nodes().map(handle).collect::<PyResult<Vec<_>>>()?
        };
        for node in nodes {
            let node = node.bind(py);
            if val_map.contains(node)? {
                continue;
            }
            let is_output = g.try_borrow()?.ir.node(node.get().id()).op() == Op::Output;
            if !is_output {
                let copy = Self::node_copy(slf, node, Some(&lookup))?;
                val_map.set_item(node, copy)?;
                continue;
            }
            let value = node.getattr(intern!(py, "args"))?.get_item(0)?;
            let value = py
                .import(intern!(py, "corsac.fx.node"))?
                .getattr(intern!(py, "map_arg"))?
                .call1((value, &lookup))?;
            if return_output_node {
                return Ok((value, node).into_pyobject(py)?.into_any().unbind());
            }
            return Ok(value.unbind());
        }
        Ok(py.None())
    }

    /// Fills this empty graph with the nodes of `g`, output node included.
    fn _fill_from(slf: &Bound<'_, Self>, g: &Bound<'_, Self>) -> PyResult<()> {
        let from = g.try_borrow()?;
        let mut translation = Translation::new();
        let mut map = SecondaryMap::new();
        let copy = from
            .ir
            .compact_copy(&mut map, &mut translation)
            .map_err(graph_error)?;
        {
            let mut to = slf.try_borrow_mut()?;
            *to.ir_mut() = copy;
        }
        Self::adopt(slf, &from, &mut translation)?;
        drop(from);
        Self::copy_metas(slf, g, |old| map[old])
    }
}

/// As torch.fx, which looks nodes up in a dictionary, a use before the definition is a KeyError.
fn copy_error(from: &corsac_ir::Graph, error: GraphError) -> PyErr {
    match error {
        GraphError::UnknownNode { node } => PyKeyError::new_err(format!(
            "node {} is used before it is defined",
            from.node(node).name()
        )),
        other => graph_error(other),
    }
}
