//! `Node`: a handle on one node of a graph.

use std::sync::atomic::{AtomicU64, Ordering};

use corsac_ir::{NodeId, Op};
use pyo3::exceptions::{PyAssertionError, PyRuntimeError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::error::graph_error;
use crate::graph::PyGraph;
use crate::graph::host::Host;
use crate::graph::node_class::{Slot, Slots, become_node, set_attribute};
use crate::graph::source::node_source;
use crate::graph::users::PyUsers;

/// One step of a program: its operation (`op`), the function, module or name that it applies to
/// (`target`), and its arguments (`args`, `kwargs`).
///
/// A node is made by the methods of `Graph` and is the same object (`is`) for as long as it is in
/// its graph. `meta` is a dictionary for notes about the node, and other attributes may be set
/// freely.
///
/// The opcodes are `placeholder` (an input; `args` is empty or holds its default value), `get_attr`
/// (a parameter or another attribute, by qualified name), `call_function`, `call_method` (on
/// `args[0]`), `call_module` and `output` (returns `args[0]`).
#[pyclass(name = "_NodeBase", module = "corsac._core", frozen, weakref, subclass)]
pub(crate) struct PyNode {
    slots: Slots,
    graph: Py<PyGraph>,
    id: NodeId,
    users: Slot<PyUsers>,
    /// Version of the graph for which the cached arguments are valid.
    version: AtomicU64,
    args: Slot<PyTuple>,
    kwargs: Slot,
}

impl PyNode {
    /// The handle of `id`: the existing one, or a new one.
    pub(crate) fn handle(
        graph: &Bound<'_, PyGraph>,
        host: &Host,
        id: NodeId,
    ) -> PyResult<Py<Self>> {
        let py = graph.py();
        if let Some(handle) = host.handles().get(py, id) {
            return Ok(handle);
        }
        let handle = Self {
            slots: Slots::default(),
            graph: graph.clone().unbind(),
            id,
            users: Slot::default(),
            version: AtomicU64::default(),
            args: Slot::default(),
            kwargs: Slot::default(),
        };
        handle.fill_slots(py, &*graph.try_borrow()?);
        let handle = Bound::new(py, handle)?;
        become_node(&handle)?;
        Ok(host.handles().keep(py, id, handle.unbind()))
    }

    /// The handle of `id`, in a graph that is not being changed.
    pub(crate) fn of(graph: &Bound<'_, PyGraph>, id: NodeId) -> PyResult<Py<Self>> {
        Self::handle(graph, graph.try_borrow()?.host(), id)
    }

    /// The handles of `ids`, in a graph that is not being changed.
    pub(crate) fn all(graph: &Bound<'_, PyGraph>, ids: &[NodeId]) -> PyResult<Vec<Py<Self>>> {
        let borrowed = graph.try_borrow()?;
        let handle = |&id| Self::handle(graph, borrowed.host(), id);
        ids.iter().map(handle).collect()
    }

    /// A handle of no node, which shows the layout of handles.
    pub(crate) fn example(py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            slots: Slots::default(),
            graph: Py::new(py, PyGraph::default())?,
            id: NodeId::ROOT,
            users: Slot::default(),
            version: AtomicU64::default(),
            args: Slot::default(),
            kwargs: Slot::default(),
        })
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Copies opcode and target from the graph to the slots that Python reads. Returns the old
    /// ones, to be dropped when nothing is borrowed.
    fn fill_slots(&self, py: Python<'_>, graph: &PyGraph) -> impl Sized + use<> {
        let op = graph.op_text(py, self.id).clone().unbind();
        // Without a callable behind it there is no target to read.
        let target = graph.target_object(py, self.id).ok();
        (
            self.slots.op.replace(py, Some(op)),
            self.slots.target.replace(py, target),
        )
    }

    /// Renews the slots of `nodes`, whose opcodes or targets have changed.
    pub(crate) fn renew(
        graph: &Bound<'_, PyGraph>,
        nodes: impl Iterator<Item = NodeId>,
    ) -> PyResult<()> {
        let py = graph.py();
        let replaced: Vec<_> = {
            let borrowed = graph.try_borrow()?;
            let handles = nodes.filter_map(|id| borrowed.host().handles().get(py, id));
            handles
                .map(|handle| handle.get().fill_slots(py, &borrowed))
                .collect()
        };
        drop(replaced);
        Ok(())
    }

    pub(crate) fn id(&self) -> NodeId {
        self.id
    }

    pub(crate) fn graph_is(&self, graph: &Bound<'_, PyGraph>) -> bool {
        self.graph.is(graph)
    }

    pub(crate) fn graph<'py>(&self, py: Python<'py>) -> &Bound<'py, PyGraph> {
        self.graph.bind(py)
    }

    fn read<'py>(&self, py: Python<'py>) -> PyResult<PyRef<'py, PyGraph>> {
        Ok(self.graph.bind(py).try_borrow()?)
    }

    /// The node's name, for a message.
    pub(crate) fn name_or_id(&self, py: Python<'_>) -> String {
        self.read(py).map_or_else(
            |_| self.id.to_string(),
            |g| g.ir().node(self.id).name().to_owned(),
        )
    }

    /// Id of `other`, which has to be in the same graph.
    fn sibling(&self, py: Python<'_>, other: &Bound<'_, PyNode>) -> PyResult<NodeId> {
        let other = other.get();
        if !other.graph_is(self.graph.bind(py)) {
            return Err(PyRuntimeError::new_err(format!(
                "node {} and node {} are in different graphs",
                self.name_or_id(py),
                other.name_or_id(py)
            )));
        }
        Ok(other.id)
    }

    /// Id of `x`, which is moved next to this node; None if it is this node, which stays where it
    /// is.
    fn moved_node(&self, py: Python<'_>, x: &Bound<'_, PyNode>) -> PyResult<Option<NodeId>> {
        if !x.get().graph_is(self.graph.bind(py)) {
            return Err(PyAssertionError::new_err(format!(
                "Attempting to move a Node into a different Graph\nnode {} cannot be moved next to \
                 node {} of another graph",
                x.get().name_or_id(py),
                self.name_or_id(py)
            )));
        }
        Ok((x.get().id != self.id).then_some(x.get().id))
    }

    fn set_arguments(
        &self,
        py: Python<'_>,
        args: Option<&Bound<'_, PyTuple>>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let graph = self.graph.bind(py);
        PyGraph::change(graph, |reader| {
            let node = reader.ir.node(self.id);
            let (old_args, old_kwargs) = (node.args().into(), node.kwargs().into());
            let args = args.map_or(Ok(old_args), |args| reader.args(args))?;
            let kwargs = kwargs.map_or(Ok(old_kwargs), |kwargs| reader.kwargs(kwargs))?;
            reader
                .ir
                .set_arguments(self.id, args, kwargs)
                .map_err(graph_error)
        })
    }

    /// Calls the replace hooks of the owning module, if it has any.
    pub(crate) fn call_replace_hooks(
        &self,
        py: Python<'_>,
        new_name: &Bound<'_, PyAny>,
        users: &[Py<PyNode>],
        old: &Bound<'_, PyNode>,
    ) -> PyResult<()> {
        let Some(hooks) = self.read(py)?.hooks(py, intern!(py, "_replace_hooks"))? else {
            return Ok(());
        };
        for user in users {
            for hook in &hooks {
                let kwargs = PyDict::new(py);
                kwargs.set_item("old", old)?;
                kwargs.set_item("new", new_name)?;
                kwargs.set_item("user", user)?;
                hook.call((), Some(&kwargs))?;
            }
        }
        Ok(())
    }
}

