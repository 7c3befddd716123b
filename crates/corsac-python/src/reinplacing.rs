//! In-place operators, in graphs of Python.

use corsac_passes::reinplace::{Options, find};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use crate::budget::{PyBudget, within};
use crate::effects::{Facts, tensor_facts};
use crate::error::pass_error;
use crate::graph::PyGraph;
use crate::passes::{Site, erased, site};
use crate::resolve::resolve;

/// Replaces operators of `graph` by in-place forms where that cannot be observed; with `gradients`,
/// only where gradients are computed without the overwritten values. Returns every call of an
/// operator with an in-place form: its replacement, or the reason why it stays.
#[pyfunction]
#[pyo3(signature = (graph, *, gradients, budget = None))]
pub(crate) fn reinplace(
    graph: &Bound<'_, PyGraph>,
    gradients: bool,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Vec<Site>> {
    let py = graph.py();
    let facts = Facts::of_graph(graph)?;
    let tensors = tensor_facts(graph)?;
    let report = within(budget, |budget| {
        let borrowed = graph.try_borrow()?;
        find(
            borrowed.ir(),
            &facts,
            &tensors,
            Options { gradients },
            budget,
        )
        .map_err(pass_error)
    })?;
    // Sites show the old targets.
    let sites = {
        let borrowed = graph.try_borrow()?;
        let sites = report.sites.iter().map(|s| {
            let form = s.becomes().map(str::to_owned);
            let reason = s.refusal.as_ref().map(ToString::to_string);
            site(borrowed.ir(), s.node, form, reason)
        });
        sites.collect()
    };
    let mut functions = FxHashMap::default();
    for name in report.functions() {
        if !functions.contains_key(name) {
            let callable = resolve(py, name, None)?
                .ok_or_else(|| PyRuntimeError::new_err(format!("there is no {name}")))?;
            functions.insert(name.to_owned(), PyGraph::function(graph, &callable)?);
        }
    }
    if report.changed() {
        let applied = PyGraph::edit(graph, |ir| {
            let applied = report.apply(ir, |ir, name| {
                let known = functions.get(name).copied();
                known.unwrap_or_else(|| ir.function(name))
            });
            applied.map_err(pass_error)
        })?;
        for &(new, old) in &applied.added {
            PyGraph::inherit_meta_but_value(graph, new, old)?;
        }
        erased(graph, &applied.erased)?;
    }
    Ok(sites)
}
