//! Creating nodes from Python values.

use corsac_ir::{NodeId, NodeSpec, Op, Origin, Target, ThinVec};
use pyo3::exceptions::{PyAssertionError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::PyGraph;
use crate::error::graph_error;
use crate::graph::node::{PyNode, parse_op};
use crate::graph::value::Reader;
use crate::runtime::TorchValues;

impl PyGraph {
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
        let target = match op {
            Op::CallFunction => Ok(Self::function(graph, target)?),
            _ => Err(name_target(op, target, name.is_some())?),
        };
        let torch = TorchValues::get(py)?;
        let (id, hooked) = {
            let mut borrowed = graph.try_borrow_mut()?;
            let hooked = borrowed.owning_module.is_some();
            let (ir, host) = borrowed.parts_to_extend();
            let target = match target {
                Ok(function) => Target::Function(function),
                Err(text) => Target::Name(ir.intern(text)),
            };
            let mut reader = Reader {
                ir,
                host,
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
            (reader.ir.create(spec, name).map_err(graph_error)?, hooked)
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

    /// Creates a node from a spec in the graph's terms, sets its origin, and calls the create
    /// hooks.
    pub(crate) fn insert(
        graph: &Bound<'_, Self>,
        spec: NodeSpec,
        name: Option<&str>,
        origin: Origin,
    ) -> PyResult<NodeId> {
        let py = graph.py();
        let (id, hooked) = {
            let mut borrowed = graph.try_borrow_mut()?;
            let ir = borrowed.parts_to_extend().0;
            let id = ir.create(spec, name).map_err(graph_error)?;
            ir.set_origin(id, origin);
            (id, borrowed.owning_module.is_some())
        };
        if hooked {
            let borrowed = graph.try_borrow()?;
            if let Some(hooks) = borrowed.hooks(py, intern!(py, "_create_node_hooks"))? {
                let handle = PyNode::handle(graph, &borrowed.host, id)?;
                drop(borrowed);
                for hook in hooks {
                    hook.call1((&handle,))?;
                }
            }
        }
        Ok(id)
    }
}

#[pymethods]
impl PyGraph {
    /// Creates a node at the insertion point.
    ///
    /// `op` is one of the six opcodes, `target` a function for call_function and otherwise a
    /// string, `args` a tuple, `kwargs` a dictionary. `name` is the preferred name of the value,
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

    /// An input of the program, called `name`. `*name` and `**name` take the remaining arguments.
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

/// The text of a target that has to be a string. torch.fx finds a wrong one at different places,
/// and so with different exceptions, when the node is named and when it is not.
pub(crate) fn name_target<'a>(
    op: Op,
    target: &'a Bound<'_, PyAny>,
    is_named: bool,
) -> PyResult<&'a str> {
    if let Ok(text) = target.cast::<PyString>() {
        return text.to_str();
    }
    let message = format!(
        "{op} node: target {} has type {} but a str is expected",
        target.str()?.to_string_lossy(),
        target.get_type().name()?
    );
    // A callable has a name to go by, so that torch.fx gets as far as checking the target.
    Err(if is_named || target.is_callable() {
        PyValueError::new_err(message)
    } else {
        PyAssertionError::new_err(message)
    })
}
