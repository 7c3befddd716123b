//! Conversion of qualified names to Python objects and back, without running any code of a text.

use pyo3::exceptions::{PyAttributeError, PyKeyError, PyRuntimeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyEllipsis, PyList, PyModule, PyString, PyTuple, PyType};

use crate::allowed_names::AllowedNames;
use crate::callable::CallableNames;

/// Deepest nesting of `a[b[...]]` in the name of a type.
const MAX_DEPTH: usize = 32;

/// Modules that are imported to look a name up in them; others have to be imported already.
const IMPORTED: [&str; 4] = ["torch", "operator", "builtins", "math"];

/// The object with this qualified name, if it is found: `torch.nn.functional.relu`,
/// `builtins.getattr`, `list[int]`, `torch.Tensor | None`.
///
/// Looks into torch, operator, builtins, math and modules that are imported already, imports
/// nothing else, and calls nothing but the subscription of a type.
///
/// With `allowed`, the object must be allowed under its own name too: `torch.os.system` is
/// `os.system`. It is not found otherwise.
pub(crate) fn resolve<'py>(
    py: Python<'py>,
    name: &str,
    allowed: Option<&AllowedNames<'_>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if let Some(class) = name
        .strip_prefix("<class '")
        .and_then(|n| n.strip_suffix("'>"))
    {
        return dotted(py, class, allowed);
    }
    if name.starts_with(['\'', '"']) {
        // A type annotation that is a string.
        let ast = py.import(intern!(py, "ast"))?;
        let read = ast.call_method1(intern!(py, "literal_eval"), (name,));
        return Ok(read.ok().filter(|value| value.is_instance_of::<PyString>()));
    }
    let mut types = Types {
        py,
        rest: name,
        depth: 0,
        allowed,
    };
    let found = types.union()?;
    Ok(found.filter(|_| types.rest.is_empty()))
}

/// The object with this qualified name, which is one that corsac itself gives.
pub(crate) fn resolve_known<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    resolve(py, name, None)?.ok_or_else(|| PyRuntimeError::new_err(format!("there is no {name}")))
}

/// The name under which [`resolve`] finds `object`, if there is one.
pub(crate) fn name_of(object: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = object.py();
    let name = if object.is_instance_of::<PyType>() || is_generic(object)? {
        let repr = py
            .import(intern!(py, "corsac.fx.node"))?
            .getattr(intern!(py, "_type_repr"))?;
        repr.call1((object,))?.to_string()
    } else if object.is_exact_instance_of::<PyString>() {
        object.repr()?.to_string_lossy().into_owned()
    } else if object.is_callable() {
        CallableNames::of(object)?.printed
    } else {
        return Ok(None);
    };
    let found = match resolve(py, &name, None) {
        Ok(Some(found)) => found,
        Ok(None) | Err(_) => return Ok(None),
    };
    let same = found.is(object) || (is_made_anew(object)? && found.eq(object)?);
    Ok(same.then_some(name))
}

/// Whether `object` is a type with parameters, or a string: equal ones are not the same object.
pub(crate) fn is_made_anew(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(object.is_exact_instance_of::<PyString>() || is_generic(object)?)
}

/// Whether `object` is `list[int]`, `typing.Optional[int]`, `int | None` or the like.
fn is_generic(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = object.get_type();
    let module = class.module()?;
    let name = class.name()?;
    Ok(match &*module.to_string_lossy() {
        "typing" => true,
        "types" => matches!(&*name.to_string_lossy(), "GenericAlias" | "UnionType"),
        _ => false,
    })
}

/// A type that is being read.
struct Types<'py, 't> {
    py: Python<'py>,
    rest: &'t str,
    depth: usize,
    allowed: Option<&'t AllowedNames<'t>>,
}

