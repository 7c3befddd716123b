//! The passes, on graphs of Python.

use corsac_ir::{FunctionId, Graph, NodeId, Op};
use corsac_ops::shape::{Dim, TypeHost as _, Value};
use corsac_ops::{AliasClasses, Catalogue, Effects};
use corsac_passes::dead_code::DeadCode;
use corsac_passes::{
    Added, Changes, Context, Needs, Plan, Setting, Site, TensorFact, TensorFacts, constants,
    registry,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet};
use rustc_hash::FxHashMap;

use crate::analysis::facts::TypeFacts;
use crate::analysis::value::TypeWriter;
use crate::budget::{PyBudget, within};
use crate::canonical::Texts;
use crate::effects::{Facts, effects, tensor_facts};
use crate::error::pass_error;
use crate::graph::PyGraph;
use crate::graph::node::PyNode;
use crate::resolve::resolve_known;
use crate::rewriting::call_create_hooks;
use crate::runtime::{TorchValue, TorchValues};

/// A site of a pass: name of the node, its target, another node or module that is concerned, and
/// the reason where nothing was done.
pub(crate) type RawSite = (String, String, Option<String>, Option<String>);

pub(crate) fn raw_site(site: Site) -> RawSite {
    let reason = site.refusal.map(|refusal| refusal.to_string());
    (site.name, site.target, site.other, reason)
}

pub(crate) fn raw_sites(sites: Vec<Site>) -> Vec<RawSite> {
    sites.into_iter().map(raw_site).collect()
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
            let handle = PyNode::of(graph, node)?;
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
            let handle = PyNode::of(graph, node)?;
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

/// Copies metadata, calls hooks and releases the handles of nodes that are gone.
pub(crate) fn finish(graph: &Bound<'_, PyGraph>, added: &[Added], gone: &[NodeId]) -> PyResult<()> {
    let py = graph.py();
    for added in added {
        if added.has_its_value {
            PyGraph::inherit_metas(graph, &[(added.node, added.root)])?;
        } else {
            PyGraph::inherit_meta_but_value(graph, added.node, added.root)?;
        }
    }
    let has_hooks = {
        let borrowed = graph.try_borrow()?;
        borrowed
            .hooks(py, intern!(py, "_create_node_hooks"))?
            .is_some()
    };
    if has_hooks {
        let live: Vec<NodeId> = {
            let borrowed = graph.try_borrow()?;
            let added = added.iter().map(|added| added.node);
            added.filter(|&id| borrowed.ir().contains(id)).collect()
        };
        call_create_hooks(graph, &PyNode::all(graph, &live)?)?;
    }
    erased(graph, gone)
}

/// The names of the passes that `run_pass` runs.
#[pyfunction]
pub(crate) fn pass_names() -> Vec<&'static str> {
    registry().iter().map(|pass| pass.name()).collect()
}

