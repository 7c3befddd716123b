//! Splitting of graphs, and sorting of nodes.

use corsac_ir::split::{
    Alternation, AttributePlace, Grown, InputNames, Inputs, Kind, Options, Order, ParentStyle,
    Part, Parts, Region, Returns, Sequence, SplitError, Style, ValueNames, Waits, alternate,
    extract, split,
};
use corsac_ir::{Arg, EntityId, Graph, NodeId, Op, PartId, SecondaryMap, Target};
use corsac_passes::aten_parts::{self, Kept};
use corsac_passes::effect_order::{self, EffectOrder};
use pyo3::exceptions::{PyAssertionError, PyKeyError, PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::collector::PausedCollector;
use crate::effects::Facts;
use crate::error::{graph_error, pass_error};
use crate::graph::PyGraph;
use crate::graph::node::PyNode;

type Nodes = Vec<Py<PyNode>>;

/// The exception for a graph that cannot be split: of the class that torch.fx raises there.
fn split_error(error: SplitError) -> PyErr {
    let message = error.to_string();
    match error {
        SplitError::Graph(error) => graph_error(error),
        SplitError::Missing { .. } => PyKeyError::new_err(message),
        SplitError::Order { .. } | SplitError::Wait { .. } => PyAssertionError::new_err(message),
        SplitError::Names { .. } | SplitError::Arguments { .. } => PyValueError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}

/// A new `corsac.fx.Graph` with the nodes of `part`, their Python objects, and copies of their
/// metadata.
fn adopt<'py>(
    from: &Bound<'py, PyGraph>,
    class: &Bound<'py, PyAny>,
    part: Part,
) -> PyResult<Bound<'py, PyGraph>> {
    let py = from.py();
    let graph = class.call0()?.cast_into::<PyGraph>()?;
    let mut metas = Vec::new();
    {
        let source = from.try_borrow()?;
        let mut to = graph.try_borrow_mut()?;
        let (ir, host) = to.parts_mut();
        *ir = part.graph;
        for (old, new) in part.externals {
            host.attach_external(new, &source.host().external_object(py, old));
        }
        for (old, new) in part.functions {
            if let Some(callable) = source.host().function_object(old) {
                host.attach_function(new, callable.bind(py));
            }
        }
        for (old, new) in part.copies {
            if let Some(meta) = source.host().meta(old) {
                metas.push((new, meta.clone_ref(py)));
            }
        }
    }
    for (new, meta) in metas {
        PyGraph::set_meta_copy(&graph, new, meta.bind(py))?;
    }
    Ok(graph)
}

/// Attaches Python's `operator.getitem` to the function of the calling graph that has no object
/// yet.
fn attach_getitem(graph: &Bound<'_, PyGraph>) -> PyResult<()> {
    let py = graph.py();
    let getitem = py
        .import(intern!(py, "operator"))?
        .getattr(intern!(py, "getitem"))?;
    let mut borrowed = graph.try_borrow_mut()?;
    let (ir, host) = borrowed.parts_mut();
    let unattached = ir.functions().find(|(_, f)| f.external.is_none());
    if let Some(id) = unattached.map(|(id, _)| id) {
        let external = host.external(ir, &getitem);
        ir.set_function_external(id, external);
        host.attach_function(id, &getitem);
    }
    Ok(())
}

fn graph_class<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "corsac.fx.graph"))?
        .getattr(intern!(py, "Graph"))
}

fn own_all(graph: &Bound<'_, PyGraph>, nodes: &[Bound<'_, PyNode>]) -> PyResult<Vec<NodeId>> {
    nodes.iter().map(|node| PyGraph::own(graph, node)).collect()
}

fn effects_of(graph: &Bound<'_, PyGraph>) -> PyResult<EffectOrder> {
    let facts = Facts::of_graph(graph)?;
    let borrowed = graph.try_borrow()?;
    effect_order::find(borrowed.ir(), &facts).map_err(pass_error)
}

/// The nodes that have to run after others that they do not use, since one of the two writes.
fn waits_of(graph: &Bound<'_, PyGraph>) -> PyResult<Waits> {
    Ok(effects_of(graph)?.waits)
}

