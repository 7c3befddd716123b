//! `Attribute`: an attribute of a proxy, which is mostly a method that is called at once.

use pyo3::exceptions::PyAttributeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::proxy::{PyProxy, call_method};

/// An attribute of a proxy. Calling it records a call of a method; any other use records a read of
/// the attribute.
#[pyclass(name = "Attribute", module = "corsac.fx.proxy", extends = PyProxy, subclass, weakref)]
pub(crate) struct PyAttribute {
    root: Option<Py<PyAny>>,
    attr: Option<Py<PyString>>,
}

impl PyAttribute {
    pub(super) fn of(root: &Bound<'_, PyProxy>, attr: &Bound<'_, PyString>) -> Self {
        Self {
            root: Some(root.as_any().clone().unbind()),
            attr: Some(attr.clone().unbind()),
        }
    }

    /// Sets a field. The old value is dropped when nothing is borrowed any more: that may run any
    /// code.
    fn replace<T>(
        slf: &Bound<'_, Self>,
        field: impl FnOnce(&mut Self) -> &mut Option<T>,
        value: T,
    ) -> PyResult<()> {
        let replaced = field(&mut *slf.try_borrow_mut()?).replace(value);
        drop(replaced);
        Ok(())
    }
}

#[pymethods]
impl PyAttribute {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyClassInitializer<Self> {
        PyClassInitializer::from(PyProxy::unset()).add_subclass(Self {
            root: None,
            attr: None,
        })
    }

    /// The attribute `attr` of the proxy `root`.
    fn __init__(
        slf: &Bound<'_, Self>,
        root: &Bound<'_, PyAny>,
        attr: &Bound<'_, PyString>,
    ) -> PyResult<()> {
        let tracer = root.getattr(intern!(slf.py(), "tracer"))?;
        PyProxy::become_attribute(slf.as_super(), tracer, root, attr)?;
        Self::replace(slf, |me| &mut me.root, root.clone().unbind())?;
        Self::replace(slf, |me| &mut me.attr, attr.clone().unbind())
    }

    /// The proxy that this is an attribute of.
    #[getter]
    fn root(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.root.as_ref().map(|root| root.clone_ref(py))
    }

    #[setter]
    fn set_root(slf: &Bound<'_, Self>, root: Py<PyAny>) -> PyResult<()> {
        Self::replace(slf, |me| &mut me.root, root)
    }

    /// The name of the attribute.
    #[getter]
    fn attr(&self, py: Python<'_>) -> Option<Py<PyString>> {
        self.attr.as_ref().map(|attr| attr.clone_ref(py))
    }

    #[setter]
    fn set_attr(slf: &Bound<'_, Self>, attr: Py<PyString>) -> PyResult<()> {
        Self::replace(slf, |me| &mut me.attr, attr)
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let (root, attr) = {
            let me = slf.try_borrow()?;
            match (&me.root, &me.attr) {
                (Some(root), Some(attr)) => (root.bind(py).clone(), attr.bind(py).clone()),
                _ => {
                    let message = "Attribute.__init__ has not been called";
                    return Err(PyAttributeError::new_err(message));
                }
            }
        };
        let tracer = PyProxy::tracer_of(slf.as_super())?;
        call_method(&tracer, &attr, &[root], args, kwargs)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.root)
    }

    fn __clear__(&mut self) {
        self.root = None;
    }
}