/// Runs the pass called `name`, with its options: booleans, functions, nodes, a set of strings, or
/// an element type. Returns the places that it has considered.
///
/// A pass that needs modules or weights calls `make(requests)` before it changes the graph. A
/// request is a dictionary with the node and facts about it; `make` returns for each, in order, the
/// qualified names of what it has made, or the reason why it is impossible.
#[pyfunction]
#[pyo3(signature = (name, graph, *, make = None, budget = None, **options))]
pub(crate) fn run_pass(
    name: &str,
    graph: &Bound<'_, PyGraph>,
    make: Option<&Bound<'_, PyAny>>,
    budget: Option<&Bound<'_, PyBudget>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Vec<RawSite>> {
    let mut passes = registry().into_iter();
    let mut pass = passes
        .find(|pass| pass.name() == name)
        .ok_or_else(|| PyValueError::new_err(format!("there is no pass {name}")))?;
    for (option, value) in options.into_iter().flat_map(|options| options.iter()) {
        let option: String = option.extract()?;
        let setting = setting(graph, &value)?;
        if !setting.is_some_and(|setting| pass.set(&option, setting)) {
            let message = format!("{name} has no option {option} that can be {value}");
            return Err(PyTypeError::new_err(message));
        }
    }
    if let Some(message) = graph.try_borrow()?.unsettled() {
        return Err(PyValueError::new_err(message));
    }
    let Needs {
        host,
        attributes,
        tensors: reads_tensors,
        texts: reads_texts,
    } = pass.needs();
    let facts = match host {
        true => Facts::of_graph(graph)?,
        false => Facts::default(),
    };
    let types = match attributes {
        true => TypeFacts::of_graph(graph)?,
        false => TypeFacts::default(),
    };
    let mut tensors = TensorFacts::new();
    if reads_tensors {
        tensors = tensor_facts(graph)?;
        if attributes {
            add_attributes(graph, &types, &mut tensors)?;
        }
    }
    let texts = match reads_texts {
        true => Texts::of_graph(graph)?,
        false => Texts::default(),
    };
    let mut plan = within(budget, |budget| {
        let borrowed = graph.try_borrow()?;
        let mut context = Context {
            host: &facts,
            types: &types,
            tensors: &tensors,
            texts: &texts,
            budget,
        };
        pass.plan(borrowed.ir(), &mut context).map_err(pass_error)
    })?;
    if !plan.requests.is_empty() {
        let needed = || PyTypeError::new_err(format!("{name} needs make="));
        request(graph, &mut plan, make.ok_or_else(needed)?)?;
    }
    Ok(raw_sites(apply(graph, plan)?))
}

/// Lets Python make what a plan needs.
fn request(graph: &Bound<'_, PyGraph>, plan: &mut Plan, make: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = graph.py();
    let writer = TypeWriter::new(py)?;
    let described = plan.requests.iter().map(|request| {
        let described = PyDict::new(py);
        let node = plan.sites[request.site].node;
        let node = PyNode::of(graph, node)?;
        described.set_item("node", node)?;
        for (name, value) in &request.facts {
            described.set_item(name, writer.value(value)?)?;
        }
        Ok(described)
    });
    let described = described.collect::<PyResult<Vec<_>>>()?;
    let made = make.call1((PyList::new(py, described)?,))?;
    for (request, made) in plan.requests.iter_mut().zip(made.try_iter()?) {
        let made = made?;
        match made.extract::<String>() {
            Ok(reason) => plan.sites[request.site].refusal = Some(reason.into()),
            Err(_) => request.names = made.extract()?,
        }
    }
    Ok(())
}

/// The value of an option; None if it is of no kind that options are of.
fn setting(graph: &Bound<'_, PyGraph>, value: &Bound<'_, PyAny>) -> PyResult<Option<Setting>> {
    if let Ok(flag) = value.extract() {
        return Ok(Some(Setting::Flag(flag)));
    }
    if let Ok(nodes) = value.cast::<PyList>() {
        let nodes = nodes.iter().map(|node| PyGraph::own(graph, node.cast()?));
        return Ok(Some(Setting::Nodes(nodes.collect::<PyResult<_>>()?)));
    }
    if let Ok(names) = value.cast::<PySet>() {
        let names = names.iter().map(|name| name.extract());
        return Ok(Some(Setting::Names(names.collect::<PyResult<_>>()?)));
    }
    if let Some(TorchValue::DType(dtype)) = TorchValues::get(value.py())?.of(value) {
        return Ok(Some(Setting::DType(dtype)));
    }
    if !value.is_callable() {
        return Ok(None);
    }
    Ok(Some(Setting::Function(PyGraph::function(graph, value)?)))
}

/// Adds the shapes of attributes that are not known yet.
fn add_attributes(
    graph: &Bound<'_, PyGraph>,
    types: &TypeFacts,
    tensors: &mut TensorFacts,
) -> PyResult<()> {
    let borrowed = graph.try_borrow()?;
    for node in borrowed.ir().find_nodes(Op::GetAttr, None) {
        let path = borrowed.ir().node(node).target_name();
        let Some(Value::Tensor(tensor)) = types.attribute(path) else {
            continue;
        };
        let shape = tensor.shape.iter().map(Dim::known).collect();
        if tensors.get(node).is_none() {
            let fact = TensorFact {
                shape,
                ..TensorFact::default()
            };
            tensors.set(node, fact);
        }
    }
    Ok(())
}