/// Pairs of nodes of `graph` of which the first has to run before the second, though the second
/// does not use it: one of the two writes to what the other uses.
#[pyfunction]
pub(crate) fn effect_pairs(graph: &Bound<'_, PyGraph>) -> PyResult<Vec<(Py<PyNode>, Py<PyNode>)>> {
    let waits = waits_of(graph)?;
    let mut pairs = Vec::new();
    for node in graph.try_borrow()?.ir().nodes() {
        pairs.extend(waits.of(node).iter().map(|&earlier| (earlier, node)));
    }
    let handle = |id| PyNode::of(graph, id);
    let pairs = pairs.into_iter();
    pairs
        .map(|(earlier, node)| Ok((handle(earlier)?, handle(node)?)))
        .collect()
}

/// The parts given by numbers of nodes, in graph order.
fn read_parts(graph: &PyGraph, numbers: &[Option<usize>], len: usize) -> PyResult<Parts> {
    let mut parts = Parts::new(len);
    if numbers.len() != graph.ir().len() {
        return Err(PyValueError::new_err(format!(
            "{} nodes need as many part numbers, got {}",
            graph.ir().len(),
            numbers.len()
        )));
    }
    for (node, number) in graph.ir().nodes().zip(numbers) {
        match number {
            Some(number) if *number < len => parts.assign(node, PartId::from_index(*number)),
            Some(number) => {
                return Err(PyValueError::new_err(format!(
                    "node {} is in part {number} of {len}",
                    graph.ir().node(node).name()
                )));
            }
            None => {}
        }
    }
    Ok(parts)
}

/// A graph made of a part, and its targets: name here, name in the original.
type MadePart = (Py<PyGraph>, Vec<(String, String)>);

/// Splits `graph` into parts.
///
/// `part_of` has the number of the part of each node, in graph order, or None; `names` the name of
/// each part in the calling graph. With `tagged` the graphs are as `split_by_tags` writes them,
/// otherwise as `split_module` does. `local` are attributes that parts read themselves,
/// `companions` maps nodes to those that have to be passed along with them, and each of `regions`
/// is a node that turns a mode on, one that turns it off or None, and the numbers of the parts in
/// between.
///
/// Returns the calling graph with its targets, the same for each part, and the order in which the
/// parts are called.
///
/// Raises RuntimeError if parts need each other in a cycle, KeyError if a value is used before it
/// is defined, AssertionError if `tagged` and a part uses values of a later one.
#[pyfunction]
#[pyo3(signature = (
    graph, part_of, names, *, tagged = false, local = Vec::new(), companions = None,
    regions = Vec::new(), original_order = false, original_names = false, input_names = true,
    tuple_return = false
))]
#[expect(
    clippy::too_many_arguments,
    reason = "keywords, one for each option that Python has"
)]
#[expect(clippy::type_complexity, reason = "a tuple of what Python takes apart")]
pub(crate) fn split_graph<'py>(
    graph: &Bound<'py, PyGraph>,
    part_of: Vec<Option<usize>>,
    names: Vec<String>,
    tagged: bool,
    local: Vec<Bound<'py, PyNode>>,
    companions: Option<&Bound<'py, PyDict>>,
    regions: Vec<(Bound<'py, PyNode>, Option<Bound<'py, PyNode>>, Vec<usize>)>,
    original_order: bool,
    original_names: bool,
    input_names: bool,
    tuple_return: bool,
) -> PyResult<(MadePart, Vec<MadePart>, Vec<usize>)> {
    let py = graph.py();
    let local: FxHashSet<NodeId> = own_all(graph, &local)?.into_iter().collect();
    let is_local = |node: NodeId| local.contains(&node);
    let mut options = if tagged {
        Options::tagged(&names)
    } else {
        Options {
            style: Style {
                inputs: Inputs::Front,
                input_names: if input_names {
                    InputNames::Original
                } else {
                    InputNames::Numbered
                },
                value_names: if original_names {
                    ValueNames::Original
                } else {
                    ValueNames::AfterTarget
                },
                flat_targets: true,
                returns: returns(tuple_return),
            },
            parent: ParentStyle {
                attributes: if original_order {
                    AttributePlace::BeforeUse
                } else {
                    AttributePlace::Front
                },
                inputs_by_name: original_names,
                defaults: true,
            },
            sequence: if original_order {
                Sequence::ById
            } else {
                Sequence::Sorted(Order::DepthFirst)
            },
            local: &is_local,
            ..Options::new(&names)
        }
    };
    options.style.returns = returns(tuple_return);
    for (node, others) in companions.into_iter().flatten() {
        let node = PyGraph::own(graph, node.cast::<PyNode>()?)?;
        let others: Vec<Bound<'_, PyNode>> = others.extract()?;
        options.companions.insert(node, own_all(graph, &others)?);
    }
    for (enter, exit, parts) in regions {
        if let Some(part) = parts.iter().find(|&&part| part >= names.len()) {
            return Err(PyValueError::new_err(format!("there is no part {part}")));
        }
        options.regions.push(Region {
            enter: PyGraph::own(graph, &enter)?,
            exit: exit.map(|exit| PyGraph::own(graph, &exit)).transpose()?,
            parts: parts.into_iter().map(PartId::from_index).collect(),
        });
    }
    options.waits = waits_of(graph)?;
    let split = {
        let borrowed = graph.try_borrow()?;
        let (ir, waits) = (borrowed.ir(), &options.waits);
        let parts = read_parts(&borrowed, &part_of, names.len())?;
        if tagged {
            parts
                .check_ascending_waiting(ir, waits)
                .map_err(split_error)?;
        } else if original_order {
            // torch.fx refuses cycles whatever the order.
            let order = parts.order_waiting(ir, Order::DepthFirst, waits);
            order.map_err(split_error)?;
            if !waits.is_empty() {
                parts
                    .check_ascending_waiting(ir, waits)
                    .map_err(split_error)?;
            }
        }
        split(borrowed.ir(), &parts, &options).map_err(split_error)?
    };
    let _paused = PausedCollector::new(py)?;
    let class = graph_class(py)?;
    let made = |mut part: Part| -> PyResult<MadePart> {
        let targets = std::mem::take(&mut part.targets);
        Ok((adopt(graph, &class, part)?.unbind(), targets))
    };
    let parts = split.parts.into_iter().map(made);
    let parts = parts.collect::<PyResult<Vec<_>>>()?;
    let (parent, targets) = made(split.parent)?;
    attach_getitem(parent.bind(py))?;
    let order = split.order.into_iter().map(PartId::index).collect();
    Ok(((parent, targets), parts, order))
}

