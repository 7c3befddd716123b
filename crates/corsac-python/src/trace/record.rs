//! Recording of operations: natively, or by the methods that a tracer's class overrides.

use corsac_ir::{NodeId, NodeSpec, Op, Target, ThinVec};
use pyo3::exceptions::{PyAssertionError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::lower::Lowering;
use super::modules::entries;
use super::overrides::Overrides;
use super::proxy::PyProxy;
use super::tracer::PyTracer;
use super::wrapped::PyWrappedFunction;
use crate::graph::node::PyNode;
use crate::graph::{PyGraph, name_target};
use crate::runtime::{TorchValues, op_name};

/// Positional arguments: some values, then those of a tuple.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a, 'py> {
    first: &'a [Bound<'py, PyAny>],
    rest: Option<&'a Bound<'py, PyTuple>>,
}

impl<'a, 'py> Arguments<'a, 'py> {
    pub(super) fn none() -> Self {
        Self {
            first: &[],
            rest: None,
        }
    }

    pub(super) fn of(tuple: &'a Bound<'py, PyTuple>) -> Self {
        Self {
            first: &[],
            rest: Some(tuple),
        }
    }

    pub(super) fn values(first: &'a [Bound<'py, PyAny>]) -> Self {
        Self { first, rest: None }
    }

    pub(super) fn with(first: &'a [Bound<'py, PyAny>], rest: &'a Bound<'py, PyTuple>) -> Self {
        Self {
            first,
            rest: Some(rest),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.first.len() + self.rest.map_or(0, |rest| rest.len())
    }

    /// As one tuple.
    fn tuple(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match self.rest {
            Some(rest) if self.first.is_empty() => Ok(rest.clone()),
            Some(rest) => PyTuple::new(
                py,
                self.first.iter().cloned().chain(rest).collect::<Vec<_>>(),
            ),
            None => PyTuple::new(py, self.first),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Bound<'py, PyAny>> + use<'a, 'py> {
        let rest = self.rest.into_iter().flat_map(|rest| rest.iter());
        self.first.iter().cloned().chain(rest)
    }
}

/// An operation to be recorded.
pub(super) struct Call<'a, 'py> {
    pub(super) op: Op,
    /// A function, or a name.
    pub(super) target: &'a Bound<'py, PyAny>,
    pub(super) arguments: Arguments<'a, 'py>,
    pub(super) kwargs: Option<&'a Bound<'py, PyDict>>,
    /// Preferred name of the value.
    pub(super) name: Option<&'a Bound<'py, PyAny>>,
    /// A type annotation for the value.
    pub(super) ty: Option<&'a Bound<'py, PyAny>>,
    /// Makes the proxy.
    pub(super) factory: Option<&'a Bound<'py, PyAny>>,
}

impl<'a, 'py> Call<'a, 'py> {
    /// A call of a function with positional arguments.
    pub(super) fn function(target: &'a Bound<'py, PyAny>, values: &'a [Bound<'py, PyAny>]) -> Self {
        Self {
            op: Op::CallFunction,
            target,
            arguments: Arguments::values(values),
            kwargs: None,
            name: None,
            ty: None,
            factory: None,
        }
    }

    fn kwargs(&self, py: Python<'py>) -> Bound<'py, PyDict> {
        self.kwargs.cloned().unwrap_or_else(|| PyDict::new(py))
    }
}

/// Records an operation and returns a proxy for its value.
pub(super) fn record<'py>(
    tracer: &Bound<'py, PyAny>,
    call: &Call<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(native) = tracer.cast::<PyTracer>() {
        let overrides = PyTracer::overrides(native)?;
        if !overrides.create_proxy {
            return create_proxy(native, overrides, call);
        }
    }
    let py = tracer.py();
    let positional = (
        op_name(py, call.op),
        call.target,
        call.arguments.tuple(py)?,
        call.kwargs(py),
    );
    let method = intern!(py, "create_proxy");
    if call.name.is_none() && call.ty.is_none() && call.factory.is_none() {
        return tracer.call_method1(method, positional);
    }
    let named = PyDict::new(py);
    if let Some(name) = call.name {
        named.set_item(intern!(py, "name"), name)?;
    }
    if let Some(ty) = call.ty {
        named.set_item(intern!(py, "type_expr"), ty)?;
    }
    if let Some(factory) = call.factory {
        named.set_item(intern!(py, "proxy_factory_fn"), factory)?;
    }
    tracer.call_method(method, positional, Some(&named))
}

