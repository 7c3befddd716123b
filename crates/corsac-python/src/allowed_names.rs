//! Names that a text may use, given by the caller as a predicate or a collection of names.

use std::cell::RefCell;

use corsac_ir::is_name_within;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A predicate or a collection of names.
enum Rule<'py> {
    /// A Python callable: names are allowed for which its result is true.
    Predicate(Bound<'py, PyAny>),
    /// These names, and the names within them.
    Within(Vec<String>),
}

/// A rule for names, and the exception that its predicate raised.
pub(crate) struct AllowedNames<'py> {
    rule: Rule<'py>,
    raised: RefCell<Option<PyErr>>,
}

impl<'py> AllowedNames<'py> {
    /// Reads `allow`: a callable, or an iterable of names.
    pub(crate) fn of(allow: &Bound<'py, PyAny>) -> PyResult<Self> {
        let rule = if allow.is_callable() {
            Rule::Predicate(allow.clone())
        } else if allow.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err(
                "allow is a predicate or a collection of names, not one name: write [\"torch\"]",
            ));
        } else {
            let names = allow.try_iter()?.map(|name| name?.extract::<String>());
            Rule::Within(names.collect::<PyResult<_>>()?)
        };
        Ok(Self {
            rule,
            raised: RefCell::new(None),
        })
    }

    /// Whether `name` may be used. If the predicate raises, it may not, and the exception is kept
    /// for [`Self::raised`].
    pub(crate) fn allows(&self, name: &str) -> bool {
        let predicate = match &self.rule {
            Rule::Within(names) => return names.iter().any(|prefix| is_name_within(name, prefix)),
            Rule::Predicate(predicate) => predicate,
        };
        let answer = predicate
            .call1((name,))
            .and_then(|answer| answer.is_truthy());
        answer.unwrap_or_else(|error| {
            self.raised.replace(Some(error));
            false
        })
    }

    /// Fails with the exception that the predicate raised, once.
    pub(crate) fn raised(&self) -> PyResult<()> {
        self.raised.take().map_or(Ok(()), Err)
    }
}