/// Makes a graph of `nodes`, in this order: values from elsewhere that they use become its inputs,
/// and their values that are used elsewhere its outputs. Returns the graph, and the originals of
/// its inputs and outputs.
///
/// Inputs come in the order of their first use, but in graph order if all are inputs of the
/// program. Raises KeyError if one of the nodes uses a later one.
#[pyfunction]
#[pyo3(signature = (graph, nodes, *, tuple_return = false))]
pub(crate) fn extract_nodes<'py>(
    graph: &Bound<'py, PyGraph>,
    nodes: Vec<Bound<'py, PyNode>>,
    tuple_return: bool,
) -> PyResult<(Py<PyGraph>, Nodes, Nodes)> {
    let members = own_all(graph, &nodes)?;
    let part = {
        let borrowed = graph.try_borrow()?;
        let ir = borrowed.ir();
        let inside: FxHashSet<NodeId> = members.iter().copied().collect();
        let mut seen = FxHashSet::default();
        let mut inputs: Vec<NodeId> = members
            .iter()
            .flat_map(|&node| ir.inputs(node))
            .filter(|&input| !inside.contains(&input) && seen.insert(input))
            .collect();
        let is_input = |&node: &NodeId| ir.node(node).op() == Op::Placeholder;
        if inputs.iter().all(is_input) {
            inputs.sort_unstable_by_key(|&node| ir.node(node).order());
        }
        let is_output = |&node: &NodeId| ir.users(node).any(|user| !inside.contains(&user));
        let outputs = members.iter().copied().filter(is_output).collect();
        let style = Style {
            inputs: Inputs::Front,
            input_names: InputNames::Original,
            value_names: ValueNames::Original,
            flat_targets: false,
            returns: returns(tuple_return),
        };
        extract(ir, inputs, members, outputs, style).map_err(split_error)?
    };
    let (inputs, outputs) = (
        PyNode::all(graph, &part.inputs)?,
        PyNode::all(graph, &part.outputs)?,
    );
    let extracted = adopt(graph, &graph_class(graph.py())?, part)?;
    Ok((extracted.unbind(), inputs, outputs))
}

