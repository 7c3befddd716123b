//! State that a call depends on besides its arguments: modes of PyTorch that change its meaning.

#![expect(unsafe_code, reason = "functions of C++")]

use std::ffi::c_void;
use std::mem::transmute;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict};

use super::probe::{in_new_thread, within};
use super::torch_library::Library;

/// Functions that report the modes that are on.
pub(super) struct Modes {
    /// The same queries as C++ functions, if they give the same answers.
    switches: Option<Switches>,
    is_grad_enabled: Py<PyAny>,
    is_any_autocast_enabled: Py<PyAny>,
    is_autocast_enabled: Py<PyAny>,
    dispatch_modes: Py<PyAny>,
    /// The variables of `torch.autograd.forward_ad`, one of which is the level.
    forward_gradients: Py<PyDict>,
    /// Hooks of all modules, empty as a rule.
    hooks: Vec<Py<PyDict>>,
}

/// Functions of `libc10` and `libtorch_cpu` that report the modes of this thread.
#[derive(Clone, Copy)]
struct Switches {
    /// `c10::GradMode::is_enabled()`
    is_grad_enabled: unsafe extern "C" fn() -> bool,
    /// `at::autocast::is_autocast_enabled(c10::DeviceType)`
    is_autocast_enabled: unsafe extern "C" fn(i8) -> bool,
    /// `c10::impl::TorchDispatchModeTLS::stack_len()`
    dispatch_modes: unsafe extern "C" fn() -> i64,
    /// `at::impl::PythonTorchFunctionTLS::stack_len()`
    function_modes: unsafe extern "C" fn() -> i64,
    /// `torch::jit::tracer::getTracingState()`: a `std::shared_ptr`, which begins with a pointer.
    tracing_state: unsafe extern "C" fn() -> *const *const c_void,
    /// `at::functorch::getDynamicLayerStack()`: a `std::vector`, which begins with the addresses of
    /// its begin and end.
    transforms: unsafe extern "C" fn() -> *const [*const c_void; 2],
}

/// `c10::DeviceType::CPU`
const CPU: i8 = 0;

impl Switches {
    fn load(py: Python<'_>) -> PyResult<Self> {
        let (core, cpu) = (
            Library::loaded(py, "libc10.so")?,
            Library::loaded(py, "libtorch_cpu.so")?,
        );
        let grad = core.function("_ZN3c108GradMode10is_enabledEv")?;
        let autocast = cpu.function("_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE")?;
        let modes = core.function("_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv")?;
        let functions = cpu.function("_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv")?;
        let tracing = cpu.function("_ZN5torch3jit6tracer15getTracingStateEv")?;
        let transforms = cpu.function("_ZN2at9functorch20getDynamicLayerStackEv")?;
        // SAFETY: they are the functions of these names, which PyTorch declares so, in libraries
        // that stay loaded.
        Ok(unsafe {
            Self {
                is_grad_enabled: transmute::<*const c_void, unsafe extern "C" fn() -> bool>(grad),
                is_autocast_enabled: transmute::<*const c_void, unsafe extern "C" fn(i8) -> bool>(
                    autocast,
                ),
                dispatch_modes: transmute::<*const c_void, unsafe extern "C" fn() -> i64>(modes),
                function_modes: transmute::<*const c_void, unsafe extern "C" fn() -> i64>(
                    functions,
                ),
                tracing_state: transmute::<
                    *const c_void,
                    unsafe extern "C" fn() -> *const *const c_void,
                >(tracing),
                transforms: transmute::<
                    *const c_void,
                    unsafe extern "C" fn() -> *const [*const c_void; 2],
                >(transforms),
            }
        })
    }

    fn records(self) -> bool {
        // SAFETY: `load` has found the function, which takes nothing and reads a variable of the
        // thread.
        unsafe { (self.is_grad_enabled)() }
    }

    fn autocasts(self) -> bool {
        // SAFETY: as above; it takes the number of a device.
        unsafe { (self.is_autocast_enabled)(CPU) }
    }

    fn dispatch_modes(self) -> i64 {
        // SAFETY: as above.
        unsafe { (self.dispatch_modes)() }
    }

