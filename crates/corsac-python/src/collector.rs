//! Pauses of Python's garbage collector, while many objects are made that are all kept.

use pyo3::intern;
use pyo3::prelude::*;

/// Stops automatic collections while it lives. It is made and dropped within native code that lets
/// no other thread run, so that nobody else notices.
pub(crate) struct PausedCollector<'py> {
    collector: Option<Bound<'py, PyModule>>,
}

impl<'py> PausedCollector<'py> {
    pub(crate) fn new(py: Python<'py>) -> PyResult<Self> {
        let collector = py.import(intern!(py, "gc"))?;
        if !collector
            .call_method0(intern!(py, "isenabled"))?
            .is_truthy()?
        {
            return Ok(Self { collector: None });
        }
        collector.call_method0(intern!(py, "disable"))?;
        Ok(Self {
            collector: Some(collector),
        })
    }
}

impl Drop for PausedCollector<'_> {
    fn drop(&mut self) {
        if let Some(collector) = &self.collector {
            // `gc.enable` has no way to fail.
            let _ = collector.call_method0(intern!(collector.py(), "enable"));
        }
    }
}