/// Makes a graph that computes `nodes`, in this order, from `inputs` and returns a list of
/// `outputs`.
///
/// Raises KeyError if a node uses, or the result has, a value that is neither an input nor computed
/// before.
#[pyfunction]
pub(crate) fn extract_subgraph<'py>(
    graph: &Bound<'py, PyGraph>,
    nodes: Vec<Bound<'py, PyNode>>,
    inputs: Vec<Bound<'py, PyNode>>,
    outputs: Vec<Bound<'py, PyNode>>,
) -> PyResult<Bound<'py, PyGraph>> {
    let (nodes, inputs) = (own_all(graph, &nodes)?, own_all(graph, &inputs)?);
    let outputs = own_all(graph, &outputs)?;
    let style = Style {
        inputs: Inputs::Front,
        input_names: InputNames::Original,
        value_names: ValueNames::Original,
        flat_targets: false,
        returns: Returns::List,
    };
    let part = {
        let borrowed = graph.try_borrow()?;
        extract(borrowed.ir(), inputs, nodes, outputs, style).map_err(split_error)?
    };
    adopt(graph, &graph_class(graph.py())?, part)
}

fn returns(tuple: bool) -> Returns {
    if tuple {
        Returns::Tuple
    } else {
        Returns::Plain
    }
}

/// Checks that each of `parts`, lists of nodes of `graph`, can run at once: no path leads out of
/// one and back into it. Returns None if so, otherwise a message that names a cycle. With `writes`,
/// uses of a value that is written to keep the order of the program; otherwise the caller sees to
/// that.
#[pyfunction]
#[pyo3(signature = (graph, parts, *, writes = true))]
pub(crate) fn find_part_cycle<'py>(
    graph: &Bound<'py, PyGraph>,
    parts: Vec<Vec<Bound<'py, PyNode>>>,
    writes: bool,
) -> PyResult<Option<String>> {
    let mut assigned = Parts::new(parts.len());
    for (nodes, part) in parts.iter().zip(assigned.ids()) {
        for node in own_all(graph, nodes)? {
            assigned.assign(node, part);
        }
    }
    let waits = if writes {
        waits_of(graph)?
    } else {
        Waits::default()
    };
    let borrowed = graph.try_borrow()?;
    Ok(match assigned.check_waiting(borrowed.ir(), &waits) {
        Ok(()) => None,
        Err(error) => Some(error.to_string()),
    })
}

/// Makes nodes of each of `parts`, lists of nodes of `graph`, adjacent, where some nodes have to
/// run after others that they do not use; changes nothing where none have to. Parts are called
/// without regard to writes, so that their positions have to be right.
///
/// Raises RuntimeError if the parts cannot run at once.
#[pyfunction]
pub(crate) fn gather_parts<'py>(
    graph: &Bound<'py, PyGraph>,
    parts: Vec<Vec<Bound<'py, PyNode>>>,
) -> PyResult<()> {
    let waits = waits_of(graph)?;
    if waits.is_empty() {
        return Ok(());
    }
    let mut number: FxHashMap<NodeId, usize> = FxHashMap::default();
    for (nodes, part) in parts.iter().zip(0..) {
        number.extend(own_all(graph, nodes)?.into_iter().map(|node| (node, part)));
    }
    let order = {
        let borrowed = graph.try_borrow()?;
        let ir = borrowed.ir();
        // A node in no part is a part of its own.
        let assigned = Parts::by_key(ir, |node| {
            Some(number.get(&node).map_or(Err(node), |&part| Ok(part)))
        });
        let order = assigned.order_waiting(ir, Order::SmallestFirst, &waits);
        let order = order.map_err(split_error)?;
        let members = assigned.members(ir);
        let mut sorted: Vec<NodeId> = Vec::with_capacity(ir.len());
        for part in order {
            sorted.extend(&members[part.index()]);
        }
        // Inputs come first and the result last, as they did.
        let rank = |&node: &NodeId| match ir.node(node).op() {
            Op::Placeholder => 0,
            Op::Output => 2,
            Op::GetAttr | Op::CallFunction | Op::CallMethod | Op::CallModule => 1,
        };
        sorted.sort_by_key(rank);
        sorted
    };
    let mut borrowed = graph.try_borrow_mut()?;
    borrowed.ir_mut().reorder(&order).map_err(graph_error)
}