#[pymethods]
impl PyNode {
    /// Makes a node at the insertion point of `graph`, as the graph's own methods do. `name` is a
    /// preference: the node gets the first free name based on it.
    #[new]
    #[pyo3(signature = (graph, name, op, target, args, kwargs, return_type = None))]
    fn new<'py>(
        graph: &Bound<'py, PyGraph>,
        name: &str,
        op: &str,
        target: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
        return_type: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Py<PyNode>> {
        let (args, kwargs) = (Some(args), Some(kwargs));
        PyGraph::create(
            graph,
            parse_op(op)?,
            target,
            args,
            kwargs,
            Some(name),
            return_type,
        )
    }

    /// The graph that the node is in.
    #[getter(graph)]
    fn py_graph(&self, py: Python<'_>) -> Py<PyGraph> {
        self.graph.clone_ref(py)
    }

    /// The name of the value, unique in its graph.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        Ok(PyString::new(py, self.read(py)?.ir().node(self.id).name()))
    }

    #[setter]
    fn set_name(slf: &Bound<'_, Self>, name: &Bound<'_, PyString>) -> PyResult<()> {
        let (py, me) = (slf.py(), slf.get());
        let users = PyUsers::handles(me.graph.bind(py), me.id)?;
        me.call_replace_hooks(py, name.as_any(), &users, slf)?;
        let mut graph = me.graph.bind(py).try_borrow_mut()?;
        graph
            .ir_mut()
            .set_name(me.id, name.to_str()?)
            .map_err(graph_error)
    }

    /// Positional arguments. Assign a tuple to change them.
    #[getter]
    fn args(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        let graph = self.graph.bind(py);
        let borrowed = graph.try_borrow()?;
        if let Some(args) = self.remembered(py, &self.args, borrowed.version()) {
            return Ok(args);
        }
        let args = borrowed
            .writer(graph)
            .args(borrowed.ir().node(self.id).args())?
            .unbind();
        self.remember(py, &self.args, args.clone_ref(py), borrowed.version());
        Ok(args)
    }

    #[setter]
    fn set_args(&self, py: Python<'_>, args: &Bound<'_, PyAny>) -> PyResult<()> {
        let args = match args.cast::<PyTuple>() {
            Ok(tuple) => tuple.clone(),
            Err(_) => match args.cast::<PyList>() {
                Ok(list) => list.to_tuple(),
                Err(_) => {
                    return Err(PyTypeError::new_err(format!(
                        "args of node {} must be a tuple, got {}",
                        self.name_or_id(py),
                        args.get_type().name()?
                    )));
                }
            },
        };
        self.set_arguments(py, Some(&args), None)
    }

    /// Keyword arguments. Assign a dictionary to change them.
    #[getter]
    fn kwargs(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let graph = self.graph.bind(py);
        let borrowed = graph.try_borrow()?;
        if let Some(kwargs) = self.remembered(py, &self.kwargs, borrowed.version()) {
            return Ok(kwargs);
        }
        let node = borrowed.ir().node(self.id);
        let kwargs = borrowed.writer(graph).kwargs(node.kwargs())?.unbind();
        self.remember(py, &self.kwargs, kwargs.clone_ref(py), borrowed.version());
        Ok(kwargs)
    }

    #[setter]
    fn set_kwargs(&self, py: Python<'_>, kwargs: &Bound<'_, PyDict>) -> PyResult<()> {
        self.set_arguments(py, None, Some(kwargs))
    }

    #[getter(_args)]
    fn private_args(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        self.args(py)
    }

    #[getter(_kwargs)]
    fn private_kwargs(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.kwargs(py)
    }

    /// Replaces both kinds of arguments at once.
    fn _update_args_kwargs(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        self.set_arguments(py, Some(args), Some(kwargs))
    }

    /// The nodes that use this one, each once, in the order in which they came to use it: a live
    /// view with the methods of a dictionary whose values are None.
    #[getter]
    fn users(slf: &Bound<'_, Self>) -> PyResult<Py<PyUsers>> {
        let (py, me) = (slf.py(), slf.get());
        if let Some(users) = me.users.get(py) {
            return Ok(users);
        }
        let users = Py::new(py, PyUsers::of(slf))?;
        // Making an object may run the garbage collector, and so any code.
        if let Some(users) = me.users.get(py) {
            return Ok(users);
        }
        me.users.replace(py, Some(users.clone_ref(py)));
        Ok(users)
    }

    /// The nodes that this one uses, each once, in the order of the arguments.
    #[getter]
    fn all_input_nodes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let graph = self.graph.bind(py);
        let borrowed = graph.try_borrow()?;
        let inputs: Vec<_> = borrowed
            .ir()
            .inputs(self.id)
            .map(|id| Self::handle(graph, borrowed.host(), id))
            .collect::<PyResult<_>>()?;
        PyList::new(py, inputs)
    }

    #[getter(_input_nodes)]
    fn input_nodes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for node in self.all_input_nodes(py)? {
            dict.set_item(node, py.None())?;
        }
        Ok(dict)
    }

    /// A type annotation for the value, or None.
    #[getter(r#type)]
    fn ty(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let graph = self.read(py)?;
        Ok(match graph.ir().node(self.id).ty() {
            Some(ty) => graph.host().external_object(py, ty).unbind(),
            None => py.None(),
        })
    }

    #[setter(r#type)]
    fn set_ty(&self, py: Python<'_>, ty: &Bound<'_, PyAny>) -> PyResult<()> {
        PyGraph::change(self.graph.bind(py), |reader| {
            let ty = (!ty.is_none()).then(|| reader.host.external(reader.ir, ty));
            reader.ir.set_ty(self.id, ty).map_err(graph_error)
        })
    }

    /// A dictionary for notes about the node. Copied with the node.
    #[getter]
    fn meta(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        PyGraph::meta(self.graph.bind(py), self.id)
    }

    #[setter]
    fn set_meta(&self, py: Python<'_>, meta: &Bound<'_, PyAny>) -> PyResult<()> {
        let replaced = {
            let mut graph = self.graph.bind(py).try_borrow_mut()?;
            graph.host_mut().set_meta(self.id, meta.clone().unbind())
        };
        drop(replaced);
        Ok(())
    }

    /// The Python stack trace recorded when the node was made, if there is one.
    #[getter]
    fn stack_trace(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let meta = self.meta(py)?;
        Ok(meta
            .bind(py)
            .call_method1(intern!(py, "get"), ("stack_trace",))?
            .unbind())
    }

    #[setter]
    fn set_stack_trace(&self, py: Python<'_>, trace: &Bound<'_, PyAny>) -> PyResult<()> {
        self.meta(py)?.bind(py).set_item("stack_trace", trace)
    }

    /// Location in the user's program where the node was made: file, line, function and module
    /// path, or None where no program made it.
    #[getter]
    fn source<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        node_source(self.graph.bind(py), self.id)
    }

    /// The node after this one; after the last comes the graph's root.
    #[getter]
    fn next(&self, py: Python<'_>) -> PyResult<Py<PyNode>> {
        let graph = self.graph.bind(py);
        let borrowed = graph.try_borrow()?;
        Self::handle(graph, borrowed.host(), borrowed.ir().next(self.id))
    }

    /// The node before this one; before the first comes the graph's root.
    #[getter]
    fn prev(&self, py: Python<'_>) -> PyResult<Py<PyNode>> {
        let graph = self.graph.bind(py);
        let borrowed = graph.try_borrow()?;
        Self::handle(graph, borrowed.host(), borrowed.ir().prev(self.id))
    }

    #[getter(_next)]
    fn private_next(&self, py: Python<'_>) -> PyResult<Py<PyNode>> {
        self.next(py)
    }

    #[getter(_prev)]
    fn private_prev(&self, py: Python<'_>) -> PyResult<Py<PyNode>> {
        self.prev(py)
    }

    /// Whether the node was removed from its graph.
    #[getter]
    fn _erased(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.read(py)?.ir().node(self.id).is_erased())
    }

    /// A key that increases along the graph.
    #[getter]
    fn _sort_key(&self, py: Python<'_>) -> PyResult<(u64,)> {
        Ok((self.read(py)?.ir().node(self.id).order(),))
    }

    /// Moves `x`, a node of the same graph, to just before this node.
    fn prepend(&self, py: Python<'_>, x: &Bound<'_, PyNode>) -> PyResult<()> {
        let Some(x) = self.moved_node(py, x)? else {
            return Ok(());
        };
        let mut graph = self.graph.bind(py).try_borrow_mut()?;
        graph.ir_mut().move_before(x, self.id).map_err(graph_error)
    }

    /// Moves `x`, a node of the same graph, to just after this node.
    fn append(&self, py: Python<'_>, x: &Bound<'_, PyNode>) -> PyResult<()> {
        let Some(x) = self.moved_node(py, x)? else {
            return Ok(());
        };
        let mut graph = self.graph.bind(py).try_borrow_mut()?;
        graph.ir_mut().move_after(x, self.id).map_err(graph_error)
    }

    #[pyo3(name = "_prepend")]
    fn private_prepend(&self, py: Python<'_>, x: &Bound<'_, PyNode>) -> PyResult<()> {
        self.prepend(py, x)
    }

    /// Sets `args[idx]`.
    fn update_arg(&self, py: Python<'_>, idx: isize, arg: &Bound<'_, PyAny>) -> PyResult<()> {
        let args = self.args(py)?.bind(py).to_list();
        args.as_any().set_item(idx, arg)?;
        self.set_arguments(py, Some(&args.to_tuple()), None)
    }

    /// Inserts `arg` before `args[idx]`.
    fn insert_arg(&self, py: Python<'_>, idx: isize, arg: &Bound<'_, PyAny>) -> PyResult<()> {
        let args = self.args(py)?.bind(py).to_list();
        match usize::try_from(idx) {
            Ok(at) if at <= args.len() => args.insert(at, arg)?,
            _ => {
                return Err(PyAssertionError::new_err(format!(
                    "insert_arg index must be between 0 and {}, got {idx}",
                    args.len()
                )));
            }
        }
        self.set_arguments(py, Some(&args.to_tuple()), None)
    }

    /// Sets `kwargs[key]`.
    fn update_kwarg(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyString>,
        arg: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let kwargs = PyDict::new(py);
        kwargs.update(self.kwargs(py)?.bind(py).cast::<PyDict>()?.as_mapping())?;
        kwargs.set_item(key, arg)?;
        self.set_arguments(py, None, Some(&kwargs))
    }

    /// Makes all users of this node use `replace_with` instead, and returns these users.
    ///
    /// `delete_user_cb(user)` may decide for each user whether it changes. With `propagate_meta`,
    /// the replacement, which must have none yet, gets this node's meta.
    #[pyo3(signature = (replace_with, delete_user_cb = None, *, propagate_meta = false))]
    fn replace_all_uses_with(
        slf: &Bound<'_, Self>,
        replace_with: &Bound<'_, PyNode>,
        delete_user_cb: Option<&Bound<'_, PyAny>>,
        propagate_meta: bool,
    ) -> PyResult<Vec<Py<PyNode>>> {
        let (py, me) = (slf.py(), slf.get());
        let new = me.sibling(py, replace_with)?;
        if propagate_meta {
            let new_meta = replace_with.get().meta(py)?;
            let new_meta = new_meta.bind(py).cast::<PyDict>()?;
            if !new_meta.is_empty() {
                return Err(PyAssertionError::new_err(format!(
                    "replace_all_uses_with(propagate_meta=True): node {} has meta already",
                    replace_with.get().name_or_id(py)
                )));
            }
            new_meta.update(me.meta(py)?.bind(py).cast::<PyDict>()?.as_mapping())?;
        }
        let mut users = PyUsers::handles(me.graph.bind(py), me.id)?;
        if let Some(wanted) = delete_user_cb {
            let all = std::mem::take(&mut users);
            for user in all {
                if wanted.call1((&user,))?.is_truthy()? {
                    users.push(user);
                }
            }
        }
        me.call_replace_hooks(py, replace_with.get().name(py)?.as_any(), &users, slf)?;
        let mut graph = me.graph.bind(py).try_borrow_mut()?;
        for user in &users {
            graph
                .ir_mut()
                .replace_input(user.get().id, me.id, new)
                .map_err(graph_error)?;
        }
        Ok(users)
    }

    /// Makes this node use `new_input` wherever it uses `old_input`.
    fn replace_input_with(
        slf: &Bound<'_, Self>,
        old_input: &Bound<'_, PyNode>,
        new_input: &Bound<'_, PyNode>,
    ) -> PyResult<()> {
        let (py, me) = (slf.py(), slf.get());
        let (old, new) = (me.sibling(py, old_input)?, me.sibling(py, new_input)?);
        let new_name = new_input.get().name(py)?;
        me.call_replace_hooks(py, new_name.as_any(), &[slf.clone().unbind()], old_input)?;
        let mut graph = me.graph.bind(py).try_borrow_mut()?;
        graph
            .ir_mut()
            .replace_input(me.id, old, new)
            .map_err(graph_error)
    }

    #[pyo3(name = "_replace_input_with")]
    fn private_replace_input_with(
        slf: &Bound<'_, Self>,
        old_input: &Bound<'_, PyNode>,
        new_input: &Bound<'_, PyNode>,
    ) -> PyResult<()> {
        let (py, me) = (slf.py(), slf.get());
        let (old, new) = (me.sibling(py, old_input)?, me.sibling(py, new_input)?);
        let mut graph = me.graph.bind(py).try_borrow_mut()?;
        graph
            .ir_mut()
            .replace_input(me.id, old, new)
            .map_err(graph_error)
    }

    /// Whether torch.fx's dead-code elimination would keep this node if nothing used it: inputs and
    /// outputs, modules marked `_is_impure`, functions with side effects, and, with
    /// `impure_random`, functions that use random numbers.
    #[pyo3(signature = (impure_random = true))]
    fn is_impure(slf: &Bound<'_, Self>, impure_random: bool) -> PyResult<bool> {
        let module = slf.py().import(intern!(slf.py(), "corsac.fx.node"))?;
        module
            .call_method1(intern!(slf.py(), "_is_impure"), (slf, impure_random))?
            .is_truthy()
    }

    /// Properties of the node, as HTML for notebooks.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let module = slf
            .py()
            .import(intern!(slf.py(), "corsac._drawing.pictures"))?;
        module.call_method1(intern!(slf.py(), "node_table"), (slf,))
    }

    /// The arguments matched to the parameters of the function or module called, with default
    /// values filled in: a pair of args and kwargs, or None where they are unknown.
    ///
    /// `root` is the module that call_module targets are looked up in; types select overloads.
    #[pyo3(signature = (root, arg_types = None, kwarg_types = None, normalize_to_only_use_kwargs = false))]
    fn normalized_arguments<'py>(
        slf: &Bound<'py, Self>,
        root: &Bound<'py, PyAny>,
        arg_types: Option<&Bound<'py, PyAny>>,
        kwarg_types: Option<&Bound<'py, PyAny>>,
        normalize_to_only_use_kwargs: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let module = slf.py().import(intern!(slf.py(), "corsac.fx.node"))?;
        let args = (
            slf,
            root,
            arg_types,
            kwarg_types,
            normalize_to_only_use_kwargs,
        );
        module.call_method1(intern!(slf.py(), "_normalized_arguments"), args)
    }

    /// Gives the value the first free name based on `candidate`.
    fn _rename(&self, py: Python<'_>, candidate: &str) -> PyResult<()> {
        let mut graph = self.graph.bind(py).try_borrow_mut()?;
        graph
            .ir_mut()
            .rename(self.id, candidate)
            .map_err(graph_error)?;
        Ok(())
    }

    /// By identity, as equality is.
    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr() as usize >> 4
    }

    fn __lt__(&self, py: Python<'_>, other: &Bound<'_, PyNode>) -> PyResult<bool> {
        Ok(self._sort_key(py)? < other.get()._sort_key(py)?)
    }

    fn __gt__(&self, py: Python<'_>, other: &Bound<'_, PyNode>) -> PyResult<bool> {
        Ok(self._sort_key(py)? > other.get()._sort_key(py)?)
    }

    fn __le__(&self, py: Python<'_>, other: &Bound<'_, PyNode>) -> PyResult<bool> {
        Ok(self._sort_key(py)? <= other.get()._sort_key(py)?)
    }

    fn __ge__(&self, py: Python<'_>, other: &Bound<'_, PyNode>) -> PyResult<bool> {
        Ok(self._sort_key(py)? >= other.get()._sort_key(py)?)
    }

    /// The function that users have set to print the node with, or None.
    #[getter]
    fn _repr_fn<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.slots.dict.get(py) {
            Some(attributes) => attributes.bind(py).get_item(intern!(py, "_repr_fn")),
            None => Ok(None),
        }
    }

    #[setter(_repr_fn)]
    fn set_repr_fn(slf: &Bound<'_, Self>, repr: &Bound<'_, PyAny>) -> PyResult<()> {
        let name = intern!(slf.py(), "_repr_fn");
        slf.getattr(intern!(slf.py(), "__dict__"))?
            .set_item(name, repr)
    }

    fn __setattr__(
        slf: &Bound<'_, Self>,
        name: &Bound<'_, PyString>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let node = slf.get();
        match name.to_str() {
            Ok("op") => PyGraph::set_op(node.graph(slf.py()), node.id, parse_op(value.extract()?)?),
            Ok("target") => PyGraph::set_target(node.graph(slf.py()), node.id, value),
            _ => set_attribute(slf, name, Some(value)),
        }
    }

    fn __delattr__(slf: &Bound<'_, Self>, name: &Bound<'_, PyString>) -> PyResult<()> {
        set_attribute(slf, name, None)
    }

    fn __repr__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if let Some(repr) = slf.get()._repr_fn(py)?.filter(|repr| !repr.is_none()) {
            return repr.call1((slf,));
        }
        Ok(slf.get().name(py)?.into_any())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.graph)?;
        self.slots.op.visit(&visit)?;
        self.slots.target.visit(&visit)?;
        self.slots.dict.visit(&visit)?;
        self.users.visit(&visit)?;
        self.args.visit(&visit)?;
        self.kwargs.visit(&visit)
    }

    /// A handle and the view of its users hold each other, and attributes may hold the handle; once
    /// its node is erased, no graph breaks these cycles.
    fn __clear__(&self, py: Python<'_>) {
        drop(self.slots.dict.take(py));
        drop(self.users.take(py));
        drop(self.args.take(py));
        drop(self.kwargs.take(py));
    }
}

impl PyNode {
    /// The value that was cached when the graph was at `version`.
    #[inline]
    fn remembered<T>(&self, py: Python<'_>, slot: &Slot<T>, version: u64) -> Option<Py<T>> {
        let is_good = self.version.load(Ordering::Relaxed) == version;
        is_good.then(|| slot.get(py)).flatten()
    }

    /// Caches a Python value made from the arguments.
    fn remember<T>(&self, py: Python<'_>, slot: &Slot<T>, value: Py<T>, version: u64) {
        let mut stale = None;
        if self.version.swap(version, Ordering::Relaxed) != version {
            stale = Some((self.args.take(py), self.kwargs.take(py)));
        }
        let replaced = slot.replace(py, Some(value));
        // Last of all: dropping an object may run any code.
        drop((stale, replaced));
    }
}

/// The opcode called `name`.
pub(crate) fn parse_op(name: &str) -> PyResult<Op> {
    name.parse::<Op>().map_err(|()| {
        PyAssertionError::new_err(format!(
            "op '{name}' is not in _legal_ops\nit is none of the six opcodes"
        ))
    })
}
