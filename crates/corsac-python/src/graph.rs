//! `Graph`: the native half of `corsac.fx.Graph`.

use corsac_ir::{
    FunctionId, Graph, InsertPoint, NodeId, NodeSpec, Op, SecondaryMap, Target, ThinVec,
    Translation,
};
use pyo3::exceptions::{PyAssertionError, PyRuntimeError, PyUserWarning};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use rustc_hash::FxHashMap;

use crate::callable::CallableNames;
use crate::collector::PausedCollector;
use crate::error::graph_error;
use crate::host::Host;
use crate::insert_point::PyInsertPoint;
use crate::node::{PyNode, name_target, parse_op};
use crate::nodes::PyNodes;
use crate::runtime::TorchValues;
use crate::value::{Reader, Writer};

/// A program: nodes in order. The Python class `corsac.fx.Graph` derives from this one and adds
/// what concerns code generation.
#[pyclass(name = "Graph", module = "corsac._core", subclass, weakref)]
#[derive(Default)]
pub(crate) struct PyGraph {
    ir: Graph,
    host: Host,
    /// Grows with every change of an existing node: what handles have cached is then stale.
    version: u64,
    owning_module: Option<Py<PyAny>>,
    pending: FxHashMap<NodeId, Pending>,
}

/// Halves of a change of opcode and target that people make in two assignments, one after the
/// other. The node keeps both as they were until the two halves fit.
#[derive(Default)]
struct Pending {
    op: Option<Op>,
    target: Option<Py<PyAny>>,
}

impl PyGraph {
    pub(crate) fn ir(&self) -> &Graph {
        &self.ir
    }

