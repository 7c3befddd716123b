//! Subgraphs in oneDNN's layout, in graphs of Python.

use corsac_ir::{FunctionId, NodeId};
use corsac_passes::mkldnn::{self, Conversions, Subgraph, Supported, Writes};
use pyo3::prelude::*;
use pyo3::types::PyType;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::effects::Facts;
use crate::error::pass_error;
use crate::graph::PyGraph;
use crate::graph::node::PyNode;
use crate::passes::{RawSite, erased, raw_sites};

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(convert_mkldnn, m)?)?;
    m.add_function(wrap_pyfunction!(unconvert_mkldnn, m)?)?;
    m.add_function(wrap_pyfunction!(fuse_mkldnn, m)?)?;
    m.add_function(wrap_pyfunction!(mkldnn_table, m)?)?;
    Ok(())
}

/// The nodes of a subgraph, the conversions before it and those after it.
type ConvertedSubgraph = (Vec<Py<PyNode>>, Vec<Py<PyNode>>, Vec<Py<PyNode>>);

/// Names that are supported: classes of modules, functions, and functions that need a supported
/// operand.
#[pyfunction]
pub(crate) fn mkldnn_table() -> (Vec<&'static str>, Vec<&'static str>, Vec<&'static str>) {
    (
        mkldnn::MODULES.to_vec(),
        mkldnn::FUNCTIONS.to_vec(),
        mkldnn::FUNCTIONS_WITH_OPERAND.to_vec(),
    )
}

/// Finds the maximal subgraphs of `graph` that run on oneDNN's layout and puts calls of `enter`
/// and `leave` around them.
///
/// `supported` has classes of modules and functions, `with_operand` functions that belong to a
/// subgraph if one of their operands does; `unfit` has the modules, by path, that do not, with the
/// reason. Returns for each subgraph its nodes and its conversions, and the supported nodes that
/// are in none, with the reason.
#[pyfunction]
pub(crate) fn convert_mkldnn(
    graph: &Bound<'_, PyGraph>,
    supported: Vec<Bound<'_, PyAny>>,
    with_operand: Vec<Bound<'_, PyAny>>,
    unfit: std::collections::HashMap<String, String>,
    enter: &Bound<'_, PyAny>,
    leave: &Bound<'_, PyAny>,
) -> PyResult<(Vec<ConvertedSubgraph>, Vec<RawSite>)> {
    let supported = Supported {
        classes: class_names(&supported)?,
        functions: functions(graph, &supported)?,
        functions_with_operand: functions(graph, &with_operand)?,
        unfit: unfit.into_iter().collect::<FxHashMap<_, _>>(),
    };
    let (enter, leave) = (
        PyGraph::function(graph, enter)?,
        PyGraph::function(graph, leave)?,
    );
    let facts = Facts::of_graph(graph)?;
    let mut plan = {
        let borrowed = graph.try_borrow()?;
        mkldnn::plan(borrowed.ir(), &facts, &supported).map_err(pass_error)?
    };
    let mut converted = Vec::new();
    for subgraph in plan.subgraphs {
        let conversions = PyGraph::edit(graph, |ir| {
            mkldnn::convert(ir, &subgraph, &mut plan.writes, enter, leave).map_err(pass_error)
        })?;
        converted.push((subgraph, conversions));
    }
    for (subgraph, around) in &converted {
        inherit_metas(graph, subgraph, around)?;
    }
    let subgraphs = converted.iter().map(|(subgraph, around)| {
        Ok((
            PyNode::all(graph, &subgraph.nodes)?,
            PyNode::all(graph, &around.starts)?,
            PyNode::all(graph, &around.ends)?,
        ))
    });
    let subgraphs = subgraphs.collect::<PyResult<_>>()?;
    Ok((subgraphs, raw_sites(plan.refused)))
}

