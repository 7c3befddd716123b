//! What a call depends on besides its arguments: modes of PyTorch that make it something else.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict};

/// Functions that tell what is switched on.
pub(super) struct Situation {
    is_grad_enabled: Py<PyAny>,
    is_any_autocast_enabled: Py<PyAny>,
    dispatch_modes: Py<PyAny>,
    /// The variables of `torch.autograd.forward_ad`, of which one is the level.
    forward_gradients: Py<PyDict>,
    /// Hooks of all modules, empty as a rule.
    hooks: Vec<Py<PyDict>>,
}

fn is_true(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match value.cast_exact::<PyBool>() {
        Ok(flag) => Ok(flag.is_true()),
        Err(_) => value.is_truthy(),
    }
}

impl Situation {
    pub(super) fn get(py: Python<'_>) -> PyResult<&Self> {
        static SITUATION: PyOnceLock<Situation> = PyOnceLock::new();
        SITUATION.get_or_try_init(py, || Self::load(py))
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
        Ok(Self {
            is_grad_enabled: torch.getattr("is_grad_enabled")?.unbind(),
            is_any_autocast_enabled: core.getattr("_is_any_autocast_enabled")?.unbind(),
            dispatch_modes: core.getattr("_len_torch_dispatch_stack")?.unbind(),
            forward_gradients: forward_gradients.unbind(),
            hooks: hooks.into_iter().collect::<PyResult<_>>()?,
        })
    }

    /// Whether autograd may record.
    pub(super) fn records(&self, py: Python<'_>) -> PyResult<bool> {
        is_true(&self.is_grad_enabled.bind(py).call0()?)
    }

    /// Whether nothing is switched on that a call has to be looked at for.
    pub(super) fn is_plain(&self, py: Python<'_>) -> PyResult<bool> {
        if is_true(&self.is_any_autocast_enabled.bind(py).call0()?)?
            || is_true(&self.dispatch_modes.bind(py).call0()?)?
            || self.hooks.iter().any(|hooks| !hooks.bind(py).is_empty())
        {
            return Ok(false);
        }
        let level = intern!(py, "_current_level");
        match self.forward_gradients.bind(py).get_item(level)? {
            Some(level) => Ok(level.extract::<i64>()? < 0),
            None => Ok(true),
        }
    }
}
