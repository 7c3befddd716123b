//! `node.users`: the users of a node, as a live view that reads like a dictionary.

use corsac_ir::NodeId;
use pyo3::exceptions::PyKeyError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyTuple};

use crate::graph::PyGraph;
use crate::graph::node::PyNode;

/// The users of a node, in the order in which they came to use it. Reads like a dictionary from
/// node to None, and always shows the graph as it is now.
#[pyclass(name = "Users", module = "corsac.fx.node", frozen, mapping)]
pub(crate) struct PyUsers {
    node: Py<PyNode>,
}

impl PyUsers {
    pub(crate) fn of(node: &Bound<'_, PyNode>) -> Self {
        Self {
            node: node.clone().unbind(),
        }
    }

    /// The users of `id`.
    pub(crate) fn handles(graph: &Bound<'_, PyGraph>, id: NodeId) -> PyResult<Vec<Py<PyNode>>> {
        let borrowed = graph.try_borrow()?;
        borrowed
            .ir()
            .users(id)
            .map(|user| PyNode::handle(graph, borrowed.host(), user))
            .collect()
    }

    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let node = self.node.get();
        PyList::new(py, Self::handles(node.graph(py), node.id())?)
    }
}

#[pymethods]
impl PyUsers {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let node = self.node.get();
        Ok(node
            .graph(py)
            .try_borrow()?
            .ir()
            .node(node.id())
            .num_users())
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(user) = key.cast::<PyNode>() else {
            return Ok(false);
        };
        let (node, user) = (self.node.get(), user.get());
        let graph = node.graph(py);
        Ok(user.graph_is(graph) && graph.try_borrow()?.ir().uses(user.id(), node.id()))
    }

    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if self.__contains__(py, key)? {
            Ok(py.None())
        } else {
            Err(PyKeyError::new_err(key.clone().unbind()))
        }
    }

    #[pyo3(signature = (key, default = None))]
    fn get(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        Ok(if self.__contains__(py, key)? {
            None
        } else {
            default
        })
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.list(py)?.try_iter()
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.list(py)?.call_method0("__reversed__")
    }

    /// The users as a dictionary, independent of the graph.
    fn copy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for user in self.list(py)? {
            dict.set_item(user, py.None())?;
        }
        Ok(dict)
    }

    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.copy(py)?.call_method0("keys")
    }

    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.copy(py)?.call_method0("values")
    }

    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.copy(py)?.call_method0("items")
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        match other.cast::<PyUsers>() {
            Ok(other) => self.copy(py)?.eq(other.get().copy(py)?),
            Err(_) => self.copy(py)?.eq(other),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.copy(py)?.repr()?.to_string_lossy().into_owned())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.node)
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyTuple>,))> {
        let dict = py.get_type::<PyDict>().into_any();
        Ok((dict, (PyTuple::new(py, self.copy(py)?.items())?,)))
    }
}
