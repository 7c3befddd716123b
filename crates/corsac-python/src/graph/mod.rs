//! `Graph`: the native half of `corsac.fx.Graph`. Creating nodes is in [`create`], copying them in
//! [`copy`], opcodes and targets as Python sees them in [`target`], metadata in [`meta`]. The
//! Python objects that a graph refers to are in [`host`], handles of nodes in [`node`].

mod changes;
mod copy;
mod create;
mod handles;
pub(crate) mod host;
mod insert_point;
mod meta;
mod next_slot;
pub(crate) mod node;
pub(crate) mod node_class;
mod nodes;
pub(crate) mod source;
mod target;
mod users;
pub(crate) mod value;

use corsac_ir::{Graph, InsertPoint, NodeId, Op, Target};
use pyo3::exceptions::{PyAssertionError, PyRuntimeError, PyUserWarning};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use rustc_hash::FxHashMap;

use crate::error::graph_error;
use crate::graph::host::Host;
use crate::graph::insert_point::PyInsertPoint;
use crate::graph::node::PyNode;
use crate::graph::nodes::PyNodes;
use crate::graph::value::{Reader, Writer};
use crate::packages::refuse_torch_reader;
use crate::runtime::TorchValues;

pub(crate) use changes::Changes;
use changes::Counted;
pub(crate) use create::name_target;
use target::Pending;

/// Adds the module's classes and functions to `m`.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyGraph>()?;
    m.add("Node", node_class::node_class(m.py())?)?;
    m.add_class::<nodes::PyNodes>()?;
    m.add_class::<nodes::PyNodeIterator>()?;
    next_slot::shorten(m.py());
    m.add_class::<users::PyUsers>()?;
    m.add_class::<insert_point::PyInsertPoint>()?;
    m.add_class::<source::PySourceNotes>()?;
    m.add_function(wrap_pyfunction!(source::user_frame, m)?)?;
    m.add_function(wrap_pyfunction!(source::user_location, m)?)?;
    Ok(())
}

/// A program: nodes in order. The Python class `corsac.fx.Graph` derives from this one and adds
/// code generation.
#[pyclass(name = "Graph", module = "corsac._core", subclass, weakref)]
#[derive(Default)]
pub(crate) struct PyGraph {
    ir: Counted,
    host: Host,
    /// Grows with every change of an existing node, which makes the caches of handles stale.
    version: u64,
    owning_module: Option<Py<PyAny>>,
    pending: FxHashMap<NodeId, Pending>,
}

impl PyGraph {
    pub(crate) fn ir(&self) -> &Graph {
        &self.ir
    }

    /// The graph, for changes of anything but opcodes and targets, which need [`PyGraph::edit`].
    /// Arguments that handles have cached are stale from now on.
    pub(crate) fn ir_mut(&mut self) -> &mut Graph {
        self.version += 1;
        self.ir.change()
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    pub(crate) fn host_mut(&mut self) -> &mut Host {
        &mut self.host
    }

    /// Both halves at once, for additions that change nothing that exists.
    pub(crate) fn parts_to_extend(&mut self) -> (&mut Graph, &mut Host) {
        (self.ir.change(), &mut self.host)
    }

    /// Both halves at once, as [`PyGraph::ir_mut`].
    pub(crate) fn parts_mut(&mut self) -> (&mut Graph, &mut Host) {
        self.version += 1;
        (self.ir.change(), &mut self.host)
    }

    /// Forgets the Python objects of an erased node. The result has to be dropped when nothing is
    /// borrowed.
    pub(crate) fn forget_erased(&mut self, py: Python<'_>, id: NodeId) -> impl Sized + use<> {
        (self.host.release_handle(py, id), self.pending.remove(&id))
    }

    /// A view of the number of changes of the graph.
    pub(crate) fn changes(&self) -> &Changes {
        self.ir.changes()
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// A converter of this graph's arguments to Python values.
    pub(crate) fn writer<'a, 'py>(&'a self, owner: &'a Bound<'py, Self>) -> Writer<'a, 'py> {
        Writer {
            graph: owner,
            ir: &self.ir,
            host: &self.host,
            immutable: true,
        }
    }

    /// Runs `change` with a reader of Python values, while the graph is borrowed.
    pub(crate) fn change<'py, T>(
        graph: &Bound<'py, Self>,
        change: impl FnOnce(&mut Reader<'_, 'py>) -> PyResult<T>,
    ) -> PyResult<T> {
        let torch = TorchValues::get(graph.py())?;
        let mut borrowed = graph.try_borrow_mut()?;
        let (ir, host) = borrowed.parts_mut();
        change(&mut Reader {
            ir,
            host,
            owner: graph,
            torch,
        })
    }

    /// The owning module's list of hooks called `name`, if it has any.
    pub(crate) fn hooks<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let Some(module) = &self.owning_module else {
            return Ok(None);
        };
        // Past Module.__getattr__: hooks are plain attributes.
        let Some(hooks) = module.bind(py).getattr_opt(name)? else {
            return Ok(None);
        };
        if hooks.is_none() {
            return Ok(None);
        }
        let hooks = hooks.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        Ok((!hooks.is_empty()).then_some(hooks))
    }

