//! torch.fx's naming rules, for Python code that makes names itself.

use corsac_ir::namespace::Namespace;
use corsac_ir::{EntityId, Interner, Symbol};
use pyo3::prelude::*;

/// Creates names of which no two are the same.
#[pyclass(name = "Namespace", module = "corsac._core")]
#[derive(Default)]
pub(crate) struct PyNamespace {
    strings: Interner,
    names: Namespace,
}

#[pymethods]
impl PyNamespace {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// A new name based on `candidate`, which may be that of a builtin if `may_shadow`.
    fn create(&mut self, candidate: &str, may_shadow: bool) -> String {
        let name = self.names.create(&mut self.strings, candidate, may_shadow);
        self.strings.resolve(name).to_owned()
    }

    /// Marks `name` as used.
    fn mark_used(&mut self, name: &str) {
        let name = self.strings.intern(name);
        self.names.mark_used(name);
    }

    /// All names that are used.
    fn used(&self) -> Vec<&str> {
        let symbols = (0..self.strings.len()).map(Symbol::from_index);
        let used = symbols.filter(|&symbol| self.names.is_used(symbol));
        used.map(|symbol| self.strings.resolve(symbol)).collect()
    }
}
