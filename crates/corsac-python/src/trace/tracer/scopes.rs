//! The scopes of a tracer, as Python code sees and sets them.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

use super::PyTracer;
use crate::graph::node::PyNode;
use crate::trace::scopes::Mirror;

impl PyTracer {
    /// Adds a new node to the Python objects that were requested: the scope of each node, and the
    /// module stack if it may differ from the graph's.
    pub(in crate::trace) fn note_scope(
        slf: &Bound<'_, Self>,
        node: &Bound<'_, PyNode>,
    ) -> PyResult<()> {
        let py = slf.py();
        let Some(mirror) = slf.try_borrow()?.scopes.mirror().map(|m| m.clone_ref(py)) else {
            return Ok(());
        };
        let scope = mirror.scope.bind(py);
        let entry = (
            scope.getattr(intern!(py, "module_path"))?,
            scope.getattr(intern!(py, "module_type"))?,
        );
        mirror
            .node_name_to_scope
            .bind(py)
            .set_item(node.getattr(intern!(py, "name"))?, entry)?;
        let stack = mirror.module_stack.bind(py);
        if stack.is_truthy()? {
            let copy = py
                .import(intern!(py, "copy"))?
                .call_method1(intern!(py, "copy"), (stack,))?;
            let meta = node.getattr(intern!(py, "meta"))?;
            meta.set_item(intern!(py, "nn_module_stack"), copy)?;
        }
        Ok(())
    }

    /// Whether the scopes were requested as Python objects.
    pub(in crate::trace) fn is_mirrored(&self) -> bool {
        self.scopes.mirror().is_some()
    }

    /// The scopes as Python objects, made on first access.
    fn mirror(slf: &Bound<'_, Self>) -> PyResult<Mirror> {
        let py = slf.py();
        if let Some(mirror) = slf.try_borrow()?.scopes.mirror() {
            return Ok(mirror.clone_ref(py));
        }
        static SCOPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let class = SCOPE.import(py, "corsac.fx.proxy", "Scope")?;
        let node_scopes = Self::node_scopes(slf)?;
        let mirror = {
            let me = slf.try_borrow()?;
            Mirror {
                scope: class.call1(me.scopes.innermost(py))?.unbind(),
                module_stack: me.scopes.module_stack(py)?.unbind(),
                num_calls: me.scopes.num_calls(py)?.into_any().unbind(),
                node_name_to_scope: node_scopes.into_any().unbind(),
            }
        };
        let answer = mirror.clone_ref(py);
        let replaced = slf.try_borrow_mut()?.scopes.set_mirror(mirror);
        drop(replaced);
        Ok(answer)
    }

    /// The scope of each node of the graph, by name.
    fn node_scopes<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let scopes = PyDict::new(py);
        let Some(graph) = Self::plain_graph(slf)? else {
            return Ok(scopes);
        };
        let borrowed = graph.try_borrow()?;
        let ir = borrowed.ir();
        for id in ir.nodes() {
            let name = ir.node(id).name();
            match ir.origin(id).scope {
                Some(scope) => {
                    let scope = ir.scope(scope);
                    let class = borrowed.host().external_object(py, scope.class);
                    scopes.set_item(name, (ir.text(scope.path), class))?;
                }
                None => scopes.set_item(name, ("", py.None()))?,
            }
        }
        Ok(scopes)
    }

    fn change_mirror(slf: &Bound<'_, Self>, change: impl FnOnce(&mut Mirror)) -> PyResult<()> {
        let mut mirror = Self::mirror(slf)?;
        change(&mut mirror);
        let replaced = slf.try_borrow_mut()?.scopes.set_mirror(mirror);
        drop(replaced);
        Ok(())
    }
}

#[pymethods]
impl PyTracer {
    /// The module that is being called: its path and class.
    #[getter]
    fn scope(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        Ok(Self::mirror(slf)?.scope)
    }

    #[setter]
    fn set_scope(slf: &Bound<'_, Self>, scope: Py<PyAny>) -> PyResult<()> {
        Self::change_mirror(slf, |mirror| mirror.scope = scope)
    }

    /// The modules that are being called, outermost first.
    #[getter]
    fn module_stack(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        Ok(Self::mirror(slf)?.module_stack)
    }

    #[setter]
    fn set_module_stack(slf: &Bound<'_, Self>, stack: Py<PyAny>) -> PyResult<()> {
        Self::change_mirror(slf, |mirror| mirror.module_stack = stack)
    }

    /// Number of calls of each module, by path.
    #[getter]
    fn num_calls(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        Ok(Self::mirror(slf)?.num_calls)
    }

    #[setter]
    fn set_num_calls(slf: &Bound<'_, Self>, calls: Py<PyAny>) -> PyResult<()> {
        Self::change_mirror(slf, |mirror| mirror.num_calls = calls)
    }

    /// Path and class of the module that each node was made in, by the node's name.
    #[getter]
    fn node_name_to_scope(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        Ok(Self::mirror(slf)?.node_name_to_scope)
    }

    #[setter]
    fn set_node_name_to_scope(slf: &Bound<'_, Self>, scopes: Py<PyAny>) -> PyResult<()> {
        Self::change_mirror(slf, |mirror| mirror.node_name_to_scope = scopes)
    }
}
