//! `graph.nodes`: the nodes in order, as a live view.

use corsac_ir::NodeId;
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
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.graph.bind(py).try_borrow()?.ir().len())
    }

    fn __iter__(&self, py: Python<'_>) -> PyNodeIterator {
        PyNodeIterator {
            graph: self.graph.clone_ref(py),
            reversed: self.reversed,
            at: NodeId::ROOT,
            done: false,
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
#[pyclass(name = "NodeIterator", module = "corsac.fx.graph")]
pub(crate) struct PyNodeIterator {
    graph: Py<PyGraph>,
    reversed: bool,
    at: NodeId,
    done: bool,
}

#[pymethods]
impl PyNodeIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyNode>>> {
        if self.done {
            return Ok(None);
        }
        let graph = self.graph.bind(py);
        let borrowed = graph.try_borrow()?;
        let ir = borrowed.ir();
        self.at = if self.reversed {
            ir.prev(self.at)
        } else {
            ir.next(self.at)
        };
        self.done = self.at.is_root();
        if self.done {
            return Ok(None);
        }
        PyNode::handle(graph, borrowed.host(), self.at).map(Some)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.graph)
    }
}