    /// Whether no mode of `__torch_function__` is on, nothing is traced by TorchScript, and no
    /// transform of functorch is on.
    fn are_off(self) -> bool {
        // SAFETY: as above; what is pointed to lives as long as the thread.
        unsafe {
            let [begin, end] = *(self.transforms)();
            (self.function_modes)() == 0 && (*(self.tracing_state)()).is_null() && begin == end
        }
    }

    /// Whether these agree with the functions of Python, whatever modes are on.
    fn are_right(self, torch: &Bound<'_, PyModule>) -> PyResult<bool> {
        let py = torch.py();
        let core = torch.getattr("_C")?;
        let modules = py.import("torch.utils._python_dispatch")?;
        let mut is_so = true;
        let are_off = || {
            let modes: i64 = core.call_method0("_len_torch_function_stack")?.extract()?;
            let tracing = core.call_method0("_get_tracing_state")?;
            let transforms = core.getattr("_functorch")?;
            let level = transforms.call_method0("maybe_current_level")?;
            PyResult::Ok(modes == 0 && tracing.is_none() && level.is_none())
        };
        let mut compare = || {
            is_so &= are_off()? == self.are_off();
            let records: bool = torch.call_method0("is_grad_enabled")?.extract()?;
            let autocasts: bool = torch
                .call_method1("is_autocast_enabled", ("cpu",))?
                .extract()?;
            let modes: i64 = core.call_method0("_len_torch_dispatch_stack")?.extract()?;
            let ours = (self.records(), self.autocasts(), self.dispatch_modes());
            is_so &= ours == (records, autocasts, modes);
            PyResult::Ok(())
        };
        compare()?;
        for records in [true, false] {
            let mode = torch.call_method1("set_grad_enabled", (records,))?;
            within(&mode, &mut compare)?;
            let options = PyDict::new(py);
            options.set_item("enabled", records)?;
            let mode = torch.call_method("autocast", ("cpu",), Some(&options))?;
            within(&mode, &mut compare)?;
        }
        let mode = modules.getattr("TorchDispatchMode")?.call0()?;
        within(&mode, || {
            compare()?;
            let inner = modules.getattr("TorchDispatchMode")?.call0()?;
            within(&inner, &mut compare)
        })?;
        let mode = py
            .import("torch.overrides")?
            .getattr("TorchFunctionMode")?
            .call0()?;
        within(&mode, &mut compare)?;
        let transforms = core.getattr("_functorch")?;
        transforms.call_method1("_vmap_increment_nesting", (2, "error"))?;
        let compared = compare();
        transforms.call_method0("_vmap_decrement_nesting")?;
        compared?;
        Ok(is_so)
    }
}

fn is_true(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match value.cast_exact::<PyBool>() {
        Ok(flag) => Ok(flag.is_true()),
        Err(_) => value.is_truthy(),
    }
}

impl Modes {
    pub(super) fn get(py: Python<'_>) -> PyResult<&Self> {
        static MODES: PyOnceLock<Modes> = PyOnceLock::new();
        MODES.get_or_try_init(py, || Self::load(py))
    }

    fn load(py: Python<'_>) -> PyResult<Self> {
        let torch = py.import("torch")?;
        let core = torch.getattr("_C")?;
        let modules = py.import("torch.nn.modules.module")?;
        let hooks = [
            "_global_forward_hooks",
            "_global_forward_pre_hooks",
            "_global_backward_hooks",
            "_global_backward_pre_hooks",
        ];
        let hooks = hooks.map(|name| Ok(modules.getattr(name)?.cast_into::<PyDict>()?.unbind()));
        let forward_gradients = py.import("torch.autograd.forward_ad")?.dict();
        let switches = in_new_thread(py, |py| {
            let own = Switches::load(py)?;
            let torch = py.import("torch")?;
            PyResult::Ok(own.are_right(&torch)?.then_some(own))
        });
        Ok(Self {
            switches: switches.and_then(Result::ok).flatten(),
            is_grad_enabled: torch.getattr("is_grad_enabled")?.unbind(),
            is_any_autocast_enabled: core.getattr("_is_any_autocast_enabled")?.unbind(),
            is_autocast_enabled: torch.getattr("is_autocast_enabled")?.unbind(),
            dispatch_modes: core.getattr("_len_torch_dispatch_stack")?.unbind(),
            forward_gradients: forward_gradients.unbind(),
            hooks: hooks.into_iter().collect::<PyResult<_>>()?,
        })
    }