/// A table of what is given for each node, in graph order.
///
/// Raises `ValueError` if the list is not as long as the graph.
fn by_node<T: Clone + Default>(ir: &Graph, marks: Vec<T>) -> PyResult<SecondaryMap<NodeId, T>> {
    if marks.len() != ir.len() {
        let text = format!("{} marks are given for {} nodes", marks.len(), ir.len());
        return Err(PyValueError::new_err(text));
    }
    let mut marked = SecondaryMap::new();
    for (node, mark) in ir.nodes().zip(marks) {
        marked.set(node, mark);
    }
    Ok(marked)
}

/// Combines supported nodes into parts as `torch.fx.passes.infra.partitioner` does: as large as
/// possible without cycles. Uses of a value that is written to keep the order of the program.
///
/// `supported` has for each node, in graph order, whether it is. With `horizontal`, nodes without
/// connection may be in one part. Returns for each part its number, counting supported nodes from
/// the end, its nodes in graph order, and those that joined it since it has the value that they
/// take an item from.
///
/// Raises `ValueError` if the list is not as long as the graph.
#[pyfunction]
#[pyo3(signature = (graph, supported, *, horizontal = true))]
pub(crate) fn propose_parts(
    graph: &Bound<'_, PyGraph>,
    supported: Vec<bool>,
    horizontal: bool,
) -> PyResult<Vec<(usize, Nodes, Nodes)>> {
    let effects = effects_of(graph)?;
    let (numbers, members) = {
        let borrowed = graph.try_borrow()?;
        let ir = borrowed.ir();
        let is_supported = by_node(ir, supported)?;
        let grow = |may_join: &dyn Fn(NodeId) -> bool| match horizontal {
            true => Parts::coloured(ir, |node| may_join(node).then_some(0)),
            false => Parts::along_uses(ir, may_join),
        };
        let mut grown = grow(&|node| is_supported[node]);
        let waits = &effects.waits;
        if !waits.is_empty() && grown.parts.check_waiting(ir, waits).is_err() {
            // Nothing is combined then across a write.
            grown = between_writes(ir, &effects.writers, |supported| {
                grow(&|node| is_supported[node] && supported(node))
            });
        }
        let counted = ir.nodes().rev().filter(|&node| is_supported[node]);
        let numbers: FxHashMap<NodeId, usize> = counted.zip(0..).collect();
        let seeds: Vec<usize> = grown.seeds.iter().map(|seed| numbers[seed]).collect();
        let mut parts = grown.parts;
        let moved = parts.take_items_along(ir);
        let mut late = vec![Vec::new(); parts.len()];
        for &node in &moved {
            if let Some(part) = parts.part_of(node) {
                late[part.index()].push(node);
            }
        }
        let mut members = parts.members(ir);
        for (nodes, late) in members.iter_mut().zip(&late) {
            nodes.retain(|node| !late.contains(node));
        }
        (seeds, members.into_iter().zip(late).collect::<Vec<_>>())
    };
    let mut proposed = Vec::with_capacity(members.len());
    for (number, (nodes, late)) in numbers.into_iter().zip(members) {
        proposed.push((
            number,
            PyNode::all(graph, &nodes)?,
            PyNode::all(graph, &late)?,
        ));
    }
    Ok(proposed)
}

/// Combines supported nodes into parts that are as large as possible without cycles, and lie
/// between one barrier and the next: nothing is moved across those. An item is in the part of its
/// container, its first argument, so that no container leaves a part. The caller sees to writes.
///
/// `supported`, `barriers` and `items` have for each node, in graph order, whether it is one.
/// Returns the nodes of each part, in graph order, by the first of them.
///
/// Raises `ValueError` if a list is not as long as the graph.
#[pyfunction]
pub(crate) fn grow_parts(
    graph: &Bound<'_, PyGraph>,
    supported: Vec<bool>,
    barriers: Vec<bool>,
    items: Vec<bool>,
) -> PyResult<Vec<Nodes>> {
    let members = {
        let borrowed = graph.try_borrow()?;
        let ir = borrowed.ir();
        let (supported, items) = (by_node(ir, supported)?, by_node(ir, items)?);
        let barriers = by_node(ir, barriers)?;
        grown_parts(
            ir,
            |own| supported[own],
            |own| barriers[own],
            |own| items[own],
        )
    };
    members
        .iter()
        .map(|nodes| PyNode::all(graph, nodes))
        .collect()
}

