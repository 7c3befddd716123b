//! The Python objects behind a graph: those of external ids, functions and nodes.

use corsac_ir::{EntityId, ExternalId, FunctionId, Graph, NodeId};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use crate::callable::CallableNames;
use crate::graph::handles::Handles;
use crate::graph::node::PyNode;

/// Objects by id, and ids by object identity. The tables keep their objects alive, so that an
/// address stands for one object.
#[derive(Default)]
pub(crate) struct Host {
    externals: Vec<Option<Py<PyAny>>>,
    external_ids: FxHashMap<usize, ExternalId>,
    functions: Vec<Option<Py<PyAny>>>,
    function_ids: FxHashMap<usize, FunctionId>,
    metas: FxHashMap<NodeId, Py<PyAny>>,
    handles: Handles,
}

impl Host {
    /// The id of `object` in `graph`, added if it is new.
    pub(crate) fn external(&mut self, graph: &mut Graph, object: &Bound<'_, PyAny>) -> ExternalId {
        if let Some(known) = self.known_external(object.as_unbound()) {
            return known;
        }
        let id = graph.add_external(None);
        self.attach_external(id, object);
        id
    }

    /// Attaches `object` to an id that the graph has handed out itself.
    pub(crate) fn attach_external(&mut self, id: ExternalId, object: &Bound<'_, PyAny>) {
        if id.index() >= self.externals.len() {
            self.externals.resize_with(id.index() + 1, || None);
        }
        self.externals[id.index()] = Some(object.clone().unbind());
        self.external_ids.insert(object.as_ptr() as usize, id);
    }

    /// The id of an object that was added before.
    pub(crate) fn known_external(&self, object: &Py<PyAny>) -> Option<ExternalId> {
        self.external_ids.get(&(object.as_ptr() as usize)).copied()
    }

    /// The object behind an external id; None in a graph that the garbage collector has cleared.
    pub(crate) fn external_object<'py>(
        &self,
        py: Python<'py>,
        id: ExternalId,
    ) -> Bound<'py, PyAny> {
        match self.externals.get(id.index()) {
            Some(Some(object)) => object.bind(py).clone(),
            Some(None) | None => py.None().into_bound(py),
        }
    }

    /// All external ids with the objects behind them.
    pub(crate) fn externals(&self) -> impl Iterator<Item = (ExternalId, &Py<PyAny>)> {
        let all = self.externals.iter().enumerate();
        all.filter_map(|(i, object)| Some((ExternalId::from_index(i), object.as_ref()?)))
    }

    /// The id of a callable that was added before.
    pub(crate) fn known_function(&self, callable: &Py<PyAny>) -> Option<FunctionId> {
        self.function_ids
            .get(&(callable.as_ptr() as usize))
            .copied()
    }

    /// Adds a callable under its names.
    pub(crate) fn add_function(
        &mut self,
        graph: &mut Graph,
        callable: &Bound<'_, PyAny>,
        names: &CallableNames,
    ) -> FunctionId {
        let external = self.external(graph, callable);
        let id = graph.external_function(&names.printed, &names.own, external);
        self.attach_function(id, callable);
        id
    }

    /// Attaches a callable to a function of the graph.
    pub(crate) fn attach_function(&mut self, id: FunctionId, callable: &Bound<'_, PyAny>) {
        if id.index() >= self.functions.len() {
            self.functions.resize_with(id.index() + 1, || None);
        }
        self.functions[id.index()] = Some(callable.clone().unbind());
        self.function_ids.insert(callable.as_ptr() as usize, id);
    }

    /// The callable behind a function, if one was attached.
    pub(crate) fn function_object(&self, id: FunctionId) -> Option<&Py<PyAny>> {
        self.functions.get(id.index())?.as_ref()
    }

    /// The metadata of a node, if it was accessed or set.
    pub(crate) fn meta(&self, id: NodeId) -> Option<&Py<PyAny>> {
        self.metas.get(&id)
    }

    /// Sets the metadata of a node; returns the metadata that it replaces, to be dropped when
    /// nothing is borrowed.
    pub(crate) fn set_meta(&mut self, id: NodeId, meta: Py<PyAny>) -> Option<Py<PyAny>> {
        self.metas.insert(id, meta)
    }

    /// All existing metadata.
    pub(crate) fn metas(&self) -> impl Iterator<Item = (NodeId, &Py<PyAny>)> {
        self.metas.iter().map(|(&id, meta)| (id, meta))
    }

    /// The handles of the nodes.
    pub(crate) fn handles(&self) -> &Handles {
        &self.handles
    }

    /// Releases the handle of an erased node, which lives as long as somebody else holds it.
    pub(crate) fn release_handle(&self, py: Python<'_>, id: NodeId) -> Option<Py<PyNode>> {
        self.handles.take(py, id)
    }

    /// Releases all objects, for the garbage collector.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Visits all objects, for the garbage collector.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.externals
            .iter()
            .try_for_each(|object| visit.call(object))?;
        self.functions
            .iter()
            .try_for_each(|object| visit.call(object))?;
        self.metas
            .values()
            .try_for_each(|object| visit.call(object))?;
        self.handles.traverse(visit)
    }
}
