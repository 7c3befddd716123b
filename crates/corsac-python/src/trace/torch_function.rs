//! `__torch_function__`: calls of PyTorch's own functions with a proxy.

use std::sync::Mutex;

use corsac_ir::Op;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::{MutexExt, PyOnceLock};
use pyo3::types::{PyCFunction, PyDict, PyList, PyModule, PySlice, PyString, PyTuple, PyType};
use rustc_hash::FxHashMap;

use super::modules::entries;
use super::proxy::PyProxy;
use super::record::{Arguments, Call, record};
use super::tracer::PyTracer;

/// Kind of call that a function of PyTorch is recorded as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Method,
    Function,
    HigherOrder,
    Script,
}

struct Kinds {
    is_method: Py<PyAny>,
    script_method: Py<PyType>,
    higher_order: Py<PyType>,
    /// By address, for the functions of PyTorch, which are never freed.
    known: Mutex<FxHashMap<usize, (Py<PyAny>, Kind)>>,
}

impl Kinds {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        static KINDS: PyOnceLock<Kinds> = PyOnceLock::new();
        KINDS.get_or_try_init(py, || {
            let class = |module: &str, name: &str| -> PyResult<Py<PyType>> {
                let class = py.import(module)?.getattr(name)?;
                Ok(class.cast_into::<PyType>()?.unbind())
            };
            Ok(Self {
                is_method: py
                    .import("torch.overrides")?
                    .getattr("is_tensor_method_or_property")?
                    .unbind(),
                script_method: class("torch._C", "ScriptMethod")?,
                higher_order: class("torch._ops", "HigherOrderOperator")?,
                known: Mutex::new(FxHashMap::default()),
            })
        })
    }

    fn of(&self, function: &Bound<'_, PyAny>) -> PyResult<Kind> {
        let py = function.py();
        let address = function.as_ptr() as usize;
        if let Ok(known) = self.known.lock_py_attached(py)
            && let Some((_, kind)) = known.get(&address)
        {
            return Ok(*kind);
        }
        let kind = if function.is_instance(self.script_method.bind(py))? {
            Kind::Script
        } else if self.is_method.bind(py).call1((function,))?.is_truthy()? {
            Kind::Method
        } else if function.is_instance(self.higher_order.bind(py))? {
            Kind::HigherOrder
        } else {
            Kind::Function
        };
        if is_permanent(function)? {
            let entry = (function.clone().unbind(), kind);
            let replaced = match self.known.lock_py_attached(py) {
                Ok(mut known) => known.insert(address, entry),
                Err(_) => None,
            };
            drop(replaced);
        }
        Ok(kind)
    }
}

/// Whether a function is one of PyTorch's, as opposed to one that users have made and may drop.
fn is_permanent(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = function.py();
    if function.is_instance_of::<PyCFunction>() {
        let owner = function.getattr(intern!(py, "__self__"))?;
        return Ok(owner.is_instance_of::<PyType>() || owner.is_instance_of::<PyModule>());
    }
    let class = function.get_type().name()?;
    if matches!(
        &*class.to_string_lossy(),
        "method_descriptor" | "wrapper_descriptor"
    ) {
        return Ok(true);
    }
    let home = function.getattr_opt(intern!(py, "__module__"))?;
    let name = function.getattr_opt(intern!(py, "__qualname__"))?;
    let (Some(home), Some(name)) = (home, name) else {
        return Ok(false);
    };
    let (Ok(home), Ok(name)) = (home.cast::<PyString>(), name.cast::<PyString>()) else {
        return Ok(false);
    };
    let home = home.to_string_lossy();
    Ok((home == "torch" || home.starts_with("torch.")) && !name.to_string_lossy().contains('<'))
}

