//! Results of `inserting_before` and `inserting_after`.

use corsac_ir::InsertPoint;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::error::graph_error;
use crate::graph::PyGraph;

/// Restores the insertion point of a graph at the end of a `with` block.
#[pyclass(name = "InsertPoint", module = "corsac.fx.graph", frozen)]
pub(crate) struct PyInsertPoint {
    graph: Py<PyGraph>,
    before: InsertPoint,
}

impl PyInsertPoint {
    /// Moves the insertion point of `graph`, and remembers the old one.
    pub(crate) fn set(graph: &Bound<'_, PyGraph>, point: InsertPoint) -> PyResult<Self> {
        let before = graph
            .try_borrow_mut()?
            .ir_mut()
            .set_insert_point(point)
            .map_err(graph_error)?;
        Ok(Self {
            graph: graph.clone().unbind(),
            before,
        })
    }
}

#[pymethods]
impl PyInsertPoint {
    fn __enter__(&self) {}

    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let mut graph = self.graph.bind(py).try_borrow_mut()?;
        graph.ir_mut().restore_insert_point(self.before);
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.graph)
    }
}