    /// Releases the objects kept for those of `ids` that have been erased. Handles live as long as
    /// somebody else holds them.
    pub(crate) fn release_erased(
        graph: &Bound<'_, Self>,
        ids: impl Iterator<Item = NodeId>,
    ) -> PyResult<()> {
        let py = graph.py();
        let released: Vec<_> = {
            let mut borrowed = graph.try_borrow_mut()?;
            let me = &mut *borrowed;
            ids.filter(|&id| me.ir.node(id).is_erased())
                .map(|id| (me.host.release_handle(py, id), me.pending.remove(&id)))
                .collect()
        };
        drop(released);
        Ok(())
    }

    /// Id of `node`, which has to be a node of this graph.
    pub(crate) fn own(graph: &Bound<'_, Self>, node: &Bound<'_, PyNode>) -> PyResult<NodeId> {
        let handle = node.get();
        if !handle.graph_is(graph) {
            return Err(PyRuntimeError::new_err(format!(
                "node {} belongs to another graph",
                handle.name_or_id(graph.py())
            )));
        }
        Ok(handle.id())
    }

    /// As [`PyGraph::own`], with torch.fx's exception for insertion points.
    fn insertion_node(
        graph: &Bound<'_, Self>,
        node: &Bound<'_, PyNode>,
        place: &str,
    ) -> PyResult<NodeId> {
        Self::own(graph, node).map_err(|error| {
            let why = error.value(graph.py());
            PyAssertionError::new_err(format!("Node to insert {place} is not in graph.\n{why}"))
        })
    }
}

#[pymethods]
impl PyGraph {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    /// The module that runs this graph, if one does.
    #[getter]
    fn owning_module(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.owning_module
            .as_ref()
            .map(|module| module.clone_ref(py))
    }

    #[setter]
    fn set_owning_module(slf: &Bound<'_, Self>, module: Option<Py<PyAny>>) -> PyResult<()> {
        let replaced = std::mem::replace(&mut slf.try_borrow_mut()?.owning_module, module);
        drop(replaced);
        Ok(())
    }

    /// The nodes in order: a live view that can be iterated both ways while the graph changes.
    #[getter]
    fn nodes(slf: &Bound<'_, Self>) -> PyResult<PyNodes> {
        refuse_torch_reader(slf.py())?;
        Ok(PyNodes::forward(slf))
    }

    /// The sentinel that closes the list of nodes.
    #[getter]
    fn _root(slf: &Bound<'_, Self>) -> PyResult<Py<PyNode>> {
        PyNode::handle(slf, &slf.try_borrow()?.host, NodeId::ROOT)
    }

    /// Number of nodes.
    #[getter]
    fn _len(&self) -> usize {
        self.ir.len()
    }

    /// Removes a node without users from the graph.
    pub(crate) fn erase_node(slf: &Bound<'_, Self>, to_erase: &Bound<'_, PyNode>) -> PyResult<()> {
        let py = slf.py();
        let id = Self::own(slf, to_erase).map_err(|_| {
            let name = to_erase.get().name_or_id(py);
            PyRuntimeError::new_err(format!("Attempting to remove {name} from wrong graph!"))
        })?;
        let hooks = {
            let borrowed = slf.try_borrow()?;
            let node = borrowed.ir.node(id);
            if node.num_users() > 0 {
                let users: Vec<_> = node.users().map(|u| borrowed.ir.node(u).name()).collect();
                return Err(PyRuntimeError::new_err(format!(
                    "Tried to erase Node {} but it still had {} users in the graph: {}!",
                    node.name(),
                    users.len(),
                    shown_users(&users)
                )));
            }
            if node.is_erased() {
                let message = format!("erase_node({}) on an already erased node", node.name());
                drop(borrowed);
                let category = py.get_type::<PyUserWarning>();
                return PyErr::warn(py, &category, &warning_text(message), 1);
            }
            borrowed.hooks(py, intern!(py, "_erase_node_hooks"))?
        };
        for hook in hooks.into_iter().flatten() {
            hook.call1((to_erase,))?;
        }
        let released = {
            let mut borrowed = slf.try_borrow_mut()?;
            borrowed.ir_mut().erase(id).map_err(graph_error)?;
            borrowed.forget_erased(py, id)
        };
        drop(released);
        Ok(())
    }