    /// Whether autograd may record.
    pub(super) fn records(&self, py: Python<'_>) -> PyResult<bool> {
        match self.switches {
            Some(own) => Ok(own.records()),
            None => is_true(&self.is_grad_enabled.bind(py).call0()?),
        }
    }

    /// Whether there are hooks of all modules, which run before the program is called.
    pub(super) fn has_hooks(&self, py: Python<'_>) -> bool {
        self.hooks.iter().any(|hooks| !hooks.bind(py).is_empty())
    }

    /// Whether operators on the CPU cast their inputs.
    fn autocasts(&self, py: Python<'_>) -> PyResult<bool> {
        if let Some(own) = self.switches {
            return Ok(own.autocasts());
        }
        // The first query is the quicker one, and its answer nearly always no.
        Ok(is_true(&self.is_any_autocast_enabled.bind(py).call0()?)?
            && is_true(
                &self
                    .is_autocast_enabled
                    .bind(py)
                    .call1((intern!(py, "cpu"),))?,
            )?)
    }

    /// A mode that only PyTorch supports, for a message; None if none is on. Operators on the CPU
    /// `autocast` their inputs, or not.
    pub(super) fn unusual(&self, py: Python<'_>, autocast: bool) -> PyResult<Option<&'static str>> {
        if self.autocasts(py)? != autocast {
            return Ok(Some(match autocast {
                false => "autocast is on",
                true => "autocast is off",
            }));
        }
        let has_modes = match self.switches {
            Some(own) => own.dispatch_modes() > 0,
            None => is_true(&self.dispatch_modes.bind(py).call0()?)?,
        };
        if has_modes {
            return Ok(Some("a mode of torch.utils._python_dispatch is on"));
        }
        let level = intern!(py, "_current_level");
        if let Some(level) = self.forward_gradients.bind(py).get_item(level)?
            && level.extract::<i64>()? >= 0
        {
            return Ok(Some("forward-mode differentiation is on"));
        }
        Ok(None)
    }
}

/// Whether none of the modes of [`is_off`] is on; None if that takes a call of Python.
pub(crate) fn are_off(py: Python<'_>) -> Option<bool> {
    let switches = Modes::get(py).ok()?.switches?;
    Some(switches.are_off())
}

/// Whether operators mean what they usually do, and only one dispatch mode watches them: no autocast,
/// no transform of functorch, no mode of `__torch_function__`. False where that takes calls of Python.
pub(crate) fn is_plainly_watched(py: Python<'_>) -> bool {
    let switches = Modes::get(py).ok().and_then(|own| own.switches);
    switches.is_some_and(|own| !own.autocasts() && own.dispatch_modes() == 1 && own.are_off())
}

/// Whether autograd may record.
pub(crate) fn records(py: Python<'_>) -> PyResult<bool> {
    Modes::get(py)?.records(py)
}

/// Whether `callable` returns the number of modes of `__torch_function__`, what TorchScript traces,
/// or the transform of functorch, and `result` says that there is none.
pub(crate) fn is_off(callable: &Bound<'_, PyAny>, result: &Bound<'_, PyAny>) -> PyResult<bool> {
    let core = callable.py().import("torch")?.getattr("_C")?;
    if callable.is(&core.getattr("_len_torch_function_stack")?) {
        return result.eq(0);
    }
    let others = [
        core.getattr("_get_tracing_state")?,
        core.getattr("_functorch")?.getattr("maybe_current_level")?,
    ];
    Ok(others.iter().any(|own| callable.is(own)) && result.is_none())
}

/// A mode of this thread that only PyTorch supports; None as a rule. `autocast` says whether autocast is to be on.
#[pyfunction]
#[pyo3(signature = (*, autocast = false))]
pub(super) fn unusual_mode(py: Python<'_>, autocast: bool) -> PyResult<Option<&'static str>> {
    Modes::get(py)?.unusual(py, autocast)
}

/// Whether modes are queried by C++ functions, for tests.
#[pyfunction]
pub(super) fn knows_switches(py: Python<'_>) -> PyResult<bool> {
    Ok(Modes::get(py)?.switches.is_some())
}
