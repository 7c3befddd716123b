//! Functions as modules, in graphs of Python.

use std::collections::HashSet;

use corsac_ir::NodeId;
use corsac_passes::functional;
use pyo3::prelude::*;

use crate::budget::{PyBudget, within};
use crate::error::pass_error;
use crate::graph::PyGraph;
use crate::node::PyNode;
use crate::passes::{RawSite, raw_sites};
use crate::rules::finish;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(find_layers, m)?)?;
    m.add_function(wrap_pyfunction!(call_layers, m)?)?;
    Ok(())
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
    let edits = PyGraph::edit(graph, |ir| {
        functional::call_layers(ir, &own).map_err(pass_error)
    })?;
    finish(graph, &edits.added, &edits.erased)
}