/// Records a call of a function of PyTorch with a proxy among its arguments.
pub(super) fn torch_function<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    let found = first_proxy(args.as_any(), 0)?;
    let found = match (found, kwargs) {
        (None, Some(kwargs)) => first_proxy(kwargs.as_any(), 0)?,
        (found, _) => found,
    };
    let Some(proxy) = found else {
        return Err(PyRuntimeError::new_err(format!(
            "{} was handed to a Proxy class without a proxy among its arguments",
            function.repr()?.to_string_lossy()
        )));
    };
    let tracer = proxy.getattr(intern!(py, "tracer"))?;
    let kind = Kinds::get(py)?.of(function)?;
    let mut call = Call {
        op: Op::CallFunction,
        target: function,
        arguments: Arguments::of(args),
        kwargs,
        name: None,
        ty: None,
        factory: None,
    };
    // Overridden methods get the name that the value has by default.
    let name;
    if matches!(kind, Kind::Function | Kind::HigherOrder) && is_told_names(&tracer)? {
        let graph = tracer.getattr(intern!(py, "graph"))?;
        let own = function.getattr(intern!(py, "__name__"))?;
        name = graph.call_method1(intern!(py, "_target_to_str"), (own,))?;
        call.name = Some(&name);
    }
    match kind {
        Kind::Function => record(&tracer, &call),
        Kind::Method => {
            let name = function.getattr(intern!(py, "__name__"))?;
            call.op = Op::CallMethod;
            call.target = &name;
            record(&tracer, &call)
        }
        Kind::Script => {
            let name = function.getattr(intern!(py, "name"))?;
            let owner = [function.getattr(intern!(py, "owner"))?];
            call.op = Op::CallMethod;
            call.target = &name;
            call.arguments = Arguments::with(&owner, args);
            record(&tracer, &call)
        }
        Kind::HigherOrder => {
            refuse_callables(function, args, kwargs)?;
            record(&tracer, &call)
        }
    }
}

/// Whether a tracer sees the names of nodes before these are made.
fn is_told_names(tracer: &Bound<'_, PyAny>) -> PyResult<bool> {
    match tracer.cast::<PyTracer>() {
        Ok(native) => {
            let overrides = PyTracer::overrides(native)?;
            Ok(overrides.create_proxy || overrides.create_node)
        }
        Err(_) => Ok(true),
    }
}

/// The first proxy in nested containers.
pub(super) fn first_proxy<'py>(
    value: &Bound<'py, PyAny>,
    depth: u16,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if value.is_instance_of::<PyProxy>() {
        return Ok(Some(value.clone()));
    }
    if depth >= corsac_ir::MAX_DEPTH {
        return Ok(None);
    }
    let py = value.py();
    if let Ok(tuple) = value.cast::<PyTuple>() {
        for item in tuple.iter_borrowed() {
            if let Some(found) = first_proxy(&item, depth + 1)? {
                return Ok(Some(found));
            }
        }
    } else if let Ok(list) = value.cast::<PyList>() {
        for item in list.iter() {
            if let Some(found) = first_proxy(&item, depth + 1)? {
                return Ok(Some(found));
            }
        }
    } else if let Ok(dict) = value.cast::<PyDict>() {
        for (_, item) in entries(dict) {
            if let Some(found) = first_proxy(&item, depth + 1)? {
                return Ok(Some(found));
            }
        }
    } else if let Ok(slice) = value.cast::<PySlice>() {
        for part in [
            intern!(py, "start"),
            intern!(py, "stop"),
            intern!(py, "step"),
        ] {
            if let Some(found) = first_proxy(&slice.getattr(part)?, depth + 1)? {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// Refuses functions among the arguments of an operator that would have to trace them.
fn refuse_callables(
    operator: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let py = operator.py();
    let Some(find) = py
        .import("torch.fx.proxy")?
        .getattr_opt("_find_arbitrary_callable")?
    else {
        return Ok(());
    };
    let kwargs = kwargs.cloned().unwrap_or_else(|| PyDict::new(py));
    let found = find.call1((args, kwargs))?;
    if found.is_none() {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(format!(
        "Unable to symbolically trace the HigherOrderOperator {} because it received an \
         arbitrary callable argument {}. Use make_fx or dynamo tracing instead.",
        operator.getattr("_name")?,
        found
    )))
}