/// Makes the changes of a plan, and completes Python's records. Hooks are called as for changes that
/// are made from Python.
fn apply(graph: &Bound<'_, PyGraph>, plan: Plan) -> PyResult<Vec<Site>> {
    if !plan.changes() {
        return Ok(plan.sites);
    }
    match plan.changes {
        Changes::Erase(nodes) => {
            erase(graph, &nodes)?;
            return Ok(plan.sites);
        }
        Changes::Replace(pairs) if has_hooks(graph)? => {
            let py = graph.py();
            for (node, by) in pairs {
                let (node, by) = (PyNode::of(graph, node)?, PyNode::of(graph, by)?);
                let replace = intern!(py, "replace_all_uses_with");
                node.bind(py).call_method1(replace, (by,))?;
                PyGraph::erase_node(graph, node.bind(py))?;
            }
            return Ok(plan.sites);
        }
        Changes::Replace(_) | Changes::Other(_) => {}
    }
    let functions = functions_named(graph, &plan.functions)?;
    let function = |ir: &mut Graph, name: &str| {
        let known = functions.get(name).copied();
        known.unwrap_or_else(|| ir.function(name))
    };
    let report = PyGraph::edit(graph, |ir| plan.apply(ir, &function).map_err(pass_error))?;
    finish(graph, &report.edits.added, &report.edits.erased)?;
    for &node in &report.edits.stale {
        PyGraph::forget_value(graph, node)?;
    }
    Ok(report.sites)
}

fn has_hooks(graph: &Bound<'_, PyGraph>) -> PyResult<bool> {
    let (py, borrowed) = (graph.py(), graph.try_borrow()?);
    Ok(borrowed.hooks(py, intern!(py, "_replace_hooks"))?.is_some()
        || borrowed
            .hooks(py, intern!(py, "_erase_node_hooks"))?
            .is_some())
}

/// The functions with these qualified names, added where they are new.
fn functions_named(
    graph: &Bound<'_, PyGraph>,
    names: &[String],
) -> PyResult<FxHashMap<String, FunctionId>> {
    let mut functions = FxHashMap::default();
    for name in names {
        if !functions.contains_key(name) {
            let callable = resolve_known(graph.py(), name)?;
            functions.insert(name.clone(), PyGraph::function(graph, &callable)?);
        }
    }
    Ok(functions)
}

/// Nodes whose values are the same in every call, those of them that have to be kept, and sites.
type Constants = (Vec<Py<PyNode>>, Vec<Py<PyNode>>, Vec<RawSite>);

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
        found.limit(borrowed.ir(), budget);
        Ok(found)
    })?;
    Ok((
        PyNode::all(graph, &found.nodes)?,
        PyNode::all(graph, &found.results)?,
        raw_sites(found.kept),
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
    handed_out(graph, &effects)
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
            let handed = handed_out(graph, &effects)?;
            Ok((handed, effects.barrier, effects.by_layout, class))
        })
        .collect()
}

fn handed_out(graph: &Bound<'_, PyGraph>, effects: &Effects) -> PyResult<NodeEffects> {
    Ok((
        PyNode::all(graph, &effects.mutates)?,
        PyNode::all(graph, &effects.aliases)?,
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
    let unused = DeadCode::default().find(borrowed.ir(), &facts);
    let unused = unused.map_err(pass_error)?;
    let mut catalogue = Catalogue::new(&facts);
    Ok(!unused.kept.is_empty()
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
                let impure_random = impure_random.call0()?.is_truthy()?;
                let facts = Facts::of_graph(slf)?;
                let unused = {
                    let borrowed = slf.try_borrow()?;
                    DeadCode { impure_random }.find(borrowed.ir(), &facts)
                };
                let removed = unused.map_err(pass_error)?.removed;
                erase(slf, &removed)?;
                !removed.is_empty()
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
