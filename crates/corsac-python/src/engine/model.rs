//! A graph and its weights, compiled for one set of shapes after the other.

use std::iter;
use std::sync::Arc;

use corsac_engine::{
    Executable, Precision, Program, WeightCache, borrow_weights, lower, lower_with_writes, optimise,
};
use pyo3::PyTraverseError;
use pyo3::exceptions::PyValueError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::planted::{Place, panic_if_planted};
use super::program::{Contexts, PyProgram, checked_setting};
use super::tensors::Exchange;
use super::weights::Loaded;
use super::{CompileError, shared_results, with_types};
use crate::analysis::facts::TypeFacts;
use crate::graph::PyGraph;

/// A graph with the facts about its modules and weights. Programs compiled from it share packed
/// weights, and the memory for values.
///
/// It uses the weights as they are when it is made, and the graph must not change.
#[pyclass(name = "NativeModel", module = "corsac._core", frozen)]
pub(crate) struct PyNativeModel {
    graph: Py<PyGraph>,
    strict: bool,
    precision: Precision,
    any_rows: bool,
    facts: TypeFacts,
    weights: Arc<WeightCache>,
    contexts: Contexts,
}

#[pymethods]
impl PyNativeModel {
    /// `strict` and `precision` are as for `compile_graph`. With `any_rows`, weights of linear layers are packed
    /// once for any number of rows. With `after`, the last model that was
    /// made for a graph with the same weights, both share packed weights and memory.
    #[new]
    #[pyo3(signature = (graph, *, strict = false, precision = "f32", any_rows = false, after = None))]
    pub(super) fn new(
        graph: &Bound<'_, PyGraph>,
        strict: bool,
        precision: &str,
        any_rows: bool,
        after: Option<&Self>,
    ) -> PyResult<Self> {
        checked_setting(graph.py())?;
        let facts = match after {
            Some(known) => known.facts.of_graph_after(graph)?,
            None => TypeFacts::of_graph(graph)?,
        };
        Ok(Self {
            graph: graph.clone().unbind(),
            strict,
            precision: precision_named(precision)?,
            any_rows,
            facts,
            weights: after
                .map(|known| Arc::clone(&known.weights))
                .unwrap_or_default(),
            contexts: after
                .map(|known| Arc::clone(&known.contexts))
                .unwrap_or_default(),
        })
    }

    /// Compiles a program for tensors like `inputs`; numbers among them are compiled in. Raises the
    /// exceptions of `compile_graph`. With `writes` the program may write to its inputs: calls
    /// raise `ValueError` where these share memory with others or with a weight, or are not
    /// contiguous.
    #[pyo3(signature = (inputs, *, writes = false))]
    pub(super) fn compile<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyTuple>,
        writes: bool,
    ) -> PyResult<PyProgram> {
        let graph = self.graph.bind(py);
        let lower = if writes { lower_with_writes } else { lower };
        let mut program = with_types(graph, inputs, &self.facts, |ir, types| {
            if self.strict
                && let Some((node, reason)) =
                    shared_results(ir, types, writes, iter::empty()).first()
            {
                let (name, target) = (ir.node(*node).name(), ir.node(*node).target_name());
                let text = format!("node {name} ({target}) cannot be compiled: {reason}");
                return Err(CompileError::new_err(text));
            }
            panic_if_planted(Place::Compile);
            let lowered = lower(ir, types);
            lowered.map_err(|error| CompileError::new_err(error.to_string()))
        })?;
        program.precision = program.precision.or(self.precision);
        program.any_rows = self.any_rows;
        let mut elsewhere = Vec::new();
        if !program.written.is_empty() {
            let exchange = Exchange::get(py)?;
            for tensor in self.facts.used() {
                let described = exchange
                    .map(|own| own.described(tensor.bind(py)))
                    .transpose()?;
                let Some(described) = described.flatten() else {
                    let text = "it writes to inputs, and a weight may lie anywhere";
                    return Err(CompileError::new_err(text));
                };
                elsewhere.push(described.bytes());
            }
        }
        let (executable, borrowed) = self.executable(py, program)?;
        let tensors = borrowed.iter().map(|&number| &self.facts.tensors[number]);
        let borrowed = tensors.map(|tensor| tensor.clone_ref(py)).collect();
        let contexts = Arc::clone(&self.contexts);
        let program = PyProgram::new(executable, self.strict, contexts);
        Ok(program.with_borrowed(borrowed).with_weights_in(elsewhere))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.graph)?;
        self.facts
            .tensors
            .iter()
            .try_for_each(|own| visit.call(own))
    }
}

/// The precision called `name`.
fn precision_named(name: &str) -> PyResult<Precision> {
    match name {
        "f32" => Ok(Precision::F32),
        "bf16" => Ok(Precision::Bf16),
        _ => Err(PyValueError::new_err(format!(
            "precision is 'f32' or 'bf16', not {name:?}"
        ))),
    }
}

impl PyNativeModel {
    /// The executable program with packed weights, and the numbers of the weights that are passed
    /// with each run.
    fn executable(
        &self,
        py: Python<'_>,
        mut program: Program,
    ) -> PyResult<(Executable, Vec<usize>)> {
        let weights = Loaded::of(py, &self.facts.tensors, &program)?;
        let (executable, borrowed) = py.detach(|| {
            optimise(&mut program);
            let borrowed = borrow_weights(&mut program, &|number| weights.can_borrow(number));
            let executable = Executable::with_cache(program, &weights, &self.weights);
            (executable, borrowed)
        });
        if let Some(error) = weights.error() {
            return Err(error);
        }
        let executable = executable.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok((executable, borrowed))
    }
}
