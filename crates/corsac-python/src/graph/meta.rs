//! `node.meta`, created on first access.

use corsac_ir::NodeId;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::PyGraph;

/// The keys of `node.meta` that describe the value of the node.
const OF_VALUE: [&str; 3] = ["tensor_meta", "val", "example_value"];

impl PyGraph {
    /// The metadata of a node, created on first access.
    pub(crate) fn meta(graph: &Bound<'_, Self>, id: NodeId) -> PyResult<Py<PyAny>> {
        let py = graph.py();
        let meta = {
            let borrowed = graph.try_borrow()?;
            if let Some(meta) = borrowed.host.meta(id) {
                return Ok(meta.clone_ref(py));
            }
            let meta = PyDict::new(py);
            if let Some(stack) = borrowed.module_stack(py, id)? {
                meta.set_item(intern!(py, "nn_module_stack"), stack)?;
            }
            meta
        };
        let mut borrowed = graph.try_borrow_mut()?;
        if let Some(meta) = borrowed.host.meta(id) {
            return Ok(meta.clone_ref(py));
        }
        borrowed.host.set_meta(id, meta.clone().into_any().unbind());
        Ok(meta.into_any().unbind())
    }

    /// Gives a node a shallow copy of the metadata of another.
    pub(crate) fn set_meta_copy(
        graph: &Bound<'_, Self>,
        id: NodeId,
        meta: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = graph.py();
        let copy = match meta.cast_exact::<PyDict>() {
            Ok(dict) => dict.copy()?.into_any(),
            Err(_) => py
                .import(intern!(py, "copy"))?
                .call_method1(intern!(py, "copy"), (meta,))?,
        };
        let replaced = graph.try_borrow_mut()?.host.set_meta(id, copy.unbind());
        drop(replaced);
        Ok(())
    }

    /// Gives new nodes shallow copies of the metadata of the nodes that they replace.
    pub(crate) fn inherit_metas(
        graph: &Bound<'_, Self>,
        pairs: &[(NodeId, NodeId)],
    ) -> PyResult<()> {
        for &(new, old) in pairs {
            let meta = {
                let borrowed = graph.try_borrow()?;
                borrowed.host.meta(old).map(|m| m.clone_ref(graph.py()))
            };
            if let Some(meta) = meta {
                Self::set_meta_copy(graph, new, meta.bind(graph.py()))?;
            }
        }
        Ok(())
    }

    /// Gives a new node for an intermediate value the metadata of the node that had the value,
    /// without the keys that describe the value itself.
    pub(crate) fn inherit_meta_but_value(
        graph: &Bound<'_, Self>,
        new: NodeId,
        old: NodeId,
    ) -> PyResult<()> {
        Self::inherit_metas(graph, &[(new, old)])?;
        Self::forget_value(graph, new)
    }

    /// Adds a shallow copy of `meta` to the metadata of a node.
    pub(crate) fn add_meta(
        graph: &Bound<'_, Self>,
        id: NodeId,
        meta: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = graph.py();
        let old = Self::meta(graph, id)?;
        match (old.bind(py).cast::<PyDict>(), meta.cast_exact::<PyDict>()) {
            (Ok(old), Ok(meta)) => old.update(meta.as_mapping()),
            _ => Self::set_meta_copy(graph, id, meta),
        }
    }

    /// Removes the keys that describe a node's value from its metadata.
    pub(crate) fn forget_value(graph: &Bound<'_, Self>, node: NodeId) -> PyResult<()> {
        let meta = {
            let borrowed = graph.try_borrow()?;
            borrowed.host.meta(node).map(|m| m.clone_ref(graph.py()))
        };
        let Some(meta) = meta else { return Ok(()) };
        if let Ok(meta) = meta.bind(graph.py()).cast::<PyDict>() {
            for key in OF_VALUE {
                if meta.contains(key)? {
                    meta.del_item(key)?;
                }
            }
        }
        Ok(())
    }

    /// The module calls that a node was recorded under, outermost first, as torch.fx keeps them
    /// in `meta["nn_module_stack"]`: from `path`, or `path@n` for call number n, to path and class.
    fn module_stack<'py>(
        &self,
        py: Python<'py>,
        id: NodeId,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut chain: Vec<_> = self.ir.scope_chain(self.ir.origin(id).scope).collect();
        if chain.is_empty() {
            return Ok(None);
        }
        chain.reverse();
        let stack = py
            .import(intern!(py, "collections"))?
            .getattr("OrderedDict")?
            .call0()?;
        for scope in chain {
            let path = self.ir.text(scope.path);
            let class = self.host.external_object(py, scope.class);
            let value = (path, class).into_pyobject(py)?;
            match scope.call {
                0 => stack.set_item(path, value)?,
                call => stack.set_item(format!("{path}@{call}"), value)?,
            }
        }
        Ok(Some(stack))
    }
}
