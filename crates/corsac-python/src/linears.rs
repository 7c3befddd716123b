//! Merged linear layers, and linear layers without bias, in graphs of Python.

use std::collections::HashMap;

use corsac_ir::NodeId;
use corsac_passes::linears;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::budget::{PyBudget, within};
use crate::effects::Facts;
use crate::error::pass_error;
use crate::graph::PyGraph;
use crate::graph::node::PyNode;
use crate::passes::{RawSite, raw_site};

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(find_linears, m)?)?;
    m.add_function(wrap_pyfunction!(merge_linears, m)?)?;
    m.add_function(wrap_pyfunction!(pad_input_of_linear, m)?)?;
    Ok(())
}

/// Calls of linear layers, each with the path of the layer.
type Calls = Vec<(Py<PyNode>, String)>;

/// The calls of `nn.Linear` in `graph` that can be changed, and all of them with the reason why
/// they cannot. `unfit` has the layers, by path, that the host cannot change, with the reason. With
/// `kinds`, a number by path, the calls come in groups that can be merged; otherwise each is a
/// group.
#[pyfunction]
#[pyo3(signature = (graph, unfit, kinds = None, *, budget = None))]
pub(crate) fn find_linears(
    graph: &Bound<'_, PyGraph>,
    unfit: HashMap<String, String>,
    kinds: Option<HashMap<String, usize>>,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<(Vec<Calls>, Vec<RawSite>)> {
    let facts = Facts::of_graph(graph)?;
    let borrowed = graph.try_borrow()?;
    let ir = borrowed.ir();
    let mut calls = linears::find(ir, &facts, &unfit.into_iter().collect());
    let groups: Vec<Vec<usize>> = match kinds {
        Some(kinds) => {
            let kind = |layer: &str| kinds.get(layer).copied().unwrap_or(0);
            let mut groups = linears::group(ir, &facts, &mut calls, &kind).map_err(pass_error)?;
            within(budget, |budget| {
                linears::limit_groups(&mut groups, &mut calls, budget);
                Ok(())
            })?;
            groups.into_iter().map(|group| group.members).collect()
        }
        None => {
            within(budget, |budget| {
                linears::limit(&mut calls, budget);
                Ok(())
            })?;
            let free = (0..calls.len()).filter(|&at| calls[at].site.is_applied());
            free.map(|at| vec![at]).collect()
        }
    };
    let call = |&at: &usize| {
        let node = PyNode::handle(graph, borrowed.host(), calls[at].site.node)?;
        Ok((node, calls[at].layer.clone()))
    };
    let groups = groups.iter().map(|group| group.iter().map(call).collect());
    Ok((
        groups.collect::<PyResult<_>>()?,
        calls.into_iter().map(|call| raw_site(call.site)).collect(),
    ))
}

/// The input of a call with one argument.
fn input_of(graph: &PyGraph, node: NodeId) -> PyResult<NodeId> {
    let view = graph.ir().node(node);
    let input = match view.args() {
        [input] if graph.ir().contains(node) => input.as_node(),
        _ => None,
    };
    input.ok_or_else(|| PyValueError::new_err(format!("{} is no call with one value", view.name())))
}

/// Replaces calls of linear layers with the same input by one call of `merged`, the path of a
/// module: `members` are the calls, each with the number of features of its result, and whether its
/// result is copied out of the merged one. Returns the new node.
#[pyfunction]
pub(crate) fn merge_linears(
    graph: &Bound<'_, PyGraph>,
    members: Vec<(Bound<'_, PyNode>, i64, bool)>,
    merged: &str,
    getitem: &Bound<'_, PyAny>,
) -> PyResult<Py<PyNode>> {
    let member = |(node, width, copied): &(Bound<'_, PyNode>, i64, bool)| {
        let call = PyGraph::own(graph, node)?;
        let (width, copied) = (*width, *copied);
        Ok(linears::Member {
            call,
            width,
            copied,
        })
    };
    let members = members.iter().map(member).collect::<PyResult<Vec<_>>>()?;
    let getitem = PyGraph::function(graph, getitem)?;
    let input = match members.first() {
        Some(first) => input_of(&*graph.try_borrow()?, first.call)?,
        None => return Err(PyValueError::new_err("nothing to merge")),
    };
    let node = PyGraph::edit(graph, |ir| {
        linears::merge(ir, input, &members, merged, getitem).map_err(pass_error)
    })?;
    if let Some(first) = members.first() {
        PyGraph::inherit_meta_but_value(graph, node, first.call)?;
    }
    for member in members.iter().filter(|member| member.copied) {
        let columns = input_of(&*graph.try_borrow()?, member.call)?;
        PyGraph::inherit_metas(graph, &[(columns, member.call)])?;
    }
    PyNode::of(graph, node)
}

/// Appends a column of ones to the input of `call`, a call of a linear layer; `pad` is
/// `torch.nn.functional.pad`. Returns the new node.
#[pyfunction]
pub(crate) fn pad_input_of_linear(
    graph: &Bound<'_, PyGraph>,
    call: &Bound<'_, PyNode>,
    pad: &Bound<'_, PyAny>,
) -> PyResult<Py<PyNode>> {
    let node = PyGraph::own(graph, call)?;
    let pad = PyGraph::function(graph, pad)?;
    let input = input_of(&*graph.try_borrow()?, node)?;
    let new = PyGraph::edit(graph, |ir| {
        linears::pad_input(ir, node, input, pad).map_err(pass_error)
    })?;
    PyGraph::inherit_meta_but_value(graph, new, node)?;
    PyNode::of(graph, new)
}