/// The default `create_proxy`.
pub(super) fn create_proxy<'py>(
    tracer: &Bound<'py, PyTracer>,
    overrides: Overrides,
    call: &Call<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = tracer.py();
    let node = match native_graph(tracer, overrides)? {
        Some(graph) => {
            let id = append(tracer, &graph, call)?;
            if call.factory.is_none() && !overrides.proxy {
                let proxy = PyProxy::of_node(tracer.as_any(), &graph, id);
                return Ok(Bound::new(py, proxy)?.into_any());
            }
            handle(&graph, id)?.into_any()
        }
        None => {
            let create = intern!(py, "create_arg");
            let args = tracer.call_method1(create, (call.arguments.tuple(py)?,))?;
            let kwargs = tracer.call_method1(create, (call.kwargs(py),))?;
            if !args.is_instance_of::<PyTuple>() {
                return Err(wrong_type("args_", "tuple", &args));
            }
            if !kwargs.is_instance_of::<PyDict>() {
                return Err(wrong_type("kwargs_", "dict", &kwargs));
            }
            let (kind, target) = (op_name(py, call.op), call.target);
            let rest = (kind, target, args, kwargs, call.name, call.ty);
            tracer.call_method1(intern!(py, "create_node"), rest)?
        }
    };
    match call.factory {
        Some(factory) => factory.call1((node,)),
        None => tracer.call_method1(intern!(py, "proxy"), (node,)),
    }
}

fn wrong_type(what: &str, expected: &str, got: &Bound<'_, PyAny>) -> PyErr {
    PyAssertionError::new_err(format!(
        "Expected {what} to be {expected}, got {}",
        got.get_type()
    ))
}

/// The default `create_proxy` for arguments that are no tuple and dictionary until `create_arg` has
/// converted them.
pub(super) fn create_proxy_of<'py>(
    tracer: &Bound<'py, PyTracer>,
    kind: &str,
    target: &Bound<'py, PyAny>,
    args: &Bound<'py, PyAny>,
    kwargs: &Bound<'py, PyAny>,
    name: Option<&Bound<'py, PyAny>>,
    ty: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = tracer.py();
    let create = intern!(py, "create_arg");
    let (args, kwargs) = (
        tracer.call_method1(create, (args,))?,
        tracer.call_method1(create, (kwargs,))?,
    );
    if !args.is_instance_of::<PyTuple>() {
        return Err(wrong_type("args_", "tuple", &args));
    }
    if !kwargs.is_instance_of::<PyDict>() {
        return Err(wrong_type("kwargs_", "dict", &kwargs));
    }
    let node = tracer.call_method1(
        intern!(py, "create_node"),
        (kind, target, args, kwargs, name, ty),
    )?;
    tracer.call_method1(intern!(py, "proxy"), (node,))
}

/// The graph, if making a node in it is neither overridden nor checked.
fn native_graph<'py>(
    tracer: &Bound<'py, PyTracer>,
    overrides: Overrides,
) -> PyResult<Option<Bound<'py, PyGraph>>> {
    if overrides.create_arg || overrides.create_node || overrides.checks_nodes {
        return Ok(None);
    }
    PyTracer::plain_graph(tracer)
}

fn handle<'py>(graph: &Bound<'py, PyGraph>, id: NodeId) -> PyResult<Bound<'py, PyNode>> {
    let borrowed = graph.try_borrow()?;
    Ok(PyNode::handle(graph, borrowed.host(), id)?.into_bound(graph.py()))
}

