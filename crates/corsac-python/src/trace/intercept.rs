//! Replacements in the process while at least one trace is active, and their removal.
//!
//! Replaced are the code of two functions, `Module.__call__` and `Module.__getattr__`, and the
//! functions that are registered with `wrap` or that a tracer wraps, in the name spaces that hold
//! them. Each replacement looks for a trace of the calling thread, so it does not matter which
//! thread installed it.

use std::sync::{Mutex, MutexGuard};

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::{MutexExt, PyOnceLock};
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use rustc_hash::FxHashSet;

use super::modules::{TorchClasses, attributes};
use super::tracer::{self, PyTracer};
use super::wrapped::PyWrappedFunction;

/// A function, and its code while traces are active.
struct Entrance {
    function: Py<PyAny>,
    entering: Py<PyAny>,
    code: Py<PyAny>,
}

impl Entrance {
    fn set_code(&self, py: Python<'_>, code: &Py<PyAny>) -> PyResult<()> {
        self.function
            .bind(py)
            .setattr(intern!(py, "__code__"), code)
    }
}

/// Objects for the replacements, prepared by the Python half of the package.
struct Replaced {
    entrances: [Entrance; 2],
    original_call: Py<PyAny>,
    original_getattr: Py<PyAny>,
    /// `torch.fx._symbolic_trace._wrapped_fns_to_patch`
    functions: Py<PyDict>,
    /// `torch.fx._symbolic_trace._wrapped_methods_to_patch`
    methods: Py<PyList>,
}

static REPLACED: PyOnceLock<Replaced> = PyOnceLock::new();

impl Replaced {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        REPLACED
            .get(py)
            .ok_or_else(|| PyRuntimeError::new_err("corsac.fx has not been imported"))
    }
}

