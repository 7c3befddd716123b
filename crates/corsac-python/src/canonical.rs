//! The canonical order and hash of a graph.

use std::cell::Cell;

use corsac_ir::canonical::ExternalIdentity;
use corsac_ir::{EntityId, ExternalId, Graph};
use corsac_passes::canonical;
use pyo3::intern;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use crate::effects::{Facts, effects};
use crate::error::pass_error;
use crate::graph::PyGraph;

/// Texts of opaque values and callables, found before the graph is walked.
#[derive(Default)]
pub(crate) struct Texts {
    /// The texts, and whether each is the same in every process.
    texts: FxHashMap<ExternalId, (String, bool)>,
    /// Whether all texts that were used are.
    portable: Cell<bool>,
}

impl Texts {
    pub(crate) fn of_graph(graph: &Bound<'_, PyGraph>) -> PyResult<Self> {
        let py = graph.py();
        let objects: Vec<(ExternalId, Py<PyAny>)> = {
            let borrowed = graph.try_borrow()?;
            let externals = borrowed.host().externals();
            externals.map(|(id, o)| (id, o.clone_ref(py))).collect()
        };
        let describe = effects(py)?.getattr(intern!(py, "describe_value"))?;
        let mut all = Self {
            texts: FxHashMap::default(),
            portable: Cell::new(true),
        };
        for (id, object) in objects {
            let text: String = describe.call1((&object,))?.extract()?;
            // The text of an object that is identified by identity ends with its address.
            let portable = !text.ends_with(&format!(" at {}", object.as_ptr().addr()));
            all.texts.insert(id, (text, portable));
        }
        Ok(all)
    }
}

impl ExternalIdentity for Texts {
    fn text(&self, _graph: &Graph, external: ExternalId) -> Option<String> {
        let known = self.texts.get(&external).cloned();
        let (text, portable) =
            known.unwrap_or_else(|| (format!("external {}", external.index()), false));
        self.portable.set(self.portable.get() && portable);
        Some(text)
    }
}

#[pymethods]
impl PyGraph {
    /// A hash, as 32 hexadecimal digits, that is equal for graphs that compute the same in the same
    /// way: it does not depend on the names of values nor on the order of independent nodes. It
    /// does depend on opcodes, targets, arguments, the names and order of inputs, and on the order
    /// of writes, uses of random numbers and other effects. Weights are not in the graph: their
    /// names count. Constants that are tensors or objects count by identity, so that hashes of
    /// graphs with such constants are comparable within one process only.
    fn canonical_hash(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (facts, texts) = (Facts::of_graph(slf)?, Texts::of_graph(slf)?);
        let borrowed = slf.try_borrow()?;
        let form = canonical::of_graph(borrowed.ir(), &facts, &texts).map_err(pass_error)?;
        Ok(format!("{:032x}", form.hash))
    }

    /// The hash of `canonical_hash`, which is the same in every process; None if there are
    /// constants that count by identity.
    fn portable_hash(slf: &Bound<'_, Self>) -> PyResult<Option<String>> {
        let (facts, texts) = (Facts::of_graph(slf)?, Texts::of_graph(slf)?);
        let borrowed = slf.try_borrow()?;
        let form = canonical::of_graph(borrowed.ir(), &facts, &texts).map_err(pass_error)?;
        let portable = texts.portable.get();
        Ok(portable.then(|| format!("{:032x}", form.hash)))
    }
}