    /// Sets the insertion point before `n`; before everything for None. As a context manager, until
    /// the end of the `with` block.
    #[pyo3(signature = (n = None))]
    fn inserting_before(
        slf: &Bound<'_, Self>,
        n: Option<&Bound<'_, PyNode>>,
    ) -> PyResult<PyInsertPoint> {
        PyInsertPoint::set(
            slf,
            match n {
                Some(node) => InsertPoint::Before(Self::insertion_node(slf, node, "before")?),
                None => InsertPoint::After(NodeId::ROOT),
            },
        )
    }

    /// Sets the insertion point right after `n`; after everything for None. As a context manager,
    /// until the end of the `with` block.
    #[pyo3(signature = (n = None))]
    fn inserting_after(
        slf: &Bound<'_, Self>,
        n: Option<&Bound<'_, PyNode>>,
    ) -> PyResult<PyInsertPoint> {
        PyInsertPoint::set(
            slf,
            match n {
                Some(node) => InsertPoint::After(Self::insertion_node(slf, node, "after")?),
                None => InsertPoint::Before(NodeId::ROOT),
            },
        )
    }

    /// The nodes with this opcode, and this target where one is given, in time proportional to
    /// their number. With `sort`, in graph order.
    #[pyo3(signature = (*, op, target = None, sort = true))]
    fn find_nodes<'py>(
        slf: &Bound<'py, Self>,
        op: &str,
        target: Option<&Bound<'py, PyAny>>,
        sort: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        // Graph order is an order, so it also serves where none is asked for.
        let _ = sort;
        let Ok(op) = op.parse::<Op>() else {
            return Ok(PyList::empty(slf.py()));
        };
        let borrowed = slf.try_borrow()?;
        let target = match target {
            None if op == Op::CallFunction => {
                return Err(PyAssertionError::new_err(
                    "target must not be None for call_function op",
                ));
            }
            None => None,
            Some(target) => {
                let found = match (op, target.cast::<PyString>()) {
                    (Op::CallFunction, _) => borrowed
                        .host
                        .known_function(target.as_unbound())
                        .map(Target::Function),
                    (_, Ok(name)) => borrowed.ir.lookup(name.to_str()?).map(Target::Name),
                    (_, Err(_)) => None,
                };
                if found.is_none() {
                    return Ok(PyList::empty(slf.py()));
                }
                found
            }
        };
        let nodes: Vec<_> = borrowed
            .ir
            .find_nodes(op, target)
            .into_iter()
            .map(|id| PyNode::handle(slf, &borrowed.host, id))
            .collect::<PyResult<_>>()?;
        PyList::new(slf.py(), nodes)
    }

    /// The qualified names of the attributes and modules that the graph uses, each once, in the
    /// order of their first use.
    fn _state_names<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let borrowed = slf.try_borrow()?;
        let ir = &borrowed.ir;
        let mut seen = rustc_hash::FxHashSet::default();
        let names = ir.nodes().filter_map(|id| {
            let node = ir.node(id);
            let uses_state = matches!(node.op(), Op::GetAttr | Op::CallModule);
            (uses_state && seen.insert(node.target())).then(|| node.target_name())
        });
        PyList::new(slf.py(), names.collect::<Vec<_>>())
    }

    /// The output node, which is the last one.
    fn output_node(slf: &Bound<'_, Self>) -> PyResult<Py<PyNode>> {
        let borrowed = slf.try_borrow()?;
        let last = borrowed.ir.prev(NodeId::ROOT);
        if last.is_root() {
            return Err(PyAssertionError::new_err(
                "the graph is empty: it has no output node",
            ));
        }
        let node = borrowed.ir.node(last);
        if node.op() != Op::Output {
            return Err(PyAssertionError::new_err(format!(
                "the last node of the graph is {}, a {} node, not an output node",
                node.name(),
                node.op()
            )));
        }
        PyNode::handle(slf, &borrowed.host, last)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.owning_module)?;
        self.pending
            .values()
            .try_for_each(|p| visit.call(&p.target))?;
        self.host.traverse(&visit)
    }

    fn __clear__(&mut self) {
        self.owning_module = None;
        self.pending.clear();
        self.host.clear();
    }
}

/// Converts a message for the warnings module.
fn warning_text(message: String) -> std::ffi::CString {
    std::ffi::CString::new(message.replace('\0', " ")).unwrap_or_default()
}

/// Names of users, as Python prints a dictionary of them.
fn shown_users(names: &[&str]) -> String {
    let entries: Vec<_> = names.iter().map(|name| format!("{name}: None")).collect();
    format!("{{{}}}", entries.join(", "))
}
