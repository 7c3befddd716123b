//! Names of callables: as printed, and as the root of node names.

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// The names of a callable.
pub(crate) struct CallableNames {
    /// The name in `print(graph)`: `torch.nn.functional.relu`, `operator.add`, `builtins.getattr`.
    pub(crate) printed: String,
    /// Its `__name__`.
    pub(crate) own: String,
}

impl CallableNames {
    /// Finds the names of `callable`.
    ///
    /// Calls into Python: nothing may be borrowed.
    pub(crate) fn of(callable: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = callable.py();
        let text = |name: &Bound<'_, PyString>| -> PyResult<Option<String>> {
            match callable.getattr_opt(name)? {
                Some(value) => Ok(value
                    .cast::<PyString>()
                    .ok()
                    .map(|s| s.to_string_lossy().into_owned())),
                None => Ok(None),
            }
        };
        let own = text(intern!(py, "__name__"))?;
        let module = text(intern!(py, "__module__"))?;
        let Some(own) = own else {
            // An object with __call__, or functools.partial: named after its class.
            let class = callable.get_type();
            let own = class.name()?.to_string_lossy().into_owned();
            let module = class.module()?.to_string_lossy().into_owned();
            return Ok(Self {
                printed: format!("{module}.{own}"),
                own,
            });
        };
        let printed = match module.as_deref() {
            Some("builtins") => format!("builtins.{own}"),
            Some("_operator") => format!("operator.{own}"),
            _ => qualified_name(callable, &own, module)?,
        };
        Ok(Self { printed, own })
    }
}

/// The name under which generated code can find `callable`.
fn qualified_name(
    callable: &Bound<'_, PyAny>,
    own: &str,
    module: Option<String>,
) -> PyResult<String> {
    let py = callable.py();
    if is_tensor_method(callable, own, module.as_deref())? {
        return Ok(format!("torch.Tensor.{own}"));
    }
    let mut name = own.to_owned();
    if own == "<lambda>" {
        // The name that a line `name = lambda ...` gives it, where the source is at hand.
        let source = py.import("inspect")?.call_method1("getsource", (callable,));
        name = source
            .and_then(|s| s.extract::<String>())
            .ok()
            .and_then(|s| s.split('=').next().map(|n| n.trim().to_owned()))
            .filter(|n| is_identifier(n))
            .unwrap_or(name);
    }
    let module = match module {
        Some(module) => module,
        None => match guess_module(callable, own)? {
            Some(module) => module.to_owned(),
            None => {
                let class = callable.get_type().fully_qualified_name()?;
                return Ok(format!("{}.{name}", class.to_string_lossy()));
            }
        },
    };
    // The names under which torch keeps these differ from those under which they are found.
    let module = module.replace("torch._ops", "torch.ops");
    if module == "torch" && name == "segment_reduce" {
        name = "_segment_reduce".to_owned();
    }
    if module == "torch.nn.functional" && matches!(&*name, "_ScalingType" | "_SwizzleType") {
        name.remove(0);
    }
    Ok(format!("{module}.{name}"))
}

fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || c == '_')
}

fn is_tensor_method(
    callable: &Bound<'_, PyAny>,
    own: &str,
    module: Option<&str>,
) -> PyResult<bool> {
    let py = callable.py();
    if module == Some("torch._tensor") {
        let qualname = callable.getattr_opt(intern!(py, "__qualname__"))?;
        return Ok(qualname.is_some_and(|q| q.to_string() == format!("Tensor.{own}")));
    }
    let class = callable.get_type().name()?;
    if !matches!(
        &*class.to_string_lossy(),
        "method_descriptor" | "wrapper_descriptor"
    ) {
        return Ok(false);
    }
    let Ok(torch) = py.import(intern!(py, "torch")) else {
        return Ok(false);
    };
    let tensor = torch.getattr(intern!(py, "Tensor"))?;
    Ok(tensor
        .getattr_opt(own)?
        .is_some_and(|found| found.is(callable)))
}

/// Module of a builtin function without `__module__`, if it is one of PyTorch's.
fn guess_module(callable: &Bound<'_, PyAny>, own: &str) -> PyResult<Option<&'static str>> {
    let py = callable.py();
    for guess in ["torch", "torch.nn.functional"] {
        let found = py.import(guess).and_then(|module| module.getattr(own));
        match found {
            Ok(found) if found.is(callable) => return Ok(Some(guess)),
            Err(error) if !error.is_instance_of::<PyAttributeError>(py) => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(None)
}
