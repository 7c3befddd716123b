//! Normal forms of calls, in graphs of Python.

use corsac_ir::Op;
use corsac_ops::signature::python_operator;
use corsac_passes::normal_form;
use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use crate::budget::{PyBudget, within};
use crate::conversion::functions_named;
use crate::error::pass_error;
use crate::graph::PyGraph;
use crate::passes::{Site, site};

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(keyword_arguments, m)?)?;
    m.add_function(wrap_pyfunction!(functions_to_operators, m)?)?;
    Ok(())
}

/// Passes the arguments of PyTorch's functions in `graph` by keyword. Returns every call of one
/// that had arguments by position.
#[pyfunction]
#[pyo3(signature = (graph, *, budget = None))]
pub(crate) fn keyword_arguments(
    graph: &Bound<'_, PyGraph>,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Vec<Site>> {
    let found = within(budget, |budget| {
        PyGraph::edit(graph, |ir| {
            normal_form::keywords(ir, budget).map_err(pass_error)
        })
    })?;
    sites(graph, &found)
}

/// Replaces functions of `torch` in `graph` by operators of Python. Returns every call of one that
/// Python has an operator for.
#[pyfunction]
#[pyo3(signature = (graph, *, budget = None))]
pub(crate) fn functions_to_operators(
    graph: &Bound<'_, PyGraph>,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Vec<Site>> {
    let names: FxHashSet<&'static str> = {
        let borrowed = graph.try_borrow()?;
        let calls = borrowed.ir().find_nodes(Op::CallFunction, None).into_iter();
        calls
            .filter_map(|id| python_operator(borrowed.ir().node(id).target_name()))
            .collect()
    };
    let functions = functions_named(graph, names.into_iter())?;
    let found = within(budget, |budget| {
        let function = |ir: &mut corsac_ir::Graph, name: &str| {
            let known = functions.get(name).copied();
            known.unwrap_or_else(|| ir.function(name))
        };
        PyGraph::edit(graph, |ir| {
            normal_form::operators(ir, function, budget).map_err(pass_error)
        })
    })?;
    sites(graph, &found)
}

fn sites(graph: &Bound<'_, PyGraph>, found: &[normal_form::Site]) -> PyResult<Vec<Site>> {
    let borrowed = graph.try_borrow()?;
    let sites = found.iter().map(|at| {
        let reason = at.refusal.map(|refusal| refusal.to_string());
        site(borrowed.ir(), at.node, None, reason)
    });
    Ok(sites.collect())
}