impl<'py> Types<'py, '_> {
    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// `a | b`
    fn union(&mut self) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(mut found) = self.subscription()? else {
            return Ok(None);
        };
        while self.eat(" | ") {
            let Some(other) = self.subscription()? else {
                return Ok(None);
            };
            let is_type = |t: &Bound<'py, PyAny>| -> PyResult<bool> {
                Ok(t.is_none() || t.is_instance_of::<PyType>() || is_generic(t)?)
            };
            if !is_type(&found)? || !is_type(&other)? {
                return Ok(None);
            }
            found = match found.bitor(other) {
                Ok(union) => union,
                Err(_) => return Ok(None),
            };
        }
        Ok(Some(found))
    }

    /// `a[b, c]`
    fn subscription(&mut self) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.depth > MAX_DEPTH {
            return Ok(None);
        }
        if self.eat("...") {
            return Ok(Some(PyEllipsis::get(self.py).to_owned().into_any()));
        }
        if self.rest.starts_with('[') {
            // The parameters of a Callable.
            let items = self.items()?;
            return items
                .map(|items| Ok(PyList::new(self.py, items)?.into_any()))
                .transpose();
        }
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.' || c == '<' || c == '>';
        let len = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(len);
        self.rest = rest;
        let Some(found) = dotted(self.py, name, self.allowed)? else {
            return Ok(None);
        };
        if !self.rest.starts_with('[') {
            return Ok(Some(found));
        }
        if !found.is_instance_of::<PyType>() && !is_generic(&found)? {
            return Ok(None);
        }
        let Some(items) = self.items()? else {
            return Ok(None);
        };
        let parameters = match <[_; 1]>::try_from(items) {
            Ok([only]) => only,
            Err(items) => PyTuple::new(self.py, items)?.into_any(),
        };
        match found.get_item(parameters) {
            Ok(parametrised) => Ok(Some(parametrised)),
            Err(error) if error.is_instance_of::<PyTypeError>(self.py) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `[a, b]`
    fn items(&mut self) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        self.eat("[");
        self.depth += 1;
        let mut items = Vec::new();
        while !self.eat("]") {
            if !items.is_empty() && !self.eat(", ") {
                return Ok(None);
            }
            match self.union()? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        self.depth -= 1;
        Ok(Some(items))
    }
}

/// The object called `name`, in the module that the longest possible prefix names.
fn dotted<'py>(
    py: Python<'py>,
    name: &str,
    allowed: Option<&AllowedNames<'_>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if name == "None" {
        return Ok(Some(py.None().into_bound(py)));
    }
    if name.is_empty() || name.split('.').any(str::is_empty) {
        return Ok(None);
    }
    let root = name.split('.').next().unwrap_or(name);
    if !name.contains('.') {
        let builtins = py.import(intern!(py, "builtins"))?;
        return attribute(builtins.as_any(), name, false);
    }
    if IMPORTED.contains(&root) {
        py.import(root)?;
    }
    let loaded = py
        .import(intern!(py, "sys"))?
        .getattr(intern!(py, "modules"))?
        .cast_into::<PyDict>()?;
    for (dot, _) in name.rmatch_indices('.') {
        let Some(module) = loaded.get_item(&name[..dot])? else {
            continue;
        };
        let mut found = Some(module);
        let mut end = dot;
        for part in name[dot + 1..].split('.') {
            end += 1 + part.len();
            found = match found {
                Some(object) => attribute(&object, part, root == "torch")?,
                None => break,
            };
            if let (Some(object), Some(allowed)) = (&found, allowed)
                && let Some(own) = foreign_name(object, &name[..end])?
                && !allowed.allows(&own)
            {
                allowed.raised()?;
                return Ok(None);
            }
        }
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The object's own name, if it differs from `path`, by which it was reached: for a module that is
/// an attribute of another one, and for an object that was defined in another package.
fn foreign_name(object: &Bound<'_, PyAny>, path: &str) -> PyResult<Option<String>> {
    let text = |name: &str| -> PyResult<Option<String>> {
        let value = object.getattr_opt(name)?;
        Ok(value.and_then(|value| value.extract().ok()))
    };
    if object.is_instance_of::<PyModule>() {
        return Ok(text("__name__")?.filter(|own| own != path));
    }
    let Some(module) = text("__module__")? else {
        return Ok(None);
    };
    // Public names of `operator` are defined in `_operator`.
    let package = |name: &str| {
        name.split('.')
            .next()
            .map(|p| p.trim_start_matches('_').to_owned())
    };
    if package(&module) == package(path) {
        return Ok(None);
    }
    let own = text("__qualname__")?.or(text("__name__")?);
    Ok(own.map(|own| format!("{module}.{own}")))
}

/// The attribute of `object` with this name. Modules other than torch's are not asked to compute
/// it, and instances of classes are not asked at all, since either may run any code.
fn attribute<'py>(
    object: &Bound<'py, PyAny>,
    name: &str,
    trusted: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let found = if trusted {
        object.getattr(name)
    } else if let Ok(module) = object.cast::<PyModule>() {
        return module.dict().get_item(name);
    } else if object.is_instance_of::<PyType>() {
        object.getattr(name)
    } else {
        return Ok(None);
    };
    match found {
        Ok(found) => Ok(Some(found)),
        // The exception of torch.ops for a missing operator varies.
        Err(error)
            if error.is_instance_of::<PyAttributeError>(py)
                || error.is_instance_of::<PyKeyError>(py)
                || error.is_instance_of::<pyo3::exceptions::PyRuntimeError>(py) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