fn grown_parts(
    ir: &Graph,
    is_supported: impl Fn(NodeId) -> bool,
    is_barrier: impl Fn(NodeId) -> bool,
    is_item: impl Fn(NodeId) -> bool,
) -> Vec<Vec<NodeId>> {
    let (mut section, mut sections) = (0, SecondaryMap::<NodeId, u32>::new());
    for node in ir.nodes() {
        section += u32::from(is_barrier(node));
        sections.set(node, section);
    }
    let joins = |node| is_supported(node).then_some(0);
    let grown = Parts::coloured_in_sections(ir, |node| sections[node], joins);
    let mut parts = grown.parts;
    for node in ir.nodes().filter(|&node| is_item(node)) {
        let container = ir.node(node).args().first().and_then(Arg::as_node);
        if let Some(part) = container.and_then(|container| parts.part_of(container)) {
            parts.assign(node, part);
        }
    }
    let mut members = parts.members(ir);
    members.retain(|nodes| !nodes.is_empty());
    members.sort_by_key(|nodes| ir.node(nodes[0]).order());
    members
}

/// Whether `target`, `"torch.ops.aten.t.default"`, only returns a view of its first argument, one tensor.
#[pyfunction]
pub(crate) fn is_view(target: &str) -> bool {
    aten_parts::is_view(target)
}

/// The reason why no part of a graph of ATen operators can be native: it writes to what it made.
#[pyfunction]
pub(crate) fn why_not_split(graph: &Bound<'_, PyGraph>) -> PyResult<Option<String>> {
    let facts = Facts::of_graph(graph)?;
    Ok(aten_parts::why_not_split(graph.try_borrow()?.ir(), &facts))
}

/// The largest parts of a graph of ATen operators that compute something, between one call with an
/// effect and the next, and for each node, in graph order, the reason why PyTorch runs it, if it is
/// a call that PyTorch runs.
///
/// `refusals` has for each node, in graph order, the reason why it cannot be native, if it is known
/// already; `results` is the number of leading outputs that the caller gets: views among them share
/// memory with their bases.
///
/// Raises `ValueError` if `refusals` is not as long as the graph.
#[pyfunction]
pub(crate) fn training_parts(
    graph: &Bound<'_, PyGraph>,
    refusals: Vec<Option<String>>,
    results: Option<usize>,
) -> PyResult<(Vec<Nodes>, Vec<Option<String>>)> {
    let facts = Facts::of_graph(graph)?;
    let (parts, reasons) = {
        let borrowed = graph.try_borrow()?;
        let ir = borrowed.ir();
        let known = by_node(ir, refusals)?;
        let mut kept = Kept::of_graph(ir, &facts, &known, results);
        let (reasons, barriers) = (&kept.reasons, &kept.barriers);
        let joins = |own| ir.node(own).op() == Op::CallFunction && reasons[own].is_none();
        let is_item = |own| joins(own) && ir.node(own).calls("operator.getitem");
        let mut parts = grown_parts(ir, joins, |own| barriers[own], is_item);
        let is_view = |&own: &NodeId| aten_parts::is_view(ir.node(own).target_name());
        for node in parts
            .extract_if(.., |nodes| nodes.iter().all(is_view))
            .flatten()
        {
            kept.reasons
                .set(node, Some("nothing is computed around it".to_owned()));
        }
        let reasons: Vec<_> = ir.nodes().map(|node| kept.reasons[node].take()).collect();
        (parts, reasons)
    };
    let parts: PyResult<_> = parts
        .iter()
        .map(|nodes| PyNode::all(graph, nodes))
        .collect();
    Ok((parts?, reasons))
}

