//! The passes, on graphs of Python.

use corsac_ir::{Graph, NodeId};
use corsac_ops::Catalogue;
use corsac_passes::weights::WeightsError;
use corsac_passes::{common_subexpressions as cse, conv_bn, dead_code, dropout};
use pyo3::intern;
use pyo3::prelude::*;

use crate::effects::{Facts, effects};
use crate::error::pass_error;
use crate::graph::PyGraph;
use crate::node::PyNode;

/// A place where a pass did something, or did not: name of the node, what it calls, another node
/// or module that is concerned, and the reason where nothing was done.
pub(crate) type Site = (String, String, Option<String>, Option<String>);

pub(crate) fn site(
    graph: &Graph,
    node: NodeId,
    other: Option<String>,
    reason: Option<String>,
) -> Site {
    let node = graph.node(node);
    let (name, target) = (node.name().to_owned(), node.target_name().to_owned());
    (name, target, other, reason)
}

/// Removes nodes in this order, calling the owning module's hooks where it has any.
fn erase(graph: &Bound<'_, PyGraph>, nodes: &[NodeId]) -> PyResult<()> {
    let py = graph.py();
    if nodes.is_empty() {
        return Ok(());
    }
    let hooks = graph
        .try_borrow()?
        .hooks(py, intern!(py, "_erase_node_hooks"))?;
    if hooks.is_some() {
        for &node in nodes {
            let handle = PyNode::handle(graph, graph.try_borrow()?.host(), node)?;
            PyGraph::erase_node(graph, handle.bind(py))?;
        }
        return Ok(());
    }
    let forgotten: Vec<_> = {
        let mut borrowed = graph.try_borrow_mut()?;
        for &node in nodes {
            let erased = borrowed.ir_mut().erase(node);
            erased.map_err(|error| pass_error(error.into()))?;
        }
        nodes.iter().map(|&n| borrowed.forget_erased(n)).collect()
    };
    drop(forgotten);
    Ok(())
}

/// After nodes were removed in Rust: lets Python know.
pub(crate) fn erased(graph: &Bound<'_, PyGraph>, nodes: &[NodeId]) -> PyResult<()> {
    let py = graph.py();
    let hooks = graph
        .try_borrow()?
        .hooks(py, intern!(py, "_erase_node_hooks"))?;
    for hook in hooks.into_iter().flatten() {
        for &node in nodes {
            let handle = PyNode::handle(graph, graph.try_borrow()?.host(), node)?;
            hook.call1((handle,))?;
        }
    }
    let forgotten: Vec<_> = {
        let mut borrowed = graph.try_borrow_mut()?;
        nodes.iter().map(|&n| borrowed.forget_erased(n)).collect()
    };
    drop(forgotten);
    Ok(())
}

fn dead_code_of(graph: &Bound<'_, PyGraph>, impure_random: bool) -> PyResult<dead_code::Report> {
    let facts = Facts::of_graph(graph)?;
    let options = dead_code::Options { impure_random };
    let report = {
        let borrowed = graph.try_borrow()?;
        dead_code::find(borrowed.ir(), &facts, options).map_err(pass_error)?
    };
    erase(graph, &report.removed)?;
    Ok(report)
}

/// Removes what nobody can observe from `graph`. Answers the nodes that were removed and those
/// that nobody uses and that stay, with the reason.
#[pyfunction]
#[pyo3(signature = (graph, *, impure_random = true))]
pub(crate) fn eliminate_dead_code(
    graph: &Bound<'_, PyGraph>,
    impure_random: bool,
) -> PyResult<Vec<Site>> {
    let report = dead_code_of(graph, impure_random)?;
    let borrowed = graph.try_borrow()?;
    let removed = report.removed.iter().rev();
    let removed = removed.map(|&node| site(borrowed.ir(), node, None, None));
    let kept = report.kept.iter().map(|&(node, reason)| {
        let reason = Some(reason.as_str().to_owned());
        site(borrowed.ir(), node, None, reason)
    });
    Ok(removed.chain(kept).collect())
}

