//! Replacements of functions that are recorded as calls.

use corsac_ir::Op;
use pyo3::exceptions::PyAttributeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::record::{Arguments, Call, record};
use super::torch_function::first_proxy;
use super::tracer;

/// A function that is recorded as one call if it gets a proxy, and is called otherwise.
///
/// It is in place while any thread traces. In a thread that does not trace, it calls the function.
#[pyclass(name = "WrappedFunction", module = "corsac._core", frozen)]
pub(crate) struct PyWrappedFunction {
    pub(super) original: Py<PyAny>,
    /// Whether it is recorded in every trace, or only where the tracer asks for it.
    pub(super) registered: bool,
    /// The name of a method, which is recorded as a call of the method.
    pub(super) method: Option<Py<PyString>>,
}

#[pymethods]
impl PyWrappedFunction {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let original = self.original.bind(py);
        let Some(tracer) = tracer::at_work(py) else {
            return original.call(args, kwargs);
        };
        if !self.registered && !tracer.try_borrow()?.autowraps(&self.original) {
            return original.call(args, kwargs);
        }
        let found = match (first_proxy(args.as_any(), 0)?, kwargs) {
            (None, Some(kwargs)) => first_proxy(kwargs.as_any(), 0)?,
            (found, _) => found,
        };
        let Some(proxy) = found else {
            return original.call(args, kwargs);
        };
        let tracer = proxy.getattr(intern!(py, "tracer"))?;
        let mut call = Call {
            op: Op::CallFunction,
            target: original,
            arguments: Arguments::of(args),
            kwargs,
            name: None,
            ty: None,
            factory: None,
        };
        if let Some(name) = &self.method {
            call.op = Op::CallMethod;
            call.target = name.bind(py).as_any();
            return record(&tracer, &call);
        }
        let result = record(&tracer, &call)?;
        let node = result.getattr(intern!(py, "node"))?;
        node.getattr(intern!(py, "meta"))?
            .set_item(intern!(py, "is_wrapped"), true)?;
        Ok(result)
    }

    /// In a class, it is a method.
    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        instance: &Bound<'py, PyAny>,
        owner: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = owner;
        if slf.get().method.is_none() || instance.is_none() {
            return Ok(slf.as_any().clone());
        }
        let py = slf.py();
        let bind = py
            .import(intern!(py, "types"))?
            .getattr(intern!(py, "MethodType"))?;
        bind.call1((slf, instance))
    }

    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> Py<PyAny> {
        self.original.clone_ref(py)
    }

    /// Prevents torch.fx, tracing at the same time, from wrapping it once more.
    #[getter(__fx_already_patched)]
    fn is_patched(&self) -> bool {
        true
    }

    fn __getattr__<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.original.bind(py).getattr_opt(name)? {
            Some(value) => Ok(value),
            None => Err(PyAttributeError::new_err(format!(
                "the wrapped function has no attribute '{}'",
                name.to_string_lossy()
            ))),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let repr = self.original.bind(py).repr()?;
        Ok(repr.to_string_lossy().into_owned())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.original)
    }
}
