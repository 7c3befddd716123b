//! What a call depends on besides its arguments: modes of PyTorch that make it something else.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict};

/// Functions that tell what is switched on.
pub(super) struct Situation {
    is_grad_enabled: Py<PyAny>,
    is_any_autocast_enabled: Py<PyAny>,
    is_autocast_enabled: Py<PyAny>,
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
            is_autocast_enabled: torch.getattr("is_autocast_enabled")?.unbind(),
            dispatch_modes: core.getattr("_len_torch_dispatch_stack")?.unbind(),
            forward_gradients: forward_gradients.unbind(),
            hooks: hooks.into_iter().collect::<PyResult<_>>()?,
        })
    }

    /// Whether autograd may record.
    pub(super) fn records(&self, py: Python<'_>) -> PyResult<bool> {
        is_true(&self.is_grad_enabled.bind(py).call0()?)
    }

    /// Whether there are hooks of all modules, which are run before the program is asked for.
    pub(super) fn has_hooks(&self, py: Python<'_>) -> bool {
        self.hooks.iter().any(|hooks| !hooks.bind(py).is_empty())
    }

    /// What is switched on that only PyTorch can do, for a message.
    pub(super) fn unusual(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        // The first question is the quicker one, and the answer nearly always no.
        if is_true(&self.is_any_autocast_enabled.bind(py).call0()?)?
            && is_true(
                &self
                    .is_autocast_enabled
                    .bind(py)
                    .call1((intern!(py, "cpu"),))?,
            )?
        {
            return Ok(Some("autocast is on"));
        }
        if is_true(&self.dispatch_modes.bind(py).call0()?)? {
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

/// What is switched on in this thread that only PyTorch can do; None as a rule.
#[pyfunction]
pub(super) fn unusual_mode(py: Python<'_>) -> PyResult<Option<&'static str>> {
    Situation::get(py)?.unusual(py)
}