/// Computes once what `graph` computes twice. Answers the nodes that were removed, each with the
/// one that took its place, and those that stay, with the reason.
#[pyfunction]
pub(crate) fn common_subexpressions(graph: &Bound<'_, PyGraph>) -> PyResult<Vec<Site>> {
    let py = graph.py();
    let facts = Facts::of_graph(graph)?;
    let report = {
        let borrowed = graph.try_borrow()?;
        cse::find(borrowed.ir(), &facts).map_err(pass_error)?
    };
    let hooked = {
        let borrowed = graph.try_borrow()?;
        borrowed.hooks(py, intern!(py, "_replace_hooks"))?.is_some()
            || borrowed
                .hooks(py, intern!(py, "_erase_node_hooks"))?
                .is_some()
    };
    let gone: Vec<NodeId> = report.merged.iter().map(|&(gone, _)| gone).collect();
    if hooked {
        for &(node, kept) in &report.merged {
            let handle = |id| PyNode::handle(graph, graph.try_borrow()?.host(), id);
            let (node, kept) = (handle(node)?, handle(kept)?);
            let replace = intern!(py, "replace_all_uses_with");
            node.bind(py).call_method1(replace, (kept,))?;
            PyGraph::erase_node(graph, node.bind(py))?;
        }
    } else if report.changed() {
        let mut borrowed = graph.try_borrow_mut()?;
        report.apply(borrowed.ir_mut()).map_err(pass_error)?;
        drop(borrowed);
        erased(graph, &gone)?;
    }
    let borrowed = graph.try_borrow()?;
    let name = |id| Some(borrowed.ir().node(id).name().to_owned());
    let merged = report.merged.iter();
    let merged = merged.map(|&(node, kept)| site(borrowed.ir(), node, name(kept), None));
    let kept = report.kept.iter().map(|kept| {
        let reason = Some(kept.reason.as_str().to_owned());
        site(borrowed.ir(), kept.node, name(kept.like), reason)
    });
    Ok(merged.chain(kept).collect())
}

/// Folds batch norms into the layers before them. `fold(pairs)` gets names of layers and norms; it
/// changes the weights of the layers, in order, and answers for each None, or why it cannot.
/// Answers every batch norm, with the layer.
#[pyfunction]
#[pyo3(signature = (graph, fold, *, linear = false))]
pub(crate) fn fold_batch_norms(
    graph: &Bound<'_, PyGraph>,
    fold: &Bound<'_, PyAny>,
    linear: bool,
) -> PyResult<Vec<Site>> {
    let facts = Facts::of_graph(graph)?;
    let mut report = {
        let borrowed = graph.try_borrow()?;
        conv_bn::plan(borrowed.ir(), &facts, conv_bn::Options { linear })
    };
    let planned = report.sites.iter().enumerate();
    let planned: Vec<(usize, String, String)> = planned
        .filter(|(_, site)| site.refusal.is_none())
        .filter_map(|(index, site)| Some((index, site.layer.clone()?, site.norm.clone())))
        .collect();
    if !planned.is_empty() {
        let pairs: Vec<_> = planned
            .iter()
            .map(|(_, layer, norm)| (layer, norm))
            .collect();
        let refusals: Vec<Option<String>> = fold.call1((pairs,))?.extract()?;
        for ((index, ..), refusal) in planned.iter().zip(refusals) {
            if let Some(reason) = refusal {
                report.refuse(*index, WeightsError::Host { reason });
            }
        }
    }
    let gone: Vec<NodeId> = {
        let folded = report.sites.iter().filter(|s| s.refusal.is_none());
        folded.map(|s| s.node).collect()
    };
    if report.changed() {
        let mut borrowed = graph.try_borrow_mut()?;
        report.apply(borrowed.ir_mut()).map_err(pass_error)?;
    }
    erased(graph, &gone)?;
    let borrowed = graph.try_borrow()?;
    let sites = report.sites.into_iter();
    let sites = sites.map(|s| {
        let reason = s.refusal.map(|refusal| refusal.to_string());
        site(borrowed.ir(), s.node, s.layer, reason)
    });
    Ok(sites.collect())
}

/// Removes dropouts that are the identity, with `in_training` also modules in training mode.
/// Answers every dropout.
#[pyfunction]
#[pyo3(signature = (graph, *, in_training = false))]
pub(crate) fn remove_dropout(graph: &Bound<'_, PyGraph>, in_training: bool) -> PyResult<Vec<Site>> {
    let facts = Facts::of_graph(graph)?;
    let report = {
        let mut borrowed = graph.try_borrow_mut()?;
        let options = dropout::Options { in_training };
        dropout::remove(borrowed.ir_mut(), &facts, options).map_err(pass_error)?
    };
    let gone: Vec<NodeId> = {
        let removed = report.sites.iter().filter(|s| s.refusal.is_none());
        removed.map(|s| s.node).collect()
    };
    erased(graph, &gone)?;
    let borrowed = graph.try_borrow()?;
    let sites = report.sites.into_iter();
    let sites = sites.map(|s| {
        let reason = s.refusal.map(|refusal| refusal.to_string());
        site(borrowed.ir(), s.node, None, reason)
    });
    Ok(sites.collect())
}

