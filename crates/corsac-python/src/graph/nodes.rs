//! `graph.nodes`: the nodes in order, as a live view.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use corsac_ir::{EntityId, NodeId};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::graph::node::PyNode;
use crate::graph::node_class::Slot;
use crate::graph::{Changes, PyGraph};

/// The nodes of a graph in order, or in reverse. Nodes may come and go during an iteration: those
/// inserted ahead are seen, erased ones are not.
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

    fn __iter__(&self, py: Python<'_>) -> PyResult<PyNodeIterator> {
        PyNodeIterator::start(self.graph.bind(py), self.reversed)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<PyNodeIterator> {
        PyNodeIterator::start(self.graph.bind(py), !self.reversed)
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

/// Largest number of nodes that are looked up at once.
const AHEAD: usize = 16;

/// A position in the list of nodes.
///
/// The next few nodes are looked up together and cached, for as long as the graph does not change.
#[pyclass(name = "NodeIterator", module = "corsac.fx.graph", frozen)]
pub(crate) struct PyNodeIterator {
    graph: Py<PyGraph>,
    reversed: bool,
    /// Index of the node before the first one in `ahead`, the root's at first; `DONE` after the
    /// last one.
    before: AtomicUsize,
    changes: Changes,
    /// The count of changes when `ahead` was filled.
    seen: AtomicU64,
    ahead: [Slot<PyNode>; AHEAD],
    /// Their indices: a loop that only counts need not read its nodes.
    indices: [AtomicUsize; AHEAD],
    /// The range of `ahead` that is still to be returned.
    begin: AtomicUsize,
    end: AtomicUsize,
}

const DONE: usize = usize::MAX;

// One thread at a time holds the interpreter: loads and stores cannot interleave.
fn get(value: &AtomicUsize) -> usize {
    value.load(Ordering::Relaxed)
}

fn set(value: &AtomicUsize, new: usize) {
    value.store(new, Ordering::Relaxed);
}

impl PyNodeIterator {
    fn start(graph: &Bound<'_, PyGraph>, reversed: bool) -> PyResult<Self> {
        Ok(Self {
            graph: graph.clone().unbind(),
            reversed,
            before: AtomicUsize::new(NodeId::ROOT.index()),
            changes: graph.try_borrow()?.changes().clone(),
            seen: AtomicU64::new(0),
            ahead: Default::default(),
            indices: Default::default(),
            begin: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
        })
    }

    /// The next of the nodes that were looked up, if it is still the next one. Neither panics nor
    /// drops an object.
    #[inline]
    pub(crate) fn known(&self, py: Python<'_>) -> Option<Py<PyNode>> {
        let begin = get(&self.begin);
        if begin == get(&self.end) || self.changes.count() != self.seen.load(Ordering::Relaxed) {
            return None;
        }
        let node = self.ahead.get(begin)?.take(py)?;
        set(&self.begin, begin + 1);
        Some(node)
    }

    /// Index of the node returned last, or else the value of `before`.
    fn at(&self) -> usize {
        let answered = get(&self.begin).checked_sub(1);
        get(answered.map_or(&self.before, |last| &self.indices[last]))
    }

    /// Looks up the nodes after the one returned last: one at first and where the graph has changed
    /// in between, otherwise twice as many as before.
    #[inline(never)]
    fn look_ahead(&self, py: Python<'_>) -> PyResult<()> {
        let graph = self.graph.bind(py);
        let borrowed = graph.try_borrow()?;
        let ir = borrowed.ir();
        let used_up = get(&self.begin) == get(&self.end);
        let wanted = if used_up { 2 * get(&self.end) } else { 1 };
        let wanted = wanted.clamp(1, AHEAD);
        let handles = borrowed.host().handles();
        let start = self.at();
        set(&self.before, start);
        set(&self.begin, 0);
        set(&self.end, 0);
        let (mut at, mut end) = (NodeId::from_index(start), 0);
        // Dropped at the end: that may run any code.
        let mut stale = Vec::new();
        for (slot, index) in self.ahead.iter().zip(&self.indices).take(wanted) {
            at = if self.reversed {
                ir.prev(at)
            } else {
                ir.next(at)
            };
            if at.is_root() {
                break;
            }
            let node = match handles.get(py, at) {
                Some(node) => node,
                None => PyNode::handle(graph, borrowed.host(), at)?,
            };
            stale.extend(slot.replace(py, Some(node)));
            set(index, at.index());
            end += 1;
        }
        drop(borrowed);
        set(&self.end, end);
        self.seen.store(self.changes.count(), Ordering::Relaxed);
        drop(stale);
        Ok(())
    }
}

#[pymethods]
impl PyNodeIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyNode>>> {
        if let Some(node) = self.known(py) {
            return Ok(Some(node));
        }
        if self.at() == DONE {
            return Ok(None);
        }
        self.look_ahead(py)?;
        let node = self.known(py);
        if node.is_none() {
            set(&self.before, DONE);
        }
        Ok(node)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.graph)?;
        self.ahead.iter().try_for_each(|node| node.visit(&visit))
    }
}
