//! The module calls that are open while tracing.

use corsac_ir::{Scope, ScopeId};
use indexmap::IndexMap;
use pyo3::exceptions::PyAssertionError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use rustc_hash::FxBuildHasher;

use super::tracer::PyTracer;
use crate::graph::PyGraph;

/// A module call that has not returned.
pub(super) struct Open {
    path: Py<PyString>,
    class: Py<PyType>,
    call: u32,
    id: ScopeId,
}

/// The open module calls, innermost last, and the number of calls of each module.
#[derive(Default)]
pub(super) struct Scopes {
    open: Vec<Open>,
    /// In the order of the first calls.
    calls: IndexMap<String, u32, FxBuildHasher>,
    mirror: Option<Mirror>,
}

/// `tracer.scope`, `.module_stack`, `.num_calls` and `.node_name_to_scope` as Python objects.
///
/// They exist once they were requested. From then on they are kept up to date and take precedence,
/// since users may also change them.
pub(super) struct Mirror {
    pub(super) scope: Py<PyAny>,
    pub(super) module_stack: Py<PyAny>,
    pub(super) num_calls: Py<PyAny>,
    pub(super) node_name_to_scope: Py<PyAny>,
}

impl Mirror {
    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            scope: self.scope.clone_ref(py),
            module_stack: self.module_stack.clone_ref(py),
            num_calls: self.num_calls.clone_ref(py),
            node_name_to_scope: self.node_name_to_scope.clone_ref(py),
        }
    }

    /// Key of a module call in the stack.
    fn key(path: &Bound<'_, PyString>, call: i64) -> PyResult<String> {
        let path = path.to_str()?;
        Ok(match call {
            0 => path.to_owned(),
            call => format!("{path}@{call}"),
        })
    }

    /// Records the beginning of a module call. The result is for [`Mirror::leave`].
    pub(super) fn enter<'py>(
        &self,
        path: &Bound<'py, PyString>,
        class: &Bound<'py, PyType>,
    ) -> PyResult<Entered<'py>> {
        let py = path.py();
        let scope = self.scope.bind(py);
        let before = (
            scope.getattr(intern!(py, "module_path"))?,
            scope.getattr(intern!(py, "module_type"))?,
        );
        scope.setattr(intern!(py, "module_path"), path)?;
        scope.setattr(intern!(py, "module_type"), class)?;
        let calls = self.num_calls.bind(py);
        let call: i64 = calls
            .call_method1(intern!(py, "get"), (path, 0))?
            .extract()?;
        let key = Self::key(path, call)?;
        self.module_stack.bind(py).set_item(&key, (path, class))?;
        calls.set_item(path, call + 1)?;
        Ok(Entered { before, key })
    }

    /// Records the end of a module call; `ended` is whether it returned.
    pub(super) fn leave(&self, entered: &Entered<'_>, ended: bool) -> PyResult<()> {
        let py = entered.before.0.py();
        let scope = self.scope.bind(py);
        scope.setattr(intern!(py, "module_path"), &entered.before.0)?;
        scope.setattr(intern!(py, "module_type"), &entered.before.1)?;
        let stack = self.module_stack.bind(py);
        if !ended {
            stack.call_method1(intern!(py, "pop"), (&entered.key, py.None()))?;
            return Ok(());
        }
        let popped = stack.call_method0(intern!(py, "popitem"))?.get_item(0)?;
        if popped.eq(&entered.key)? {
            return Ok(());
        }
        Err(PyAssertionError::new_err(format!(
            "Unexpected key {popped}, expected {}",
            entered.key
        )))
    }
}

