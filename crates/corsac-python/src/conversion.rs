//! Functions as modules, and casts of mixed precision, in graphs of Python.

use std::collections::HashSet;

use corsac_ir::{Graph, NodeId};
use corsac_passes::autocast::{self, Casts};
use corsac_passes::{Edits, PassError, functional};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::analysis::facts::TypeFacts;
use crate::budget::{PyBudget, within};
use crate::effects::Facts;
use crate::error::pass_error;
use crate::graph::PyGraph;
use crate::node::PyNode;
use crate::passes::{RawSite, raw_sites};
use crate::rules::finish;
use crate::runtime::{TorchValue, TorchValues};

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(find_layers, m)?)?;
    m.add_function(wrap_pyfunction!(call_layers, m)?)?;
    m.add_function(wrap_pyfunction!(insert_casts, m)?)?;
    Ok(())
}

/// Changes `graph`, and completes its records of new and erased nodes.
fn change(
    graph: &Bound<'_, PyGraph>,
    change: impl FnOnce(&mut Graph) -> Result<Edits, PassError>,
) -> PyResult<()> {
    let edits = PyGraph::edit(graph, |ir| change(ir).map_err(pass_error))?;
    finish(graph, &edits.added, &edits.erased)
}

/// A call that a module can make: the node, the class, the paths of weight and bias.
type Layer = (Py<PyNode>, &'static str, Option<String>, Option<String>);

/// The calls of functions in `graph` that modules can make, and all calls of such functions, with
/// the reason where none can. `parameters` has the paths of all parameters.
#[pyfunction]
#[pyo3(signature = (graph, parameters, *, budget = None))]
pub(crate) fn find_layers(
    graph: &Bound<'_, PyGraph>,
    parameters: HashSet<String>,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<(Vec<Layer>, Vec<RawSite>)> {
    let borrowed = graph.try_borrow()?;
    let ir = borrowed.ir();
    let is_parameter = |path: &str| parameters.contains(path);
    let (sites, layers) = within(budget, |budget| {
        Ok(functional::find_layers(ir, &is_parameter, budget))
    })?;
    let layers = layers.into_iter().map(|layer| {
        let node = PyNode::handle(graph, borrowed.host(), layer.node)?;
        Ok((node, layer.class, layer.weight, layer.bias))
    });
    Ok((layers.collect::<PyResult<_>>()?, raw_sites(sites)))
}

/// Replaces the calls of these nodes of `graph` by calls of modules, by path.
#[pyfunction]
pub(crate) fn call_layers(
    graph: &Bound<'_, PyGraph>,
    modules: Vec<(Bound<'_, PyNode>, String)>,
) -> PyResult<()> {
    let own = modules.iter().map(|(node, path)| {
        let node = PyGraph::own(graph, node)?;
        Ok((node, path.as_str()))
    });
    let own: Vec<(NodeId, &str)> = own.collect::<PyResult<_>>()?;
    change(graph, |ir| functional::call_layers(ir, &own))
}

/// Inserts the casts of autocast: `cast(value, dtype)`, `widest(list)`. Returns every call that it
/// casts for, with the type, and every call that is unknown to it.
#[pyfunction]
#[pyo3(signature = (graph, dtype, cast, widest, *, budget = None))]
pub(crate) fn insert_casts(
    graph: &Bound<'_, PyGraph>,
    dtype: &Bound<'_, PyAny>,
    cast: &Bound<'_, PyAny>,
    widest: &Bound<'_, PyAny>,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Vec<RawSite>> {
    let Some(TorchValue::DType(dtype)) = TorchValues::get(graph.py())?.of(dtype) else {
        return Err(PyTypeError::new_err(format!("{dtype} is no torch.dtype")));
    };
    let (facts, types) = (Facts::of_graph(graph)?, TypeFacts::of_graph(graph)?);
    let casts = Casts::ByHost {
        cast: PyGraph::function(graph, cast)?,
        widest: PyGraph::function(graph, widest)?,
    };
    let done = within(budget, |budget| {
        PyGraph::edit(graph, |ir| {
            autocast::insert(ir, &facts, &types, dtype, &casts, budget).map_err(pass_error)
        })
    })?;
    finish(graph, &done.edits.added, &done.edits.erased)?;
    for &node in &done.stale {
        PyGraph::forget_value(graph, node)?;
    }
    Ok(raw_sites(done.sites))
}