/// Reads the arguments of `call` straight into the graph and creates its node.
fn append<'py>(
    tracer: &Bound<'py, PyTracer>,
    graph: &Bound<'py, PyGraph>,
    call: &Call<'_, 'py>,
) -> PyResult<NodeId> {
    let py = tracer.py();
    let target = match call.op {
        Op::CallFunction => Ok(match call.target.cast_exact::<PyWrappedFunction>() {
            Ok(wrapped) => PyGraph::function(graph, wrapped.get().original.bind(py))?,
            Err(_) => PyGraph::function(graph, call.target)?,
        }),
        _ => Err(name_target(call.op, call.target, call.name.is_some())?),
    };
    let lowering = Lowering {
        tracer,
        graph,
        torch: TorchValues::get(py)?,
    };
    let mut args = ThinVec::with_capacity(call.arguments.len());
    for value in call.arguments.iter() {
        args.push(lowering.arg(&value, 0)?);
    }
    let mut kwargs = ThinVec::new();
    if let Some(given) = call.kwargs
        && !given.is_empty()
    {
        kwargs.reserve(given.len());
        for (key, value) in entries(given) {
            let symbol = lowering.intern(key.cast::<PyString>()?)?;
            kwargs.push((symbol, lowering.arg(&value, 0)?));
        }
    }
    let name = call.name.map(|name| name.extract::<String>()).transpose()?;
    let origin = PyTracer::origin(tracer, graph, call.op)?;
    let spec = {
        let mut borrowed = graph.try_borrow_mut()?;
        let (ir, host) = borrowed.parts_to_extend();
        let target = match target {
            Ok(function) => Target::Function(function),
            Err(text) => Target::Name(ir.intern(text)),
        };
        NodeSpec {
            op: call.op,
            target,
            args,
            kwargs,
            ty: call.ty.map(|ty| host.external(ir, ty)),
        }
    };
    let id = PyGraph::insert(graph, spec, name.as_deref(), origin)?;
    if tracer.try_borrow()?.is_mirrored() {
        PyTracer::note_scope(tracer, &handle(graph, id)?)?;
    }
    if preserves_meta(py)? {
        static INHERIT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let inherit = INHERIT.get_or_try_init(py, || {
            let module = py.import("corsac.fx.proxy")?;
            Ok::<_, PyErr>(module.getattr("_inherit_meta")?.unbind())
        })?;
        inherit.bind(py).call1((handle(graph, id)?,))?;
    }
    Ok(id)
}

/// Whether new nodes inherit the metadata of the one being interpreted.
fn preserves_meta(py: Python<'_>) -> PyResult<bool> {
    static TRACEBACK: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let names = TRACEBACK.get_or_try_init(py, || {
        let module = py.import("torch.fx.traceback")?;
        Ok::<_, PyErr>(module.dict().unbind())
    })?;
    match names
        .bind(py)
        .get_item(intern!(py, "should_preserve_node_meta"))?
    {
        Some(flag) => flag.is_truthy(),
        None => Ok(false),
    }
}

/// Records the value that a program returns.
pub(super) fn output<'py>(
    tracer: &Bound<'py, PyTracer>,
    overrides: Overrides,
    result: &Bound<'py, PyAny>,
    ty: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let py = tracer.py();
    let output = intern!(py, "output").as_any();
    if let Some(graph) = native_graph(tracer, overrides)? {
        let values = [result.clone()];
        let call = Call {
            op: Op::Output,
            target: output,
            arguments: Arguments::values(&values),
            kwargs: None,
            name: None,
            ty: (!ty.is_none()).then_some(ty),
            factory: None,
        };
        append(tracer, &graph, &call)?;
        return Ok(());
    }
    let result = tracer.call_method1(intern!(py, "create_arg"), (result,))?;
    let named = PyDict::new(py);
    named.set_item(intern!(py, "type_expr"), ty)?;
    tracer.call_method(
        intern!(py, "create_node"),
        (output, output, (result,), PyDict::new(py)),
        Some(&named),
    )?;
    Ok(())
}

/// The error for a value of another graph than the one that is recorded into.
pub(super) fn foreign_value(name: &str) -> PyErr {
    PyRuntimeError::new_err(format!(
        "value {name} belongs to another graph than the one being recorded: it has leaked from \
         another trace, or two tracers are mixed in one operation"
    ))
}