/// Records the end of a module call that was open already when the Python objects were requested.
pub(super) fn leave_unnoted(tracer: &Bound<'_, PyTracer>, ended: &Open) -> PyResult<()> {
    let py = tracer.py();
    let (mirror, (path, class)) = {
        let me = tracer.try_borrow()?;
        match me.scopes.mirror() {
            Some(mirror) => (mirror.clone_ref(py), me.scopes.innermost(py)),
            None => return Ok(()),
        }
    };
    let entered = Entered {
        before: (path.into_any(), class),
        key: Mirror::key(ended.path.bind(py), i64::from(ended.call))?,
    };
    mirror.leave(&entered, false)
}

/// State that the end of a module call restores.
pub(super) struct Entered<'py> {
    before: (Bound<'py, PyAny>, Bound<'py, PyAny>),
    key: String,
}

impl Scopes {
    /// The innermost open call.
    pub(super) fn current(&self) -> Option<ScopeId> {
        self.open.last().map(|open| open.id)
    }

    pub(super) fn mirror(&self) -> Option<&Mirror> {
        self.mirror.as_ref()
    }

    /// Replaces the Python objects; returns the old ones, to be dropped when nothing is borrowed.
    pub(super) fn set_mirror(&mut self, mirror: Mirror) -> Option<Mirror> {
        self.mirror.replace(mirror)
    }

    /// Opens a call of the module at `path`.
    pub(super) fn enter(
        &mut self,
        graph: &Bound<'_, PyGraph>,
        path: &Bound<'_, PyString>,
        class: &Bound<'_, PyType>,
    ) -> PyResult<()> {
        let text = path.to_str()?;
        let call = match self.calls.get_mut(text) {
            Some(calls) => {
                *calls += 1;
                *calls - 1
            }
            None => {
                self.calls.insert(text.to_owned(), 1);
                0
            }
        };
        let id = {
            let mut borrowed = graph.try_borrow_mut()?;
            let (ir, host) = borrowed.parts_to_extend();
            let scope = Scope {
                parent: self.current(),
                path: ir.intern(text),
                class: host.external(ir, class.as_any()),
                call,
            };
            ir.add_scope(scope)
        };
        self.open.push(Open {
            path: path.clone().unbind(),
            class: class.clone().unbind(),
            call,
            id,
        });
        Ok(())
    }

    /// Closes the innermost call.
    pub(super) fn leave(&mut self) -> Option<Open> {
        self.open.pop()
    }

    /// Closes all open calls, before a trace begins. Ids belong to one graph.
    pub(super) fn clear(&mut self) -> impl Sized + use<> {
        std::mem::take(&mut self.open)
    }

    /// The open calls as torch.fx keeps them: an ordered dictionary from key to path and class.
    pub(super) fn module_stack<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let stack = py
            .import(intern!(py, "collections"))?
            .call_method0(intern!(py, "OrderedDict"))?;
        for open in &self.open {
            let path = open.path.bind(py);
            let key = Mirror::key(path, i64::from(open.call))?;
            stack.set_item(key, PyTuple::new(py, [path.as_any(), open.class.bind(py)])?)?;
        }
        Ok(stack)
    }

    /// Number of calls of each module, by path.
    pub(super) fn num_calls<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let calls = PyDict::new(py);
        for (path, count) in &self.calls {
            calls.set_item(path, count)?;
        }
        Ok(calls)
    }

    /// Path and class of the innermost open call.
    pub(super) fn innermost<'py>(
        &self,
        py: Python<'py>,
    ) -> (Bound<'py, PyString>, Bound<'py, PyAny>) {
        match self.open.last() {
            Some(open) => (
                open.path.bind(py).clone(),
                open.class.bind(py).clone().into_any(),
            ),
            None => (PyString::new(py, ""), py.None().into_bound(py)),
        }
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for open in &self.open {
            visit.call(&open.class)?;
        }
        if let Some(mirror) = &self.mirror {
            visit.call(&mirror.scope)?;
            visit.call(&mirror.module_stack)?;
            visit.call(&mirror.num_calls)?;
            visit.call(&mirror.node_name_to_scope)?;
        }
        Ok(())
    }
}
