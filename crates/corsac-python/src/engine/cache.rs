//! The cache folder of compiled programs, for Python.

use std::collections::BTreeMap;
use std::path::PathBuf;

use corsac_engine::{CacheError, CacheFolder, CacheKey, CacheRecord, cache};
use pyo3::exceptions::{PyOSError, PyPermissionError, PyValueError};
use pyo3::prelude::*;

fn cache_error(error: &CacheError) -> PyErr {
    let text = error.to_string();
    match error {
        CacheError::Io { path, source } => match source.raw_os_error() {
            Some(number) => PyOSError::new_err((number, source.to_string(), path.clone())),
            None => std::io::Error::new(source.kind(), text).into(),
        },
        CacheError::Size { .. } => PyValueError::new_err(text),
        _ => PyPermissionError::new_err(text),
    }
}

/// A folder that keeps facts about compiled programs for other processes.
///
/// Entries are found by facts: names and texts that cover all that they depend on, besides the
/// version of corsac and the processor, which always count. `limit` is a size such as `"64M"`, its
/// default. Raises `OSError` if the folder cannot be made, belongs to another user or can be
/// written to by others, and `ValueError` for a limit that is no size.
#[pyclass(name = "CacheFolder", module = "corsac._core", frozen)]
pub(super) struct PyCacheFolder {
    folder: CacheFolder,
}

type Facts = Vec<(String, String)>;

fn key(facts: &Facts) -> CacheKey {
    let facts = facts.iter();
    CacheKey::new(facts.map(|(name, value)| (name.as_str(), value.as_str())))
}

#[pymethods]
impl PyCacheFolder {
    #[new]
    #[pyo3(signature = (path, limit = None))]
    fn new(path: PathBuf, limit: Option<&str>) -> PyResult<Self> {
        let bytes = limit.map_or(Ok(CacheFolder::LIMIT_BYTES), cache::size_bytes);
        let folder = bytes.and_then(|bytes| CacheFolder::open(&path, bytes));
        let folder = folder.map_err(|error| cache_error(&error))?;
        Ok(Self { folder })
    }

    /// The steps of a program, and the seconds that each way to run it took; None if there is no
    /// entry.
    fn get(&self, py: Python<'_>, facts: Facts) -> Option<(String, BTreeMap<String, f64>)> {
        let record = py.detach(|| self.folder.get(&key(&facts)))?;
        Some((record.program, record.seconds))
    }

    /// Write an entry; raises `OSError` if it cannot be written.
    fn put(
        &self,
        py: Python<'_>,
        facts: Facts,
        program: String,
        seconds: BTreeMap<String, f64>,
    ) -> PyResult<()> {
        let record = CacheRecord { program, seconds };
        let put = py.detach(|| self.folder.put(&key(&facts), &record));
        put.map_err(|error| cache_error(&error))
    }

    /// Number of entries, and their size on the disk in bytes.
    fn contents(&self, py: Python<'_>) -> PyResult<(usize, u64)> {
        let contents = py.detach(|| self.folder.contents());
        let contents = contents.map_err(|error| cache_error(&error))?;
        Ok((contents.entries, contents.bytes))
    }

    /// Remove all entries; returns their number.
    fn clear(&self, py: Python<'_>) -> PyResult<usize> {
        let removed = py.detach(|| self.folder.clear());
        removed.map_err(|error| cache_error(&error))
    }

    /// Largest size of the folder in bytes.
    #[getter]
    fn limit_bytes(&self) -> u64 {
        self.folder.limit_bytes()
    }
}