    /// The graph, to change it. What handles remember of arguments is stale from now on.
    pub(crate) fn ir_mut(&mut self) -> &mut Graph {
        self.version += 1;
        &mut self.ir
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    pub(crate) fn host_mut(&mut self) -> &mut Host {
        &mut self.host
    }

    /// Both halves at once. As [`PyGraph::ir_mut`].
    pub(crate) fn parts_mut(&mut self) -> (&mut Graph, &mut Host) {
        self.version += 1;
        (&mut self.ir, &mut self.host)
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Makes Python values of this graph's arguments.
    pub(crate) fn writer<'a, 'py>(&'a self, owner: &'a Bound<'py, Self>) -> Writer<'a, 'py> {
        Writer {
            graph: owner,
            ir: &self.ir,
            host: &self.host,
            immutable: true,
        }
    }

    /// Runs `change` with a reader of Python values, the graph being borrowed meanwhile.
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

    /// The function that `callable` is in this graph, entered if it is new.
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
            return Err(pyo3::exceptions::PyValueError::new_err(format!(
                "call_function node: target {} is a {}, but a callable is expected",
                callable.repr()?.to_string_lossy(),
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

    /// What a node calls or names, as Python sees it.
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

    /// Whether the node waits for the second half of a change of opcode and target.
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
        Self::settle(graph, id, op, waiting.bind(graph.py()))
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
        Self::settle(graph, id, op, target)
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
                Target::Name(graph.try_borrow_mut()?.ir.intern(text))
            }
        };
        let settled = {
            let mut borrowed = graph.try_borrow_mut()?;
            borrowed
                .ir_mut()
                .set_op_and_target(id, op, target)
                .map_err(graph_error)?;
            borrowed.pending.remove(&id)
        };
        drop(settled);
        Ok(())
    }

    /// The metadata of a node, made when first asked for.
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

    /// Creates a node from Python values at the insertion point and calls the create hooks.
    pub(crate) fn create<'py>(
        graph: &Bound<'py, Self>,
        op: Op,
        target: &Bound<'py, PyAny>,
        args: Option<&Bound<'py, PyTuple>>,
        kwargs: Option<&Bound<'py, PyDict>>,
        name: Option<&str>,
        ty: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Py<PyNode>> {
        let py = graph.py();
        let function = match op {
            Op::CallFunction => Some(Self::function(graph, target)?),
            _ => None,
        };
        let torch = TorchValues::get(py)?;
        let (id, hooked) = {
            let mut borrowed = graph.try_borrow_mut()?;
            let me = &mut *borrowed;
            let target = match function {
                Some(function) => Target::Function(function),
                None => Target::Name(me.ir.intern(name_target(op, target)?)),
            };
            let mut reader = Reader {
                ir: &mut me.ir,
                host: &mut me.host,
                owner: graph,
                torch,
            };
            let args = args.map_or_else(|| Ok(ThinVec::new()), |args| reader.args(args))?;
            let kwargs = kwargs.map_or_else(|| Ok(ThinVec::new()), |k| reader.kwargs(k))?;
            let ty = ty
                .filter(|ty| !ty.is_none())
                .map(|ty| reader.host.external(reader.ir, ty));
            let spec = NodeSpec {
                op,
                target,
                args,
                kwargs,
                ty,
            };
            (
                me.ir.create(spec, name).map_err(graph_error)?,
                me.owning_module.is_some(),
            )
        };
        let borrowed = graph.try_borrow()?;
        let handle = PyNode::handle(graph, &borrowed.host, id)?;
        if hooked && let Some(hooks) = borrowed.hooks(py, intern!(py, "_create_node_hooks"))? {
            drop(borrowed);
            for hook in hooks {
                hook.call1((&handle,))?;
            }
        }
        Ok(handle)
    }

    /// Attaches the Python objects behind what `translation` added to this graph.
    pub(crate) fn adopt(
        graph: &Bound<'_, Self>,
        from: &Self,
        translation: &mut Translation,
    ) -> PyResult<()> {
        let py = graph.py();
        let mut borrowed = graph.try_borrow_mut()?;
        for (old, new) in translation.take_new_externals() {
            borrowed
                .host
                .attach_external(new, &from.host.external_object(py, old));
        }
        let me = &mut *borrowed;
        for (old, new) in translation.take_new_functions() {
            if let Some(callable) = from.host.function_object(old) {
                me.host.attach_function(new, callable.bind(py));
            }
        }
        Ok(())
    }

    /// A translation from `from` to `graph` that knows the Python objects both have.
    pub(crate) fn translation(&self, from: &Self) -> Translation {
        let mut translation = Translation::new();
        for (id, object) in from.host.externals() {
            if let Some(known) = self.host.known_external(object) {
                translation.know_external(id, known);
            }
        }
        for (id, _) in from.ir.functions() {
            let callable = from.host.function_object(id);
            if let Some(known) = callable.and_then(|c| self.host.known_function(c)) {
                translation.know_function(id, known);
            }
        }
        translation
    }

    /// Copies metadata that was looked at or set to the copies of nodes.
    pub(crate) fn copy_metas(
        graph: &Bound<'_, Self>,
        from: &Bound<'_, Self>,
        map: impl Fn(NodeId) -> Option<NodeId>,
    ) -> PyResult<()> {
        let py = graph.py();
        let metas: Vec<_> = from
            .try_borrow()?
            .host
            .metas()
            .filter_map(|(id, meta)| Some((map(id)?, meta.clone_ref(py))))
            .collect();
        if metas.is_empty() {
            return Ok(());
        }
        let copy = py
            .import(intern!(py, "copy"))?
            .getattr(intern!(py, "copy"))?;
        for (id, meta) in metas {
            let meta = match meta.bind(py).cast_exact::<PyDict>() {
                Ok(dict) => dict.copy()?.into_any(),
                Err(_) => copy.call1((meta,))?,
            };
            let replaced = graph.try_borrow_mut()?.host.set_meta(id, meta.unbind());
            drop(replaced);
        }
        Ok(())
    }

    /// The node of this graph that `node` is.
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
    fn nodes(slf: &Bound<'_, Self>) -> PyNodes {
        PyNodes::forward(slf)
    }

    /// The sentinel that closes the list of nodes.
    #[getter]
    fn _root(slf: &Bound<'_, Self>) -> PyResult<Py<PyNode>> {
        PyNode::handle(slf, &slf.try_borrow()?.host, NodeId::ROOT)
    }

    /// How many nodes there are.
    #[getter]
    fn _len(&self) -> usize {
        self.ir.len()
    }

    /// Creates a node at the insertion point.
    ///
    /// `op` is one of the six opcodes, `target` a function for call_function and otherwise a
    /// string, `args` a tuple, `kwargs` a dictionary. `name` is a wish for the name of the value,
    /// `type_expr` a type annotation.
    #[pyo3(signature = (op, target, args = None, kwargs = None, name = None, type_expr = None))]
    fn create_node<'py>(
        slf: &Bound<'py, Self>,
        op: &str,
        target: &Bound<'py, PyAny>,
        args: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyAny>>,
        name: Option<&str>,
        type_expr: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Py<PyNode>> {
        let op = parse_op(op)?;
        Self::create(
            slf,
            op,
            target,
            checked_args(args)?,
            checked_kwargs(kwargs)?,
            name,
            type_expr,
        )
    }

    /// An input of the program, called `name`. `*name` and `**name` take what is left over.
    #[pyo3(signature = (name, type_expr = None, default_value = DefaultValue::Missing))]
    fn placeholder<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyAny>,
        type_expr: Option<&Bound<'py, PyAny>>,
        default_value: DefaultValue<'py>,
    ) -> PyResult<Py<PyNode>> {
        let args = match default_value {
            DefaultValue::Missing => None,
            DefaultValue::Given(value) => Some(PyTuple::new(slf.py(), [value])?),
        };
        Self::create(
            slf,
            Op::Placeholder,
            name,
            args.as_ref(),
            None,
            None,
            type_expr,
        )
    }

    /// A call of the function `the_function`.
    #[pyo3(signature = (the_function, args = None, kwargs = None, type_expr = None, name = None))]
    fn call_function<'py>(
        slf: &Bound<'py, Self>,
        the_function: &Bound<'py, PyAny>,
        args: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyAny>>,
        type_expr: Option<&Bound<'py, PyAny>>,
        name: Option<&str>,
    ) -> PyResult<Py<PyNode>> {
        let (args, kwargs) = (checked_args(args)?, checked_kwargs(kwargs)?);
        Self::create(
            slf,
            Op::CallFunction,
            the_function,
            args,
            kwargs,
            name,
            type_expr,
        )
    }