/// Registers the objects for the replacements: functions with the code that enters here, functions
/// with the original code, and the registries of wrapped functions and methods.
#[pyfunction]
pub(super) fn register_interception(
    py: Python<'_>,
    call: (Bound<'_, PyAny>, Py<PyAny>),
    getattr: (Bound<'_, PyAny>, Py<PyAny>),
    original_call: Py<PyAny>,
    original_getattr: Py<PyAny>,
    functions: Py<PyDict>,
    methods: Py<PyList>,
) -> PyResult<()> {
    let entrance = |(function, entering): (Bound<'_, PyAny>, Py<PyAny>)| -> PyResult<Entrance> {
        Ok(Entrance {
            code: function.getattr(intern!(py, "__code__"))?.unbind(),
            function: function.unbind(),
            entering,
        })
    };
    let replaced = Replaced {
        entrances: [entrance(call)?, entrance(getattr)?],
        original_call,
        original_getattr,
        functions,
        methods,
    };
    let _ = REPLACED.set(py, replaced);
    Ok(())
}

/// A function that was replaced in a name space or a class.
struct Patch {
    place: Place,
    name: Py<PyString>,
    wrapped: Py<PyWrappedFunction>,
    /// None for a builtin, which was not in the name space.
    original: Option<Py<PyAny>>,
}

enum Place {
    Names(Py<PyDict>),
    Class(Py<PyAny>),
}

impl Patch {
    fn apply(&self, py: Python<'_>) -> PyResult<()> {
        match &self.place {
            Place::Names(names) => names.bind(py).set_item(&self.name, &self.wrapped),
            Place::Class(class) => class.bind(py).setattr(&self.name, &self.wrapped),
        }
    }

    /// Restores the original, unless something else was put there meanwhile.
    fn undo(&self, py: Python<'_>) -> PyResult<()> {
        let name = self.name.bind(py);
        match &self.place {
            Place::Names(names) => {
                let names = names.bind(py);
                if !names
                    .get_item(name)?
                    .is_some_and(|now| now.is(&self.wrapped))
                {
                    return Ok(());
                }
                match &self.original {
                    Some(original) => names.set_item(name, original),
                    None => names.del_item(name),
                }
            }
            Place::Class(class) => {
                let class = class.bind(py);
                let own = class.getattr(intern!(py, "__dict__"))?.get_item(name)?;
                match &self.original {
                    Some(original) if own.is(&self.wrapped) => class.setattr(name, original),
                    None if own.is(&self.wrapped) => class.delattr(name),
                    Some(_) | None => Ok(()),
                }
            }
        }
    }
}

/// The active traces, and their replacements.
///
/// The lock is held during replacement and removal, so that no thread sees half of it. No code of
/// the user's runs meanwhile.
#[derive(Default)]
struct State {
    active: usize,
    patches: Vec<Patch>,
    patched: FxHashSet<(usize, String)>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

fn state(py: Python<'_>) -> MutexGuard<'static, Option<State>> {
    STATE
        .lock_py_attached(py)
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// An active trace of the process. When the last one is dropped, everything is restored.
pub(super) struct Interception<'py>(Python<'py>);

impl<'py> Interception<'py> {
    pub(super) fn begin(py: Python<'py>) -> PyResult<Self> {
        let replaced = Replaced::get(py)?;
        {
            let mut state = state(py);
            let state = state.get_or_insert_default();
            if state.active == 0 {
                for entrance in &replaced.entrances {
                    entrance.set_code(py, &entrance.entering)?;
                }
            }
            state.active += 1;
        }
        // From here on, dropping it restores everything.
        let interception = Self(py);
        interception.wrap_registered(replaced)?;
        Ok(interception)
    }

    /// Replaces the functions and methods that are registered with `wrap`.
    fn wrap_registered(&self, replaced: &Replaced) -> PyResult<()> {
        let py = self.0;
        let registered: Vec<_> = replaced.functions.bind(py).iter().collect();
        for (key, names) in registered {
            let name = key.get_item(1)?.cast_into::<PyString>()?;
            Self::wrap(names.cast::<PyDict>()?, &name, None, true)?;
        }
        for entry in replaced.methods.bind(py).iter() {
            let (class, name): (Bound<'_, PyAny>, Bound<'_, PyString>) = entry.extract()?;
            Self::wrap_method(&class, &name)?;
        }
        Ok(())
    }

    /// Replaces a function in a name space. `function` is the current one; where it is not given,
    /// the name is looked up, among the builtins if need be.
    pub(super) fn wrap(
        names: &Bound<'py, PyDict>,
        name: &Bound<'py, PyString>,
        function: Option<&Bound<'py, PyAny>>,
        registered: bool,
    ) -> PyResult<()> {
        let py = names.py();
        let key = (names.as_ptr() as usize, name.to_str()?.to_owned());
        if state(py).as_ref().is_some_and(|s| s.patched.contains(&key)) {
            return Ok(());
        }
        let found = match function {
            Some(function) => Some(function.clone()),
            None => names.get_item(name)?,
        };
        let original = match &found {
            Some(found) => found.clone(),
            None => match py.import(intern!(py, "builtins"))?.getattr_opt(name)? {
                Some(builtin) => builtin,
                None => {
                    return Err(pyo3::exceptions::PyKeyError::new_err(name.clone().unbind()));
                }
            },
        };
        if original.is_instance_of::<PyWrappedFunction>() {
            return Ok(());
        }
        let wrapped = PyWrappedFunction {
            original: original.unbind(),
            registered,
            method: None,
        };
        let patch = Patch {
            place: Place::Names(names.clone().unbind()),
            name: name.clone().unbind(),
            wrapped: Py::new(py, wrapped)?,
            original: found.map(Bound::unbind),
        };
        Self::patch(py, patch, key)
    }

    /// Replaces a method of a class.
    fn wrap_method(class: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> PyResult<()> {
        let py = class.py();
        let key = (class.as_ptr() as usize, name.to_str()?.to_owned());
        if state(py).as_ref().is_some_and(|s| s.patched.contains(&key)) {
            return Ok(());
        }
        let own = class.getattr(intern!(py, "__dict__"))?;
        let own = if own.contains(name)? {
            Some(own.get_item(name)?.unbind())
        } else {
            None
        };
        let wrapped = PyWrappedFunction {
            original: class.getattr(name)?.unbind(),
            registered: true,
            method: Some(name.clone().unbind()),
        };
        let patch = Patch {
            place: Place::Class(class.clone().unbind()),
            name: name.clone().unbind(),
            wrapped: Py::new(py, wrapped)?,
            original: own,
        };
        Self::patch(py, patch, key)
    }

    fn patch(py: Python<'py>, patch: Patch, key: (usize, String)) -> PyResult<()> {
        let mut state = state(py);
        // Another thread may have been quicker.
        let first = match &mut *state {
            Some(state) => state.patched.insert(key),
            None => false,
        };
        if first {
            patch.apply(py)?;
        }
        match &mut *state {
            Some(state) if first => state.patches.push(patch),
            Some(_) | None => {
                drop(state);
                drop(patch);
            }
        }
        Ok(())
    }

    /// Calls a module as without tracing: its forward directly, where `Module.__call__` would do
    /// nothing else.
    pub(super) fn call_module(
        module: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = module.py();
        if !CallMachinery::get(py)?.is_idle(module)? {
            return Self::call_original(module, args, kwargs);
        }
        let forward = module.getattr(intern!(py, "forward"))?;
        forward.call(args, (!kwargs.is_empty()).then_some(kwargs))
    }

    /// Calls a module by the original code of `Module.__call__`.
    pub(super) fn call_original(
        module: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = module.py();
        let mut all = Vec::with_capacity(args.len() + 1);
        all.push(module.clone());
        all.extend(args.iter());
        let args = PyTuple::new(py, all)?;
        Replaced::get(py)?
            .original_call
            .bind(py)
            .call(args, (!kwargs.is_empty()).then_some(kwargs))
    }
}

/// State that `Module.__call__` checks before it calls `forward`.
struct CallMachinery {
    call_impl: Py<PyAny>,
    global_hooks: Vec<Py<PyDict>>,
    is_jit_tracing: Py<PyAny>,
}

impl CallMachinery {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        static MACHINERY: PyOnceLock<CallMachinery> = PyOnceLock::new();
        MACHINERY.get_or_try_init(py, || {
            let module = py.import("torch.nn.modules.module")?;
            let mut global_hooks = Vec::new();
            for name in [
                "_global_backward_pre_hooks",
                "_global_backward_hooks",
                "_global_forward_hooks",
                "_global_forward_pre_hooks",
            ] {
                global_hooks.push(module.getattr(name)?.cast_into::<PyDict>()?.unbind());
            }
            let class = TorchClasses::get(py)?.module.bind(py);
            Ok(Self {
                call_impl: class.getattr("_call_impl")?.unbind(),
                global_hooks,
                is_jit_tracing: py.import("torch._C")?.getattr("_is_tracing")?.unbind(),
            })
        })
    }

    /// Whether a call of `module` would only call its `forward`: no hooks anywhere, not compiled,
    /// not under torch.jit.trace, and the call not overridden.
    fn is_idle(&self, module: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = module.py();
        if !self
            .global_hooks
            .iter()
            .all(|hooks| hooks.bind(py).is_empty())
        {
            return Ok(false);
        }
        let attributes = attributes(module)?;
        for name in [
            intern!(py, "_backward_hooks"),
            intern!(py, "_backward_pre_hooks"),
            intern!(py, "_forward_hooks"),
            intern!(py, "_forward_pre_hooks"),
        ] {
            match attributes.get_item(name)? {
                Some(hooks) if hooks.cast::<PyDict>().is_ok_and(|hooks| hooks.is_empty()) => {}
                Some(_) | None => return Ok(false),
            }
        }
        for name in [
            intern!(py, "_compiled_call_impl"),
            intern!(py, "_call_impl"),
        ] {
            if attributes.contains(name)? {
                return Ok(false);
            }
        }
        let call = module.get_type().getattr(intern!(py, "_call_impl"))?;
        Ok(call.is(&self.call_impl) && !self.is_jit_tracing.bind(py).call0()?.is_truthy()?)
    }
}

impl Drop for Interception<'_> {
    fn drop(&mut self) {
        let py = self.0;
        let mut state = state(py);
        let Some(now) = &mut *state else { return };
        now.active -= 1;
        if now.active > 0 {
            return;
        }
        let ended = state.take();
        let report = |error: PyErr| error.write_unraisable(py, None);
        if let Ok(replaced) = Replaced::get(py) {
            for entrance in &replaced.entrances {
                if let Err(error) = entrance.set_code(py, &entrance.code) {
                    report(error);
                }
            }
        }
        for patch in ended.iter().flat_map(|ended| ended.patches.iter().rev()) {
            if let Err(error) = patch.undo(py) {
                report(error);
            }
        }
        drop(state);
        drop(ended);
    }
}

/// Number of active traces in the process.
#[pyfunction]
pub(super) fn active_traces(py: Python<'_>) -> usize {
    state(py).as_ref().map_or(0, |state| state.active)
}

/// `Module.__call__` while traces are active.
#[pyfunction]
pub(super) fn intercept_call<'py>(
    module: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = module.py();
    let Some(tracer) = tracer::at_work(py) else {
        return Interception::call_original(module, args, kwargs);
    };
    if !PyTracer::overrides(&tracer)?.call_module {
        return PyTracer::call_module(&tracer, module, None, args, kwargs);
    }
    PyTracer::search_module(&tracer, module)?;
    static PARTIAL: PyOnceLock<Py<pyo3::types::PyType>> = PyOnceLock::new();
    let forward = PARTIAL
        .import(py, "functools", "partial")?
        .call1((&Replaced::get(py)?.original_call, module))?;
    tracer.call_method1(intern!(py, "call_module"), (module, forward, args, kwargs))
}

/// `Module.__getattr__` while traces are active.
#[pyfunction]
pub(super) fn intercept_getattr<'py>(
    module: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = module.py();
    let Some(value) = member(module, name)? else {
        // Raises the error.
        let original = Replaced::get(py)?.original_getattr.bind(py);
        return original.call1((module, name));
    };
    let Some(tracer) = tracer::at_work(py) else {
        return Ok(value);
    };
    let overrides = PyTracer::overrides(&tracer)?;
    if !overrides.getattr && value.is_instance(TorchClasses::get(py)?.module.bind(py))? {
        return Ok(value);
    }
    PyTracer::read_attribute(&tracer, overrides, name, value)
}

/// The parameter, buffer or submodule called `name`, as `Module.__getattr__` looks for it.
fn member<'py>(
    module: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = module.py();
    let attributes = attributes(module)?;
    for table in [
        intern!(py, "_parameters"),
        intern!(py, "_buffers"),
        intern!(py, "_modules"),
    ] {
        if let Some(table) = attributes.get_item(table)? {
            let found = match table.cast::<PyDict>() {
                Ok(table) => table.get_item(name)?,
                Err(_) if table.contains(name)? => Some(table.get_item(name)?),
                Err(_) => None,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    Ok(None)
}