/// Gives conversions the metadata of the nodes that they are made for: of the first user of a value
/// that enters, and of the node whose value leaves.
fn inherit_metas(
    graph: &Bound<'_, PyGraph>,
    subgraph: &Subgraph,
    around: &Conversions,
) -> PyResult<()> {
    let pairs = {
        let borrowed = graph.try_borrow()?;
        let ir = borrowed.ir();
        let inside: FxHashSet<NodeId> = subgraph.nodes.iter().copied().collect();
        let user = |&start: &NodeId| {
            let mut users = ir.users(start).filter(|user| inside.contains(user));
            Some((start, users.next()?))
        };
        let made = |&end: &NodeId| Some((end, ir.inputs(end).next()?));
        let starts: Vec<_> = around.starts.iter().filter_map(user).collect();
        let ends: Vec<_> = around.ends.iter().filter_map(made).collect();
        (starts, ends)
    };
    for (start, user) in pairs.0 {
        PyGraph::inherit_meta_but_value(graph, start, user)?;
    }
    PyGraph::inherit_metas(graph, &pairs.1)
}

/// Removes conversions that `convert_mkldnn` put into `graph`.
#[pyfunction]
pub(crate) fn unconvert_mkldnn(
    graph: &Bound<'_, PyGraph>,
    starts: Vec<PyRef<'_, PyNode>>,
    ends: Vec<PyRef<'_, PyNode>>,
) -> PyResult<()> {
    let own = |nodes: &[PyRef<'_, PyNode>]| nodes.iter().map(|n| n.id()).collect();
    check_own(graph, starts.iter().chain(&ends))?;
    let conversions = Conversions {
        starts: own(&starts),
        ends: own(&ends),
    };
    let gone = PyGraph::edit(graph, |ir| {
        mkldnn::unconvert(ir, &conversions).map_err(pass_error)
    })?;
    erased(graph, &gone)
}

/// A fused call: the node, the path of the layer, the operator that combines the result with the
/// second argument, the activation, and the path of the module that it was.
type FusedCall = (
    Py<PyNode>,
    String,
    Option<&'static str>,
    Option<&'static str>,
    Option<String>,
);

/// Fuses the operations on the results of convolutions and linear layers among `nodes`, a subgraph
/// of `graph`, into the calls of these layers. Returns all calls of such layers.
#[pyfunction]
pub(crate) fn fuse_mkldnn(
    graph: &Bound<'_, PyGraph>,
    nodes: Vec<PyRef<'_, PyNode>>,
) -> PyResult<Vec<FusedCall>> {
    check_own(graph, nodes.iter())?;
    let subgraph = Subgraph {
        nodes: nodes.iter().map(|node| node.id()).collect(),
    };
    let facts = Facts::of_graph(graph)?;
    let fused = PyGraph::edit(graph, |ir| {
        let writes = Writes::of_graph(ir, &facts).map_err(pass_error)?;
        mkldnn::fuse(ir, &facts, &subgraph, &writes).map_err(pass_error)
    })?;
    for call in &fused {
        erased(graph, &call.gone)?;
    }
    let calls = fused.into_iter().map(|call| {
        Ok((
            PyNode::of(graph, call.node)?,
            call.layer,
            call.binary.map(mkldnn::Binary::as_str),
            call.activation.map(mkldnn::Activation::as_str),
            call.activation_module,
        ))
    });
    calls.collect()
}

fn check_own<'a, 'py: 'a>(
    graph: &Bound<'py, PyGraph>,
    nodes: impl Iterator<Item = &'a PyRef<'py, PyNode>>,
) -> PyResult<()> {
    let borrowed = graph.try_borrow()?;
    for node in nodes {
        if !node.graph_is(graph) || !borrowed.ir().contains(node.id()) {
            let name = node.name_or_id(graph.py());
            return Err(pyo3::exceptions::PyValueError::new_err(format!(
                "{name} is no node of this graph"
            )));
        }
    }
    Ok(())
}

/// The qualified names of those of `objects` that are classes.
fn class_names(objects: &[Bound<'_, PyAny>]) -> PyResult<FxHashSet<String>> {
    let mut names = FxHashSet::default();
    for object in objects {
        if let Ok(class) = object.cast::<PyType>() {
            let (module, name) = (class.module()?, class.qualname()?);
            names.insert(format!("{module}.{name}"));
        }
    }
    Ok(names)
}

/// The functions of `graph` for those of `objects` that are functions.
fn functions(
    graph: &Bound<'_, PyGraph>,
    objects: &[Bound<'_, PyAny>],
) -> PyResult<FxHashSet<FunctionId>> {
    let mut functions = FxHashSet::default();
    for object in objects.iter().filter(|o| !o.is_instance_of::<PyType>()) {
        functions.insert(PyGraph::function(graph, object)?);
    }
    Ok(functions)
}