    /// A call of the method called `method_name` on `args[0]`.
    #[pyo3(signature = (method_name, args = None, kwargs = None, type_expr = None))]
    fn call_method<'py>(
        slf: &Bound<'py, Self>,
        method_name: &Bound<'py, PyAny>,
        args: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyAny>>,
        type_expr: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Py<PyNode>> {
        let (args, kwargs) = (checked_args(args)?, checked_kwargs(kwargs)?);
        Self::create(
            slf,
            Op::CallMethod,
            method_name,
            args,
            kwargs,
            None,
            type_expr,
        )
    }

    /// The result of the program.
    #[pyo3(signature = (result, type_expr = None))]
    fn output<'py>(
        slf: &Bound<'py, Self>,
        result: &Bound<'py, PyAny>,
        type_expr: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Py<PyNode>> {
        let args = PyTuple::new(slf.py(), [result])?;
        let target = intern!(slf.py(), "output").as_any();
        Self::create(slf, Op::Output, target, Some(&args), None, None, type_expr)
    }

    /// Takes a node without users out of the graph.
    fn erase_node(slf: &Bound<'_, Self>, to_erase: &Bound<'_, PyNode>) -> PyResult<()> {
        let py = slf.py();
        let id = Self::own(slf, to_erase)?;
        let hooks = {
            let borrowed = slf.try_borrow()?;
            let node = borrowed.ir.node(id);
            if node.num_users() > 0 {
                let users: Vec<_> = node.users().map(|u| borrowed.ir.node(u).name()).collect();
                return Err(PyRuntimeError::new_err(format!(
                    "Tried to erase Node {} but it still had {} users in the graph: {}!",
                    node.name(),
                    users.len(),
                    users.join(", ")
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
            let pending = borrowed.pending.remove(&id);
            (borrowed.host.release_handle(id), pending)
        };
        drop(released);
        Ok(())
    }

    /// Nodes created from now on come before `n`; before everything for None. As a context
    /// manager, until the end of the `with` block.
    #[pyo3(signature = (n = None))]
    fn inserting_before(
        slf: &Bound<'_, Self>,
        n: Option<&Bound<'_, PyNode>>,
    ) -> PyResult<PyInsertPoint> {
        PyInsertPoint::set(
            slf,
            match n {
                Some(node) => InsertPoint::Before(Self::own(slf, node)?),
                None => InsertPoint::After(NodeId::ROOT),
            },
        )
    }

    /// Nodes created from now on come right after `n`; after everything for None. As a context
    /// manager, until the end of the `with` block.
    #[pyo3(signature = (n = None))]
    fn inserting_after(
        slf: &Bound<'_, Self>,
        n: Option<&Bound<'_, PyNode>>,
    ) -> PyResult<PyInsertPoint> {
        PyInsertPoint::set(
            slf,
            match n {
                Some(node) => InsertPoint::After(Self::own(slf, node)?),
                None => InsertPoint::Before(NodeId::ROOT),
            },
        )
    }

    /// The nodes with this opcode, and this target where one is given, in time proportional to
    /// the answer. With `sort`, in graph order.
    #[pyo3(signature = (*, op, target = None, sort = true))]
    fn find_nodes<'py>(
        slf: &Bound<'py, Self>,
        op: &str,
        target: Option<&Bound<'py, PyAny>>,
        sort: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        // Graph order is an order, so it does where none is asked for.
        let _ = sort;
        let op = parse_op(op)?;
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

    /// The output node.
    fn output_node(slf: &Bound<'_, Self>) -> PyResult<Py<PyNode>> {
        let borrowed = slf.try_borrow()?;
        match borrowed.ir.output_node() {
            Some(id) => PyNode::handle(slf, &borrowed.host, id),
            None => Err(PyRuntimeError::new_err("the graph has no output node")),
        }
    }

    /// Copies a node of another graph (or this one) to the insertion point.
    /// `arg_transform(node)` says what becomes of the nodes in its arguments.
    #[pyo3(signature = (node, arg_transform = None))]
    fn node_copy<'py>(
        slf: &Bound<'py, Self>,
        node: &Bound<'py, PyNode>,
        arg_transform: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Py<PyNode>> {
        let py = slf.py();
        let source = node.get().graph(py);
        let id = node.get().id();
        let (op, target, args, kwargs, name, ty, origin) = {
            let from = source.try_borrow()?;
            let view = from.ir.node(id);
            let writer = Writer {
                graph: source,
                ir: &from.ir,
                host: &from.host,
                immutable: false,
            };
            let kwargs = PyDict::new(py);
            for (key, arg) in view.kwargs() {
                kwargs.set_item(from.ir.text(*key), writer.arg(arg)?)?;
            }
            let ty = view.ty().map(|ty| from.host.external_object(py, ty));
            let target = from.target_object(py, id)?;
            let (args, name) = (writer.args(view.args())?, view.name().to_owned());
            (view.op(), target, args, kwargs, name, ty, view.origin())
        };
        let (args, kwargs) = match arg_transform {
            None => (args, kwargs),
            Some(transform) => {
                let map = py
                    .import(intern!(py, "corsac.fx.node"))?
                    .getattr("map_arg")?;
                let args = map.call1((args, transform))?.cast_into::<PyTuple>()?;
                (args, map.call1((kwargs, transform))?.cast_into::<PyDict>()?)
            }
        };
        let target = target.bind(py);
        let copy = Self::create(
            slf,
            op,
            target,
            Some(&args),
            Some(&kwargs),
            Some(&name),
            ty.as_ref(),
        )?;
        let new = copy.get().id();
        if slf.is(source) {
            slf.try_borrow_mut()?.ir.set_origin(new, origin);
        } else {
            let from = source.try_borrow()?;
            let mut translation = slf.try_borrow()?.translation(&from);
            let origin = {
                let mut to = slf.try_borrow_mut()?;
                let origin = translation.origin(&from.ir, &mut to.ir, origin);
                to.ir.set_origin(new, origin);
                origin
            };
            debug_assert_eq!(slf.try_borrow()?.ir.origin(new), origin);
            Self::adopt(slf, &from, &mut translation)?;
        }
        Self::copy_metas(slf, source, |other| (other == id).then_some(new))?;
        Ok(copy)
    }

    /// Copies all nodes of `g` up to its output node to the insertion point. `val_map` says what
    /// some nodes of `g` are already, and afterwards what all of them are. Answers what the
    /// output of `g` is in this graph; with `return_output_node`, also the output node of `g`.
    #[pyo3(signature = (g, val_map, return_output_node = false))]
    fn graph_copy<'py>(
        slf: &Bound<'py, Self>,
        g: &Bound<'py, Self>,
        val_map: &Bound<'py, PyDict>,
        return_output_node: bool,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        if slf.is(g) {
            return Err(PyRuntimeError::new_err(
                "a graph cannot be copied into itself",
            ));
        }
        let mut map = SecondaryMap::new();
        for (key, value) in val_map.iter() {
            // Other entries, such as those of a deepcopy memo, are none of ours.
            if let (Ok(key), Ok(value)) = (key.cast::<PyNode>(), value.cast::<PyNode>())
                && key.get().graph_is(g)
            {
                map.set(key.get().id(), Some(Self::own(slf, value)?));
            }
        }
        let known: Vec<NodeId> = g
            .try_borrow()?
            .ir
            .nodes()
            .filter(|&n| map[n].is_some())
            .collect();
        let from = g.try_borrow()?;
        let mut translation = slf.try_borrow()?.translation(&from);
        let output = {
            let mut to = slf.try_borrow_mut()?;
            to.ir_mut()
                .copy_graph(&from.ir, &mut map, &mut translation)
                .map_err(graph_error)?
        };
        Self::adopt(slf, &from, &mut translation)?;
        let known: rustc_hash::FxHashSet<_> = known.into_iter().collect();
        {
            let _paused = PausedCollector::new(py)?;
            let to = slf.try_borrow()?;
            for old in from.ir.nodes() {
                if let Some(new) = map[old]
                    && !known.contains(&old)
                {
                    let key = PyNode::handle(g, &from.host, old)?;
                    val_map.set_item(key, PyNode::handle(slf, &to.host, new)?)?;
                }
            }
        }
        drop(from);
        Self::copy_metas(slf, g, |old| map[old].filter(|_| !known.contains(&old)))?;
        let Some((node, value)) = output else {
            return Ok(py.None());
        };
        let to = slf.try_borrow()?;
        let value = to.writer(slf).arg(&value)?;
        if return_output_node {
            let node = PyNode::handle(g, &g.try_borrow()?.host, node)?;
            return Ok((value, node).into_pyobject(py)?.into_any().unbind());
        }
        Ok(value.unbind())
    }

    /// Fills this empty graph with the nodes of `g`, output node included.
    fn _fill_from(slf: &Bound<'_, Self>, g: &Bound<'_, Self>) -> PyResult<()> {
        let from = g.try_borrow()?;
        let mut translation = Translation::new();
        let mut map = SecondaryMap::new();
        let copy = from
            .ir
            .compact_copy(&mut map, &mut translation)
            .map_err(graph_error)?;
        {
            let mut to = slf.try_borrow_mut()?;
            *to.ir_mut() = copy;
        }
        Self::adopt(slf, &from, &mut translation)?;
        drop(from);
        Self::copy_metas(slf, g, |old| map[old])
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

/// A default value for an input, where None is a value like any other.
pub(crate) enum DefaultValue<'py> {
    Missing,
    Given(Bound<'py, PyAny>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for DefaultValue<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let empty = object
            .py()
            .import(intern!(object.py(), "inspect"))?
            .getattr("_empty")?;
        if object.is(&empty) {
            return Ok(Self::Missing);
        }
        Ok(Self::Given(object.to_owned()))
    }
}

/// A message as the warnings module takes it.
fn warning_text(message: String) -> std::ffi::CString {
    std::ffi::CString::new(message.replace('\0', " ")).unwrap_or_default()
}

fn checked_args<'a, 'py>(
    args: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<Option<&'a Bound<'py, PyTuple>>> {
    match args.filter(|args| !args.is_none()) {
        None => Ok(None),
        Some(args) => match args.cast::<PyTuple>() {
            Ok(args) => Ok(Some(args)),
            Err(_) if !args.is_truthy()? => Ok(None),
            Err(_) => Err(PyAssertionError::new_err(format!(
                "args must be a tuple, got {}",
                args.get_type().name()?
            ))),
        },
    }
}

fn checked_kwargs<'a, 'py>(
    kwargs: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<Option<&'a Bound<'py, PyDict>>> {
    match kwargs.filter(|kwargs| !kwargs.is_none()) {
        None => Ok(None),
        Some(kwargs) => match kwargs.cast::<PyDict>() {
            Ok(kwargs) => Ok(Some(kwargs)),
            Err(_) if !kwargs.is_truthy()? => Ok(None),
            Err(_) => Err(PyAssertionError::new_err(format!(
                "kwargs must be a dict, got {}",
                kwargs.get_type().name()?
            ))),
        },
    }
}
