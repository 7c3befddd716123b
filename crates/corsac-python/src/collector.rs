//! Python's garbage collector, put off while many objects are made that are all kept.

use pyo3::intern;
use pyo3::prelude::*;

/// While this lives, automatic collections do not run. Made and dropped in one stretch of native
/// code that never lets another thread in, so that nobody else notices.
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
