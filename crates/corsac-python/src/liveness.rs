//! Last uses of values.

use corsac_ir::{NodeId, SecondaryMap};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::graph::PyGraph;
use crate::graph::node::PyNode;

#[pymethods]
impl PyGraph {
    /// For each node that is the last to use some values, the nodes with these values.
    fn _last_uses<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let borrowed = slf.try_borrow()?;
        let ir = borrowed.ir();
        let mut seen: SecondaryMap<NodeId, bool> = SecondaryMap::with_capacity(ir.id_bound());
        let last_uses = PyDict::new(py);
        let mut used_last = Vec::new();
        for user in ir.nodes().rev() {
            for used in ir.inputs(user) {
                if !std::mem::replace(seen.get_mut(used), true) {
                    used_last.push(PyNode::handle(slf, borrowed.host(), used)?);
                }
            }
            if !used_last.is_empty() {
                let user = PyNode::handle(slf, borrowed.host(), user)?;
                last_uses.set_item(user, PyList::new(py, used_last.drain(..))?)?;
            }
        }
        Ok(last_uses)
    }
}