/// What a node does besides computing its value: the nodes that it writes to, those that its value
/// may share storage with, whether it draws random numbers, has a side effect, reads and writes
/// state that is no argument, is unknown.
type NodeEffects = (
    Vec<Py<PyNode>>,
    Vec<Py<PyNode>>,
    bool,
    bool,
    bool,
    bool,
    bool,
);

/// What `node` does besides computing its value.
#[pyfunction]
pub(crate) fn node_effects(node: &Bound<'_, PyNode>) -> PyResult<NodeEffects> {
    let graph = node.get().graph(node.py());
    let facts = Facts::of_graph(graph)?;
    let borrowed = graph.try_borrow()?;
    let effects = Catalogue::new(&facts).effects(borrowed.ir(), node.get().id());
    let handles = |ids: &[NodeId]| -> PyResult<Vec<_>> {
        let handle = |&id| PyNode::handle(graph, borrowed.host(), id);
        ids.iter().map(handle).collect()
    };
    Ok((
        handles(&effects.mutates)?,
        handles(&effects.aliases)?,
        effects.random,
        effects.side_effect,
        effects.reads_state,
        effects.writes_state,
        effects.opaque,
    ))
}

/// Whether a call of the program that `graph` is does anything besides computing its result.
#[pyfunction]
pub(crate) fn has_effects(graph: &Bound<'_, PyGraph>) -> PyResult<bool> {
    let facts = Facts::of_graph(graph)?;
    let borrowed = graph.try_borrow()?;
    let report = dead_code::find(borrowed.ir(), &facts, dead_code::Options::default());
    let report = report.map_err(pass_error)?;
    let mut catalogue = Catalogue::new(&facts);
    Ok(!report.kept.is_empty()
        || borrowed.ir().nodes().any(|node| {
            let effects = catalogue.effects(borrowed.ir(), node);
            effects.opaque || effects.random || effects.writes_state || !effects.mutates.is_empty()
        }))
}

#[pymethods]
impl PyGraph {
    /// Removes nodes whose value nobody uses, unless they do something that can be observed:
    /// write to an input, an attribute or a value that is used later (or that shares storage with
    /// it), draw random numbers, have a registered side effect, or call something of which nothing
    /// is known. Answers whether the graph has changed; graph modules that it names as attributes
    /// are cleaned too.
    ///
    /// With `is_impure_node`, that function alone says which unused nodes stay, as in torch.fx.
    #[pyo3(signature = (is_impure_node = None))]
    fn eliminate_dead_code(
        slf: &Bound<'_, Self>,
        is_impure_node: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let py = slf.py();
        slf.call_method0(intern!(py, "lint"))?;
        let changed = match is_impure_node.filter(|f| !f.is_none()) {
            Some(is_impure_node) => erase_where_told(slf, is_impure_node)?,
            None => {
                let impure_random = effects(py)?.getattr(intern!(py, "impure_random"))?;
                dead_code_of(slf, impure_random.call0()?.is_truthy()?)?.changed()
            }
        };
        let children = effects(py)?.getattr(intern!(py, "clean_children"))?;
        Ok(children.call1((slf,))?.is_truthy()? || changed)
    }
}

/// From the last node to the first, removes those that nobody uses by then and that are not
/// impure, as Python says.
fn erase_where_told(graph: &Bound<'_, PyGraph>, is_impure: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = graph.py();
    let nodes: Vec<NodeId> = graph.try_borrow()?.ir().nodes().rev().collect();
    let mut changed = false;
    for node in nodes {
        let handle = {
            let borrowed = graph.try_borrow()?;
            if !borrowed.ir().contains(node) {
                continue;
            }
            PyNode::handle(graph, borrowed.host(), node)?
        };
        let stays = is_impure.call1((&handle,))?.is_truthy()?;
        let unused = {
            let borrowed = graph.try_borrow()?;
            borrowed.ir().contains(node) && borrowed.ir().node(node).num_users() == 0
        };
        if !stays && unused {
            PyGraph::erase_node(graph, handle.bind(py))?;
            changed = true;
        }
    }
    Ok(changed)
}