/// Joins the results of `grow` for the nodes between one writer and the next, and for each writer
/// alone.
fn between_writes(
    ir: &Graph,
    writers: &[NodeId],
    grow: impl Fn(&dyn Fn(NodeId) -> bool) -> Grown,
) -> Grown {
    let is_writer: FxHashSet<NodeId> = writers.iter().copied().collect();
    let mut stretches: Vec<FxHashSet<NodeId>> = vec![FxHashSet::default()];
    for node in ir.nodes() {
        let alone = is_writer.contains(&node);
        if alone && stretches.last().is_some_and(|last| !last.is_empty()) {
            stretches.push(FxHashSet::default());
        }
        if let Some(last) = stretches.last_mut() {
            last.insert(node);
        }
        if alone {
            stretches.push(FxHashSet::default());
        }
    }
    let mut all = Grown {
        parts: Parts::default(),
        seeds: Vec::new(),
    };
    // From the end of the program, as parts are counted.
    for stretch in stretches.iter().rev().filter(|stretch| !stretch.is_empty()) {
        let grown = grow(&|node| stretch.contains(&node));
        let ids: Vec<PartId> = grown.parts.ids().map(|_| all.parts.add()).collect();
        for (nodes, &part) in grown.parts.members(ir).iter().zip(&ids) {
            nodes.iter().for_each(|&node| all.parts.assign(node, part));
        }
        all.seeds.extend(grown.seeds);
    }
    all
}

/// Groups that alternate between host and device. `on_device` has for each of a number of things
/// where it runs, `before` pairs of which the first has to run before the second, `together` lists
/// of those that have to run at once. Returns for each group whether it runs on the device, and its
/// things.
#[pyfunction]
#[pyo3(signature = (on_device, before, together, *, host_first))]
pub(crate) fn alternate_groups(
    on_device: Vec<bool>,
    before: Vec<(u32, u32)>,
    together: Vec<Vec<u32>>,
    host_first: bool,
) -> PyResult<Vec<(bool, Vec<u32>)>> {
    let in_range = |&thing: &u32| (thing as usize) < on_device.len();
    let pairs_fit = before.iter().all(|(a, b)| in_range(a) && in_range(b));
    if !pairs_fit || !together.iter().flatten().all(in_range) {
        return Err(PyValueError::new_err("there is no such thing"));
    }
    let kind = |device| if device { Kind::Device } else { Kind::Host };
    let things = Alternation {
        kinds: on_device.into_iter().map(|d| Some(kind(d))).collect(),
        before,
        together,
    };
    let groups = alternate(&things, Some(kind(!host_first))).into_iter();
    Ok(groups
        .map(|(k, group)| (k == Kind::Device, group))
        .collect())
}

/// Sorts `nodes` so that each comes after those of them that it uses; of those that could come
/// next, the first one in `nodes` does.
///
/// Raises AssertionError if they use each other in a cycle.
#[pyfunction]
pub(crate) fn sort_nodes<'py>(
    graph: &Bound<'py, PyGraph>,
    nodes: Vec<Bound<'py, PyNode>>,
) -> PyResult<Nodes> {
    let ids = own_all(graph, &nodes)?;
    let sorted = graph.try_borrow()?.ir().sorted(&ids);
    PyNode::all(
        graph,
        &sorted.map_err(|e| PyAssertionError::new_err(e.to_string()))?,
    )
}

/// Sorts the nodes of `graph` into an order in which they can run, breadth first; calls of one of
/// `first` come as soon as they can.
///
/// Raises RuntimeError if nodes use each other in a cycle.
#[pyfunction]
pub(crate) fn sort_breadth_first<'py>(
    graph: &Bound<'py, PyGraph>,
    first: &Bound<'py, PyList>,
) -> PyResult<()> {
    let mut borrowed = graph.try_borrow_mut()?;
    let known = first
        .iter()
        .filter_map(|f| borrowed.host().known_function(f.as_unbound()));
    let first: FxHashSet<Target> = known.map(Target::Function).collect();
    let ir = borrowed.ir();
    let order = ir.queue_order(|node| first.contains(&ir.node(node).target()));
    let order = order.map_err(graph_error)?;
    borrowed.ir_mut().reorder(&order).map_err(graph_error)
}
