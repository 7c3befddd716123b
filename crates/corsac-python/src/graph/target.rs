//! Opcodes and targets, as Python sees and sets them.

use corsac_ir::{FunctionId, Graph, NodeId, Op, Target};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::PyGraph;
use crate::callable::CallableNames;
use crate::error::graph_error;
use crate::graph::node::PyNode;
use crate::runtime::op_name;

/// Halves of a change of opcode and target that users make in two assignments, one after the other.
/// The node keeps its old opcode and target until the two halves fit.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) op: Option<Op>,
    pub(super) target: Option<Py<PyAny>>,
}

impl PyGraph {
    /// The function for `callable` in this graph, added if it is new.
    pub(crate) fn function(
        graph: &Bound<'_, Self>,
        callable: &Bound<'_, PyAny>,
    ) -> PyResult<FunctionId> {
        if let Some(known) = graph
            .try_borrow()?
            .host
            .known_function(callable.as_unbound())
        {
            return Ok(known);
        }
        if !callable.is_callable() {
            return Err(PyValueError::new_err(format!(
                "call_function node: target {} has type {} but a Callable is expected",
                callable.str()?.to_string_lossy(),
                callable.get_type().name()?
            )));
        }
        let names = CallableNames::of(callable)?;
        let mut borrowed = graph.try_borrow_mut()?;
        let (ir, host) = borrowed.parts_mut();
        Ok(match host.known_function(callable.as_unbound()) {
            Some(known) => known,
            None => host.add_function(ir, callable, &names),
        })
    }

    /// The target of a node, as Python sees it.
    pub(crate) fn target_object(&self, py: Python<'_>, id: NodeId) -> PyResult<Py<PyAny>> {
        if let Some(target) = self.pending.get(&id).and_then(|p| p.target.as_ref()) {
            return Ok(target.clone_ref(py));
        }
        match self.ir.node(id).target() {
            Target::Name(symbol) => Ok(PyString::intern(py, self.ir.text(symbol))
                .into_any()
                .unbind()),
            Target::Function(function) => match self.host.function_object(function) {
                Some(object) => Ok(object.clone_ref(py)),
                None => Err(PyRuntimeError::new_err(format!(
                    "node {} calls {}, which no Python object stands behind",
                    self.ir.node(id).name(),
                    self.ir.function_name(function)
                ))),
            },
        }
    }

    /// The opcode of a node, as Python sees it.
    pub(crate) fn op_text<'py>(&self, py: Python<'py>, id: NodeId) -> &Bound<'py, PyString> {
        if id.is_root() {
            return intern!(py, "root");
        }
        op_name(py, self.pending_op(id).unwrap_or(self.ir.node(id).op()))
    }

    /// Changes the graph, and updates the opcodes and targets that Python sees, also where `change`
    /// fails half way.
    ///
    /// # Errors
    /// Those of `change`, and an error if a node waits for the second half of a change of opcode
    /// and target: its meaning is unknown.
    pub(crate) fn edit<T>(
        graph: &Bound<'_, Self>,
        change: impl FnOnce(&mut Graph) -> PyResult<T>,
    ) -> PyResult<T> {
        if let Some(message) = graph.try_borrow()?.unsettled() {
            return Err(PyValueError::new_err(message));
        }
        Self::edit_unsettled(graph, change)
    }

    fn edit_unsettled<T>(
        graph: &Bound<'_, Self>,
        change: impl FnOnce(&mut Graph) -> PyResult<T>,
    ) -> PyResult<T> {
        let (answer, retargeted) = {
            let mut borrowed = graph.try_borrow_mut()?;
            let answer = change(borrowed.ir_mut());
            (answer, borrowed.ir.take_retargeted())
        };
        if !retargeted.is_empty() {
            PyNode::renew(graph, retargeted.into_iter())?;
        }
        answer
    }

    /// The error message if a node waits for the second half of a change of opcode and target.
    pub(crate) fn unsettled(&self) -> Option<String> {
        let nodes = self.pending.keys().copied();
        let first = nodes.filter(|&id| self.ir.contains(id)).min()?;
        Some(format!(
            "node {}: its target does not fit its opcode; call_function takes a callable, every other \
             opcode a str",
            self.ir.node(first).name()
        ))
    }

    /// The new opcode of a node that waits for the second half of a change of opcode and target.
    pub(crate) fn pending_op(&self, id: NodeId) -> Option<Op> {
        self.pending.get(&id).and_then(|p| p.op)
    }

    /// Sets the opcode; if the target does not fit it, waits for the new target.
    pub(crate) fn set_op(graph: &Bound<'_, Self>, id: NodeId, op: Op) -> PyResult<()> {
        let waiting = {
            let mut borrowed = graph.try_borrow_mut()?;
            borrowed.pending.entry(id).or_default().op = Some(op);
            borrowed.target_object(graph.py(), id)?
        };
        let settled = Self::settle(graph, id, op, waiting.bind(graph.py()));
        PyNode::renew(graph, std::iter::once(id))?;
        settled
    }

    /// Sets the target; if the opcode does not fit it, waits for the new opcode.
    pub(crate) fn set_target(
        graph: &Bound<'_, Self>,
        id: NodeId,
        target: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let op = {
            let mut borrowed = graph.try_borrow_mut()?;
            let op = borrowed.pending_op(id).unwrap_or(borrowed.ir.node(id).op());
            borrowed.pending.entry(id).or_default().target = Some(target.clone().unbind());
            op
        };
        let settled = Self::settle(graph, id, op, target);
        PyNode::renew(graph, std::iter::once(id))?;
        settled
    }

    fn settle(
        graph: &Bound<'_, Self>,
        id: NodeId,
        op: Op,
        target: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let name = target.cast::<PyString>().ok();
        let target = match (op, name) {
            (Op::CallFunction, None) if target.is_callable() => {
                Target::Function(Self::function(graph, target)?)
            }
            (Op::CallFunction, _) | (_, None) => return Ok(()),
            (_, Some(name)) => {
                let text = name.to_str()?;
                Target::Name(graph.try_borrow_mut()?.parts_to_extend().0.intern(text))
            }
        };
        Self::edit_unsettled(graph, |ir| {
            ir.set_op_and_target(id, op, target).map_err(graph_error)
        })?;
        let settled = graph.try_borrow_mut()?.pending.remove(&id);
        drop(settled);
        Ok(())
    }
}
