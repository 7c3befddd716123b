//! The passes, on graphs of Python.

use corsac_ir::{Graph, NodeId};
use corsac_ops::{AliasClasses, Catalogue, Effects};
use corsac_passes::weights::{LayerTensors, Side, WeightsError};
use corsac_passes::{common_subexpressions as cse, constants, conv_bn, dead_code, dropout, no_ops};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rustc_hash::FxHashSet;

use crate::budget::{PyBudget, within};
use crate::effects::{Facts, effects, tensor_facts};
use crate::error::pass_error;
use crate::graph::PyGraph;
use crate::node::PyNode;
use crate::rules::finish;

/// A site of a pass: name of the node, its target, another node or module that is concerned, and
/// the reason where nothing was done.
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

/// Removes nodes in this order, calling the owning module's hooks if it has any.
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
        nodes
            .iter()
            .map(|&n| borrowed.forget_erased(py, n))
            .collect()
    };
    drop(forgotten);
    Ok(())
}

/// Updates Python's side after nodes were removed in Rust.
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
        nodes
            .iter()
            .map(|&n| borrowed.forget_erased(py, n))
            .collect()
    };
    drop(forgotten);
    Ok(())
}

fn dead_code_of(
    graph: &Bound<'_, PyGraph>,
    impure_random: bool,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<dead_code::Report> {
    let facts = Facts::of_graph(graph)?;
    let options = dead_code::Options { impure_random };
    let report = within(budget, |budget| {
        let borrowed = graph.try_borrow()?;
        let report = dead_code::find(borrowed.ir(), &facts, options);
        let mut report = report.map_err(pass_error)?;
        report.limit(budget);
        Ok(report)
    })?;
    erase(graph, &report.removed)?;
    Ok(report)
}

/// Removes nodes of `graph` that have no observable effect. Returns the nodes that were removed,
/// and the unused ones that stay, with the reason.
#[pyfunction]
#[pyo3(signature = (graph, *, impure_random = true, budget = None))]
pub(crate) fn eliminate_dead_code(
    graph: &Bound<'_, PyGraph>,
    impure_random: bool,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Vec<Site>> {
    let report = dead_code_of(graph, impure_random, budget)?;
    let borrowed = graph.try_borrow()?;
    let removed = report.removed.iter().rev();
    let removed = removed.map(|&node| site(borrowed.ir(), node, None, None));
    let kept = report.kept.iter().map(|&(node, reason)| {
        let reason = Some(reason.as_str().to_owned());
        site(borrowed.ir(), node, None, reason)
    });
    Ok(removed.chain(kept).collect())
}

/// Computes values once that `graph` computes twice; nodes in `keep` stay and replace no others.
/// Returns the nodes that were removed, each with its replacement, and those that stay, with the
/// reason.
#[pyfunction]
#[pyo3(signature = (graph, *, keep = Vec::new(), budget = None))]
pub(crate) fn common_subexpressions(
    graph: &Bound<'_, PyGraph>,
    keep: Vec<Bound<'_, PyNode>>,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Vec<Site>> {
    let py = graph.py();
    let facts = Facts::of_graph(graph)?;
    let keep = keep.iter().map(|node| PyGraph::own(graph, node));
    let keep = keep.collect::<PyResult<FxHashSet<NodeId>>>()?;
    let report = within(budget, |budget| {
        let borrowed = graph.try_borrow()?;
        let may_go = |node: NodeId| !keep.contains(&node);
        let mut report = cse::find_among(borrowed.ir(), &facts, may_go).map_err(pass_error)?;
        report.limit(budget);
        Ok(report)
    })?;
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
        PyGraph::edit(graph, |ir| report.apply(ir).map_err(pass_error))?;
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

/// Folds batch norms into the layers beside them. `fold(plans)` gets a dictionary for each; it
/// makes the new weights, in order, and returns for each the names of weight and bias, or the
/// reason why it is impossible. Returns every batch norm, with the layer.
#[pyfunction]
#[pyo3(signature = (graph, fold, *, linear = false, budget = None))]
pub(crate) fn fold_batch_norms(
    graph: &Bound<'_, PyGraph>,
    fold: &Bound<'_, PyAny>,
    linear: bool,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Vec<Site>> {
    let py = graph.py();
    let facts = Facts::of_graph(graph)?;
    let tensors = tensor_facts(graph)?;
    let mut report = within(budget, |budget| {
        let borrowed = graph.try_borrow()?;
        let options = conv_bn::Options { linear };
        conv_bn::plan(borrowed.ir(), &facts, &tensors, options, budget).map_err(pass_error)
    })?;
    let plans = report.planned();
    let plans = plans.map(|(index, site, plan)| Ok((index, describe_plan(py, site, plan)?)));
    let (indices, plans): (Vec<usize>, Vec<_>) =
        plans.collect::<PyResult<Vec<_>>>()?.into_iter().unzip();
    if !plans.is_empty() {
        let answers = fold.call1((PyList::new(py, plans)?,))?;
        for (index, answer) in indices.into_iter().zip(answers.try_iter()?) {
            let answer = answer?;
            match answer.extract::<String>() {
                Ok(reason) => report.refuse(index, WeightsError::Host { reason }),
                Err(_) => {
                    let (weight, bias): (String, String) = answer.extract()?;
                    report.settle(
                        index,
                        LayerTensors {
                            module: None,
                            weight,
                            bias: Some(bias),
                        },
                    );
                }
            }
        }
    }
    if report.changed() {
        let applied = PyGraph::edit(graph, |ir| report.apply(ir).map_err(pass_error))?;
        finish(graph, &applied.added, &applied.erased)?;
    }
    let borrowed = graph.try_borrow()?;
    let sites = report.sites.into_iter();
    let sites = sites.map(|s| {
        let reason = s.refusal.map(|refusal| refusal.to_string());
        site(borrowed.ir(), s.node, s.layer, reason)
    });
    Ok(sites.collect())
}

/// Describes a plan to Python, which makes the weights.
fn describe_plan<'py>(
    py: Python<'py>,
    site: &conv_bn::Site,
    plan: &conv_bn::Plan,
) -> PyResult<Bound<'py, PyDict>> {
    let described = PyDict::new(py);
    described.set_item("key", site.layer_node.map(corsac_ir::EntityId::index))?;
    described.set_item("layer", &site.layer)?;
    described.set_item("norm", &site.norm)?;
    described.set_item("layer_module", &plan.layer.module)?;
    described.set_item("weight", &plan.layer.weight)?;
    described.set_item("bias", &plan.layer.bias)?;
    described.set_item("norm_module", &plan.norm.module)?;
    described.set_item("mean", &plan.norm.mean)?;
    described.set_item("variance", &plan.norm.variance)?;
    described.set_item("gamma", &plan.norm.gamma)?;
    described.set_item("beta", &plan.norm.beta)?;
    described.set_item("eps", plan.eps)?;
    described.set_item("after", plan.side == Side::After)?;
    described.set_item("transposed", plan.transposed)?;
    described.set_item("groups", plan.groups)?;
    Ok(described)
}

/// Removes nodes that compute a value which exists already. Returns every such node, with its
/// replacement.
#[pyfunction]
#[pyo3(signature = (graph, *, budget = None))]
pub(crate) fn remove_no_ops(
    graph: &Bound<'_, PyGraph>,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Vec<Site>> {
    let facts = Facts::of_graph(graph)?;
    let tensors = tensor_facts(graph)?;
    let report = within(budget, |budget| {
        let borrowed = graph.try_borrow()?;
        no_ops::find(borrowed.ir(), &facts, &tensors, budget).map_err(pass_error)
    })?;
    if report.changed() {
        PyGraph::edit(graph, |ir| report.apply(ir).map_err(pass_error))?;
        let gone = report.sites.iter().filter(|s| s.refusal.is_none());
        let gone: Vec<NodeId> = gone.map(|s| s.node).collect();
        erased(graph, &gone)?;
    }
    let borrowed = graph.try_borrow()?;
    let sites = report.sites.iter().map(|s| {
        let input = borrowed.ir().node(s.input).name().to_owned();
        let reason = s.refusal.map(|refusal| refusal.to_string());
        site(borrowed.ir(), s.node, Some(input), reason)
    });
    Ok(sites.collect())
}

/// Removes dropouts that are the identity, with `in_training` also modules in training mode.
/// Returns every dropout.
#[pyfunction]
#[pyo3(signature = (graph, *, in_training = false, budget = None))]
pub(crate) fn remove_dropout(
    graph: &Bound<'_, PyGraph>,
    in_training: bool,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Vec<Site>> {
    let facts = Facts::of_graph(graph)?;
    let report = within(budget, |budget| {
        let options = dropout::Options { in_training };
        PyGraph::edit(graph, |ir| {
            dropout::remove(ir, &facts, options, budget).map_err(pass_error)
        })
    })?;
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

/// Nodes whose values are the same in every call, those of them that have to be kept, and sites.
type Constants = (Vec<Py<PyNode>>, Vec<Py<PyNode>>, Vec<Site>);

/// Finds the nodes that do not depend on the inputs of `graph`; calls in `skipped` count as if they
/// did. Returns the constant nodes, those calls among them that other nodes use, and as sites those
/// calls of constants that have to be made every time, with the reason. Changes nothing.
#[pyfunction]
#[pyo3(signature = (graph, skipped, *, budget = None))]
pub(crate) fn find_constants(
    graph: &Bound<'_, PyGraph>,
    skipped: Vec<Py<PyNode>>,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Constants> {
    let facts = Facts::of_graph(graph)?;
    let skipped: Vec<NodeId> = skipped.iter().map(|node| node.get().id()).collect();
    let found = within(budget, |budget| {
        let borrowed = graph.try_borrow()?;
        let found = constants::find(borrowed.ir(), &facts, &skipped);
        let mut found = found.map_err(pass_error)?;
        found.limit(budget);
        Ok(found)
    })?;
    let borrowed = graph.try_borrow()?;
    let handles = |ids: &[NodeId]| -> PyResult<Vec<_>> {
        let handle = |&id| PyNode::handle(graph, borrowed.host(), id);
        ids.iter().map(handle).collect()
    };
    let kept = found
        .kept
        .iter()
        .map(|&(node, reason)| site(borrowed.ir(), node, None, Some(reason.as_str().to_owned())));
    Ok((
        handles(&found.nodes)?,
        handles(&found.results)?,
        kept.collect(),
    ))
}

/// Effects of a node besides its value: the nodes that it writes to, those that its value may share
/// storage with, whether it uses random numbers, has a side effect, reads and writes state that is
/// no argument, is unknown.
type NodeEffects = (
    Vec<Py<PyNode>>,
    Vec<Py<PyNode>>,
    bool,
    bool,
    bool,
    bool,
    bool,
);

/// The same for a node in its graph: whether it is a barrier, whether the layout of tensors in
/// memory decides if it shares storage with them, and the number of its alias class.
type PlacedEffects = (NodeEffects, bool, bool, usize);

/// Effects of `node` besides its value.
#[pyfunction]
pub(crate) fn node_effects(node: &Bound<'_, PyNode>) -> PyResult<NodeEffects> {
    let graph = node.get().graph(node.py());
    let facts = Facts::of_graph(graph)?;
    let borrowed = graph.try_borrow()?;
    let effects = Catalogue::new(&facts).effects(borrowed.ir(), node.get().id());
    handed_out(graph, &borrowed, &effects)
}

/// Effects of each node of `graph` besides its value, in order: the same as `node_effects`, whether
/// nodes after it may compute something else than nodes before, whether the layout of arguments in
/// memory decides if it shares storage with them, and the number of its alias class, the values
/// that it may share storage with: 0 for inputs and attributes.
#[pyfunction]
pub(crate) fn graph_effects(graph: &Bound<'_, PyGraph>) -> PyResult<Vec<PlacedEffects>> {
    let facts = Facts::of_graph(graph)?;
    let mut catalogue = Catalogue::new(&facts);
    let borrowed = graph.try_borrow()?;
    let ir = borrowed.ir();
    let classes = AliasClasses::of_graph(ir, &mut catalogue);
    ir.nodes()
        .map(|node| {
            let effects = catalogue.effects(ir, node);
            let class = classes.class(node).index();
            let handed = handed_out(graph, &borrowed, &effects)?;
            Ok((handed, effects.barrier, effects.by_layout, class))
        })
        .collect()
}

fn handed_out(
    graph: &Bound<'_, PyGraph>,
    borrowed: &PyGraph,
    effects: &Effects,
) -> PyResult<NodeEffects> {
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

/// Whether a call of the program `graph` does anything besides computing its result.
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
    /// Removes nodes whose value is unused, unless they do something that can be observed: write
    /// to an input, an attribute or a value that is used later (or that shares storage with it),
    /// use random numbers, have a registered side effect, or call something unknown. Returns
    /// whether the graph has changed; graph modules that it names as attributes are cleaned too.
    ///
    /// With `is_impure_node`, that function alone decides which unused nodes stay, as in torch.fx.
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
                dead_code_of(slf, impure_random.call0()?.is_truthy()?, None)?.changed()
            }
        };
        let children = effects(py)?.getattr(intern!(py, "clean_children"))?;
        Ok(children.call1((slf,))?.is_truthy()? || changed)
    }
}

/// Removes nodes, from the last to the first, that are unused by then and for which `is_impure`
/// returns false.
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
