//! Origins of nodes that replace another one.

use corsac_ir::{Origin, Translation};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use super::tracer::PyTracer;
use crate::graph::PyGraph;
use crate::graph::node::PyNode;

/// The node that a transformer is running. Nodes that are recorded meanwhile have its origin: the
/// user's program, not the transformer's.
#[derive(Default)]
pub(super) struct Predecessor {
    node: Option<Py<PyNode>>,
    /// Its origin in terms of the new graph; once it was requested.
    origin: Option<Origin>,
    /// Translation from the graph of the node to the new one.
    translation: Option<Known>,
}

struct Known {
    from: Py<PyGraph>,
    to: Py<PyGraph>,
    translation: Translation,
}

impl Predecessor {
    /// Sets the node that is run from now on, or none. Returns the one before, to be dropped when
    /// nothing is borrowed.
    pub(super) fn set(&mut self, node: Option<Py<PyNode>>) -> Option<Py<PyNode>> {
        self.origin = None;
        std::mem::replace(&mut self.node, node)
    }

    /// Origin, in terms of `graph`, of the node that `tracer` is running; None if there is no such
    /// node, or its origin is unknown.
    pub(super) fn origin_in(
        tracer: &Bound<'_, PyTracer>,
        graph: &Bound<'_, PyGraph>,
    ) -> PyResult<Option<Origin>> {
        let py = tracer.py();
        let (node, known) = {
            let mut me = tracer.try_borrow_mut()?;
            let Some(node) = &me.predecessor.node else {
                return Ok(None);
            };
            if let Some(origin) = me.predecessor.origin {
                return Ok(Some(origin));
            }
            (node.clone_ref(py), me.predecessor.translation.take())
        };
        let from = node.get().graph(py);
        let source = from.try_borrow()?;
        let mut origin = source.ir().origin(node.get().id());
        if origin.source.is_none() {
            return Ok(None);
        }
        let mut known = known.filter(|known| known.from.is(from) && known.to.is(graph));
        if !from.is(graph) {
            let known = match &mut known {
                Some(known) => known,
                None => known.insert(Known {
                    from: from.clone().unbind(),
                    to: graph.clone().unbind(),
                    translation: graph.try_borrow()?.translation(&source),
                }),
            };
            let mut new = graph.try_borrow_mut()?;
            let ir = new.parts_to_extend().0;
            origin = known.translation.origin(source.ir(), ir, origin);
            drop(new);
            PyGraph::adopt(graph, &source, &mut known.translation)?;
        }
        let mut me = tracer.try_borrow_mut()?;
        me.predecessor.translation = known;
        me.predecessor.origin = Some(origin);
        Ok(Some(origin))
    }

    /// Visits its objects, for the garbage collector.
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.node)?;
        if let Some(known) = &self.translation {
            visit.call(&known.from)?;
            visit.call(&known.to)?;
        }
        Ok(())
    }
}

#[pymethods]
impl PyTracer {
    /// Sets the node that nodes recorded from now on replace; None for no node.
    fn _succeed(slf: &Bound<'_, Self>, node: Option<Py<PyNode>>) -> PyResult<()> {
        let replaced = slf.try_borrow_mut()?.predecessor.set(node);
        drop(replaced);
        Ok(())
    }
}
