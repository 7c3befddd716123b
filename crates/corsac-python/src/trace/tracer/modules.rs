//! Modules, parameters and buffers of a tracer's root.

use corsac_ir::Op;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::PyTracer;
use crate::trace::intercept::Interception;
use crate::trace::modules::{Kind, Names, TorchClasses};
use crate::trace::overrides::Overrides;
use crate::trace::record::{self, Arguments, Call};
use crate::trace::scopes::leave_unnoted;

impl PyTracer {
    fn root<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.getattr(intern!(slf.py(), "root"))
    }

    fn table(&self, kind: Kind) -> Option<&Names> {
        match kind {
            Kind::Modules => self.modules.as_ref(),
            Kind::Parameters => self.parameters.as_ref(),
            Kind::Buffers => self.buffers.as_ref(),
        }
    }

    /// The qualified name in the root of a module, parameter or buffer.
    ///
    /// The table is filled at the first lookup, and once more for each lookup that fails: the root
    /// may have changed.
    pub(in crate::trace) fn name_in_root<'py>(
        slf: &Bound<'py, Self>,
        kind: Kind,
        object: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyString>>> {
        if let Some(name) = slf
            .try_borrow()?
            .table(kind)
            .and_then(|names| names.get(object))
        {
            return Ok(Some(name));
        }
        let names = kind.names(&Self::root(slf)?)?;
        let name = names.get(object);
        let replaced = {
            let mut me = slf.try_borrow_mut()?;
            let me = &mut *me;
            let table = match kind {
                Kind::Modules => &mut me.modules,
                Kind::Parameters => &mut me.parameters,
                Kind::Buffers => &mut me.buffers,
            };
            table.replace(names)
        };
        drop(replaced);
        Ok(name)
    }

    /// The qualified name of a module as `path_of_module` returns it: among the submodules as they
    /// were when the trace began, where that is known.
    pub(in crate::trace) fn module_name<'py>(
        slf: &Bound<'py, Self>,
        module: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = slf.py();
        let paths = {
            let me = slf.try_borrow()?;
            me.submodule_paths
                .as_ref()
                .map(|paths| paths.bind(py).clone())
        };
        if let Some(paths) = paths
            && paths.is_truthy()?
        {
            let path = paths.call_method1(intern!(py, "get"), (module,))?;
            return Ok((!path.is_none()).then_some(path));
        }
        Ok(Self::name_in_root(slf, Kind::Modules, module)?.map(Bound::into_any))
    }

    /// Whether calls of a module are recorded as such.
    fn is_leaf(
        slf: &Bound<'_, Self>,
        overrides: Overrides,
        module: &Bound<'_, PyAny>,
        path: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let py = slf.py();
        if overrides.is_leaf_module {
            return slf
                .call_method1(intern!(py, "is_leaf_module"), (module, path))?
                .is_truthy();
        }
        let class = module.get_type();
        let address = class.as_ptr() as usize;
        if let Some((_, leaf)) = slf.try_borrow()?.leaf_classes.get(&address) {
            return Ok(*leaf);
        }
        let home = module.getattr(intern!(py, "__module__"))?;
        let home = home.cast::<PyString>()?.to_str()?;
        let leaf = (home.starts_with("torch.nn") || home.starts_with("torch.ao.nn"))
            && !module.is_instance(TorchClasses::get(py)?.sequential.bind(py))?;
        slf.try_borrow_mut()?
            .leaf_classes
            .insert(address, (class.unbind(), leaf));
        Ok(leaf)
    }

    /// Handles a call of a module, unless `call_module` is overridden. `forward` calls it; where it
    /// is not given, the module is called as without tracing.
    pub(in crate::trace) fn call_module<'py>(
        slf: &Bound<'py, Self>,
        module: &Bound<'py, PyAny>,
        forward: Option<&Bound<'py, PyAny>>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let overrides = Self::overrides(slf)?;
        let path = if overrides.path_of_module {
            slf.call_method1(intern!(py, "path_of_module"), (module,))?
        } else {
            match Self::module_name(slf, module)? {
                Some(path) => path,
                // Raises the error, with its explanation.
                None => slf.call_method1(intern!(py, "path_of_module"), (module,))?,
            }
        };
        let path = path.cast_into::<PyString>()?;
        let class = module.get_type();
        let mirror = slf.try_borrow()?.scopes.mirror().map(|m| m.clone_ref(py));
        let entered = mirror
            .as_ref()
            .map(|m| m.enter(&path, &class))
            .transpose()?;
        let graph = Self::plain_graph(slf)?;
        if let Some(graph) = &graph {
            slf.try_borrow_mut()?.scopes.enter(graph, &path, &class)?;
        }
        let result =
            Self::call_in_scope(slf, overrides, module, forward, path.as_any(), args, kwargs);
        let ended = match graph {
            Some(_) => slf.try_borrow_mut()?.scopes.leave(),
            None => None,
        };
        match (mirror, entered, ended) {
            (Some(mirror), Some(entered), _) => mirror.leave(&entered, result.is_ok())?,
            (_, _, Some(ended)) => leave_unnoted(slf, &ended)?,
            (_, _, None) => {}
        }
        result
    }

    fn call_in_scope<'py>(
        slf: &Bound<'py, Self>,
        overrides: Overrides,
        module: &Bound<'py, PyAny>,
        forward: Option<&Bound<'py, PyAny>>,
        path: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if Self::is_leaf(slf, overrides, module, path)? {
            let call = Call {
                op: Op::CallModule,
                target: path,
                arguments: Arguments::of(args),
                kwargs: Some(kwargs),
                name: None,
                ty: None,
                factory: None,
            };
            return record::record(slf.as_any(), &call);
        }
        match forward {
            Some(forward) => forward.call(args, Some(kwargs)),
            None => {
                Self::search_module(slf, module)?;
                Interception::call_module(module, args, kwargs)
            }
        }
    }

    /// Value of an attribute of a module, unless `getattr` is overridden.
    pub(in crate::trace) fn read_attribute<'py>(
        slf: &Bound<'py, Self>,
        overrides: Overrides,
        name: &Bound<'py, PyString>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let cache = Self::parameter_proxies(slf)?;
        let ask = |value: &Bound<'py, PyAny>| {
            slf.call_method1(intern!(py, "getattr"), (name, value, &cache))
        };
        if overrides.getattr {
            return ask(&value);
        }
        let classes = TorchClasses::get(py)?;
        let qualified = if value.is_instance(classes.parameter.bind(py))? {
            Self::name_in_root(slf, Kind::Parameters, &value)?
        } else if overrides.buffers && value.is_instance(classes.tensor.bind(py))? {
            Self::name_in_root(slf, Kind::Buffers, &value)?
        } else {
            return Ok(value);
        };
        let Some(qualified) = qualified else {
            return Ok(value);
        };
        if let Some(known) = cache.get_item(&qualified)? {
            return Ok(known);
        }
        if overrides.parameter_shapes || overrides.create_proxy {
            return ask(&value);
        }
        let call = Call {
            op: Op::GetAttr,
            target: qualified.as_any(),
            arguments: Arguments::none(),
            kwargs: None,
            name: None,
            ty: None,
            factory: None,
        };
        let proxy = record::record(slf.as_any(), &call)?;
        cache.set_item(&qualified, &proxy)?;
        Ok(proxy)
    }

    fn parameter_proxies<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        if let Some(known) = &slf.try_borrow()?.parameter_proxies {
            return Ok(known.bind(py).clone());
        }
        let new = PyDict::new(py);
        slf.try_borrow_mut()?.parameter_proxies = Some(new.clone().unbind());
        Ok(new)
    }
}

