//! `graph.nodes`: the nodes in order, as a live view.

use std::sync::atomic::{AtomicUsize, Ordering};

use corsac_ir::{EntityId, NodeId};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::graph::PyGraph;
use crate::node::PyNode;

/// The nodes of a graph in order, or in reverse. Nodes may come and go while it is iterated:
/// what is inserted ahead is seen, what is erased is not.
#[pyclass(name = "Nodes", module = "corsac.fx.graph", frozen, sequence)]
pub(crate) struct PyNodes {
    graph: Py<PyGraph>,
    reversed: bool,
}

impl PyNodes {
    pub(crate) fn forward(graph: &Bound<'_, PyGraph>) -> Self {
        Self {
            graph: graph.clone().unbind(),
            reversed: false,
        }
    }
}

#[pymethods]
impl PyNodes {
    /// The graph whose nodes these are.
    #[getter]
    fn graph(&self, py: Python<'_>) -> Py<PyGraph> {
        self.graph.clone_ref(py)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.graph.bind(py).try_borrow()?.ir().len())
    }

    fn __iter__(&self, py: Python<'_>) -> PyNodeIterator {
        PyNodeIterator {
            graph: self.graph.clone_ref(py),
            reversed: self.reversed,
            at: AtomicUsize::new(NodeId::ROOT.index()),
        }
    }

    fn __reversed__(&self, py: Python<'_>) -> PyNodeIterator {
        PyNodeIterator {
            reversed: !self.reversed,
            ..self.__iter__(py)
        }
    }

    fn __contains__(&self, py: Python<'_>, node: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(node) = node.cast::<PyNode>() else {
            return Ok(false);
        };
        let graph = self.graph.bind(py);
        Ok(node.get().graph_is(graph) && graph.try_borrow()?.ir().contains(node.get().id()))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.graph)
    }
}

/// A place in the list of nodes.
#[pyclass(name = "NodeIterator", module = "corsac.fx.graph", frozen)]
pub(crate) struct PyNodeIterator {
    graph: Py<PyGraph>,
    reversed: bool,
    /// Index of the node answered last, the root's at first; `DONE` after the last one.
    at: AtomicUsize,
}

const DONE: usize = usize::MAX;

#[pymethods]
impl PyNodeIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyNode>>> {
        // One thread at a time holds the interpreter: loads and stores cannot interleave.
        let at = self.at.load(Ordering::Relaxed);
        if at == DONE {
            return Ok(None);
        }
        let graph = self.graph.bind(py);
        let borrowed = graph.try_borrow()?;
        let (ir, at) = (borrowed.ir(), NodeId::from_index(at));
        let at = if self.reversed {
            ir.prev(at)
        } else {
            ir.next(at)
        };
        if at.is_root() {
            self.at.store(DONE, Ordering::Relaxed);
            return Ok(None);
        }
        self.at.store(at.index(), Ordering::Relaxed);
        PyNode::handle(graph, borrowed.host(), at).map(Some)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.graph)
    }
}