#[pymethods]
impl PyTracer {
    /// The path of each module of the root, while tracing one.
    #[getter]
    fn submodule_paths(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let me = slf.try_borrow()?;
        if let Some(paths) = &me.submodule_paths {
            return Ok(paths.clone_ref(py));
        }
        let Some(modules) = &me.modules else {
            return Ok(py.None());
        };
        let entries: Vec<_> = modules
            .entries()
            .iter()
            .map(|(module, path)| (module.clone_ref(py), path.clone_ref(py)))
            .collect();
        drop(me);
        let paths = PyDict::new(py);
        for (module, path) in entries {
            paths.set_item(module, path)?;
        }
        Ok(paths.into_any().unbind())
    }

    #[setter]
    fn set_submodule_paths(slf: &Bound<'_, Self>, paths: Py<PyAny>) -> PyResult<()> {
        let given = (!paths.is_none(slf.py())).then_some(paths);
        let replaced = {
            let mut me = slf.try_borrow_mut()?;
            let modules = if given.is_none() {
                me.modules.take()
            } else {
                None
            };
            (std::mem::replace(&mut me.submodule_paths, given), modules)
        };
        drop(replaced);
        Ok(())
    }

    /// The default `call_module`.
    fn _call_module<'py>(
        slf: &Bound<'py, Self>,
        module: &Bound<'py, PyAny>,
        forward: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::call_module(slf, module, Some(forward), args, kwargs)
    }

    /// The qualified name of a module of the root.
    fn _module_name<'py>(
        slf: &Bound<'py, Self>,
        module: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Self::module_name(slf, module)
    }

    /// The qualified name of a parameter of the root.
    fn _parameter_name<'py>(
        slf: &Bound<'py, Self>,
        parameter: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyString>>> {
        Self::name_in_root(slf, Kind::Parameters, parameter)
    }

    /// The qualified name of a buffer of the root.
    fn _buffer_name<'py>(
        slf: &Bound<'py, Self>,
        buffer: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyString>>> {
        Self::name_in_root(slf, Kind::Buffers, buffer)
    }
}
