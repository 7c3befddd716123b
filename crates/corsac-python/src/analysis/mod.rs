//! Types, costs and memory of the values of a graph, found without running it.

mod balance;
mod dim;
pub(crate) mod facts;
mod tensor_parallel;
pub(crate) mod value;

use corsac_ir::{Graph, NodeId, Op, SecondaryMap};
use corsac_ops::shape::{
    Failure, NodeCost, Propagator, RuleInfo, Settings, ShapeError, ShardedCall, Value,
    infer_function, infer_method, node_cost, peak, rules,
};
use corsac_passes::balance::{Request, Training};
use pyo3::create_exception;
use pyo3::exceptions::{PyIndexError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::callable::CallableNames;
use crate::graph::PyGraph;
use crate::graph::node::PyNode;
use crate::runtime::{TorchValue, TorchValues};

pub(crate) use dim::PyDim;
use dim::write_dim;
use facts::TypeFacts;
use value::{TypeReader, TypeWriter};

create_exception!(
    corsac._core,
    ShapeInferenceError,
    PyRuntimeError,
    "A call in a graph that fails when it runs: the node, expected and actual arguments."
);

/// Types of the values of a graph, and the cost of computing them.
#[pyclass(name = "Types", module = "corsac._core", frozen)]
pub(crate) struct PyTypes {
    graph: Py<PyGraph>,
    order: Vec<NodeId>,
    values: SecondaryMap<NodeId, Option<Value>>,
    /// Nodes that had no rule, with the reason.
    fallbacks: Vec<(NodeId, String)>,
    costs: Vec<NodeCost>,
    memory: Memory,
    weights: Vec<facts::Weight>,
    /// Parameters and buffers that a call of a module uses, by node.
    used: Vec<Vec<u32>>,
    /// The ways to make each call on parts, where they were asked for.
    sharded: Vec<Option<ShardedCall>>,
}

#[derive(Default)]
struct Memory {
    bytes: i64,
    at: Option<NodeId>,
    held: Vec<i64>,
    /// Bytes, first node and last node of each buffer.
    lifetimes: Vec<(i64, NodeId, NodeId)>,
    unknown: Vec<NodeId>,
}

pub(crate) fn settings(py: Python<'_>) -> PyResult<Settings> {
    let torch = py.import(intern!(py, "torch"))?;
    let default = torch.call_method0(intern!(py, "get_default_dtype"))?;
    let default_dtype = match TorchValues::get(py)?.of(&default) {
        Some(TorchValue::DType(dtype)) => dtype,
        _ => Settings::default().default_dtype,
    };
    Ok(Settings {
        default_dtype,
        grad: torch
            .call_method0(intern!(py, "is_grad_enabled"))?
            .is_truthy()?,
    })
}

/// The exception for a call that fails, with the user's source line.
pub(crate) fn shape_error(graph: &Bound<'_, PyGraph>, error: &ShapeError) -> PyErr {
    let place = || -> PyResult<Option<String>> {
        let handle = PyNode::of(graph, error.node)?;
        let source = handle
            .bind(graph.py())
            .getattr(intern!(graph.py(), "source"))?;
        Ok((!source.is_none()).then(|| source.to_string()))
    };
    let mut message = error.to_string();
    if let Ok(Some(place)) = place() {
        message.push_str("\n  at ");
        message.push_str(&place);
    }
    ShapeInferenceError::new_err(message)
}

/// Types of all values of `graph` for `inputs`, in the order of the placeholders.
///
/// `fallback(node, values)` is called for nodes without a rule, with the known values of their
/// inputs as a dictionary from node to value; it returns a tuple of one value, or None if the value
/// is unknown. With `fill`, metadata is written to the nodes as `ShapeProp` does. With `cost`,
/// costs are counted too; with `shards`, the ways to make calls on parts of tensors are found.
#[pyfunction]
#[pyo3(signature = (graph, inputs, fallback = None, *, fill = true, cost = false, shards = false))]
pub(crate) fn propagate_types<'py>(
    graph: &Bound<'py, PyGraph>,
    inputs: &Bound<'py, PyTuple>,
    fallback: Option<&Bound<'py, PyAny>>,
    fill: bool,
    cost: bool,
    shards: bool,
) -> PyResult<PyTypes> {
    let py = graph.py();
    let reader = TypeReader::new(py)?;
    let inputs = reader.values(inputs)?;
    let facts = TypeFacts::of_graph(graph)?;
    let mut types = Propagator::new(&facts, settings(py)?);
    types.set_inputs(graph.try_borrow()?.ir(), &inputs);
    let fallback = fallback.filter(|fallback| !fallback.is_none());
    let fallbacks = find_types(graph, &mut types, fallback, &reader)?;
    let order = graph.try_borrow()?.ir().nodes().collect();
    let mut answer = PyTypes {
        graph: graph.clone().unbind(),
        values: SecondaryMap::new(),
        fallbacks,
        costs: Vec::new(),
        memory: Memory::default(),
        weights: Vec::new(),
        used: Vec::new(),
        sharded: Vec::new(),
        order,
    };
    {
        let borrowed = graph.try_borrow()?;
        let ir = borrowed.ir();
        if cost {
            let costs = answer
                .order
                .iter()
                .map(|&node| node_cost(&mut types, ir, node));
            answer.costs = costs.collect();
            let peak = peak(&types, ir);
            answer.memory = Memory {
                bytes: peak.bytes,
                at: peak.at,
                held: peak.held.iter().map(|(_, bytes)| *bytes).collect(),
                lifetimes: peak
                    .lifetimes
                    .iter()
                    .map(|l| (l.bytes, l.from, l.to))
                    .collect(),
                unknown: peak.unknown,
            };
            answer.used = answer
                .order
                .iter()
                .map(|&n| weights_of(&types, ir, n))
                .collect();
        }
        if shards {
            let calls = answer.order.iter().map(|&node| types.sharded(ir, node));
            answer.sharded = calls.collect();
        }
        for &node in &answer.order {
            answer.values.set(node, Some(types.value(node).clone()));
        }
    }
    answer.weights = facts.weights;
    if fill {
        answer.fill(graph)?;
    }
    Ok(answer)
}

fn is_call(graph: &Bound<'_, PyGraph>, node: NodeId) -> PyResult<bool> {
    let op = graph.try_borrow()?.ir().node(node).op();
    Ok(matches!(
        op,
        Op::CallFunction | Op::CallMethod | Op::CallModule
    ))
}

/// Indices of the parameters and buffers that a node uses itself.
fn weights_of(types: &Propagator<'_>, ir: &Graph, node: NodeId) -> Vec<u32> {
    let view = ir.node(node);
    let mut used = Vec::new();
    let mut note = |value: &Value| {
        value.for_each_tensor(&mut |tensor| {
            let index = tensor.storage.index();
            if index < types.weight_count() {
                used.push(index as u32);
            }
        });
    };
    if let Some(module) = types.module(view) {
        module.attributes.iter().for_each(|(_, value)| note(value));
    }
    if view.op() == Op::GetAttr {
        note(types.value(node));
    }
    used.sort_unstable();
    used.dedup();
    used
}

/// Finds the types of all values, given those of the inputs. `fallback` is called for calls without
/// a rule. Returns these calls, each with the reason.
pub(crate) fn find_types<'py>(
    graph: &Bound<'py, PyGraph>,
    types: &mut Propagator<'_>,
    fallback: Option<&Bound<'py, PyAny>>,
    reader: &TypeReader<'py>,
) -> PyResult<Vec<(NodeId, String)>> {
    let order: Vec<NodeId> = graph.try_borrow()?.ir().nodes().collect();
    let mut without_rule = Vec::new();
    for node in order {
        let step = types.step(graph.try_borrow()?.ir(), node);
        step.map_err(|error| shape_error(graph, &error))?;
        let Value::Unknown(reason) = types.value(node) else {
            continue;
        };
        let reason = reason.to_string();
        if !is_call(graph, node)? {
            continue;
        }
        if let Some(fallback) = fallback
            && let Some(found) = ask(graph, types, fallback, reader, node)?
        {
            types.set(node, found);
        }
        without_rule.push((node, reason));
    }
    Ok(without_rule)
}

/// Calls `fallback` for a node; None if the value is unknown to it, too.
fn ask<'py>(
    graph: &Bound<'py, PyGraph>,
    types: &Propagator<'_>,
    fallback: &Bound<'py, PyAny>,
    reader: &TypeReader<'py>,
    node: NodeId,
) -> PyResult<Option<Value>> {
    let py = graph.py();
    let (handle, inputs) = {
        let borrowed = graph.try_borrow()?;
        let inputs: Vec<NodeId> = borrowed.ir().node(node).inputs().collect();
        let handle = |id| PyNode::handle(graph, borrowed.host(), id);
        let inputs = inputs.into_iter().map(|id| Ok((id, handle(id)?)));
        (handle(node)?, inputs.collect::<PyResult<Vec<_>>>()?)
    };
    let writer = TypeWriter::new(py)?;
    let known = PyDict::new(py);
    for (id, handle) in inputs {
        if types.value(id).unknown_reason().is_none() {
            known.set_item(handle, writer.value(types.value(id))?)?;
        }
    }
    let answer = fallback.call1((handle, known))?;
    if answer.is_none() {
        return Ok(None);
    }
    // In a tuple, since the value itself may be None.
    Ok(Some(reader.value(&answer.get_item(0)?)?))
}

impl PyTypes {
    fn value(&self, node: NodeId) -> &Value {
        static NOTHING: Value = Value::None;
        self.values.get(node).as_ref().unwrap_or(&NOTHING)
    }

    /// Writes `tensor_meta` and `type` to the metadata of the nodes.
    fn fill(&self, graph: &Bound<'_, PyGraph>) -> PyResult<()> {
        let py = graph.py();
        let writer = TypeWriter::new(py)?;
        for &node in &self.order {
            let value = self.value(node);
            if matches!(value, Value::Unknown(_)) {
                continue;
            }
            let meta = PyGraph::meta(graph, node)?;
            let meta = meta.bind(py).cast::<PyDict>()?;
            let mut has_tensor = false;
            value.for_each_tensor(&mut |_| has_tensor = true);
            if has_tensor {
                meta.set_item(intern!(py, "tensor_meta"), writer.value(value)?)?;
            }
            meta.set_item(intern!(py, "type"), writer.class(value)?)?;
        }
        Ok(())
    }

    fn names<'py>(&self, py: Python<'py>, nodes: &[(NodeId, &str)]) -> PyResult<Vec<Site>> {
        let graph = self.graph.bind(py).try_borrow()?;
        let site = |&(node, reason): &(NodeId, &str)| {
            let node = graph.ir().node(node);
            (
                node.name().to_owned(),
                node.target_name().to_owned(),
                reason.to_owned(),
            )
        };
        Ok(nodes.iter().map(site).collect())
    }
}

/// The name of a node, its target, and a reason.
type Site = (String, String, String);

#[pymethods]
impl PyTypes {
    /// Nodes that have no rule: name, target, and the reason.
    fn fallbacks(&self, py: Python<'_>) -> PyResult<Vec<Site>> {
        let sites: Vec<_> = self
            .fallbacks
            .iter()
            .map(|(n, reason)| (*n, reason.as_str()))
            .collect();
        self.names(py, &sites)
    }

    /// Nodes whose value is unknown: name, target, and the reason.
    fn unknown(&self, py: Python<'_>) -> PyResult<Vec<Site>> {
        let unknown = self.order.iter().filter_map(|&node| {
            let reason = self.value(node).unknown_reason()?;
            Some((node, reason))
        });
        self.names(py, &unknown.collect::<Vec<_>>())
    }

    /// Values of the nodes, in order, with tensors as their metadata. With `places`, those of the
    /// nodes at these indices; raises `IndexError` for an index out of range.
    #[pyo3(signature = (places = None))]
    fn values<'py>(
        &self,
        py: Python<'py>,
        places: Option<Vec<usize>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let writer = TypeWriter::new(py)?;
        let value = |&node: &NodeId| writer.value(self.value(node));
        let values: PyResult<Vec<_>> = match places {
            None => self.order.iter().map(value).collect(),
            Some(places) => places
                .into_iter()
                .map(|place| match self.order.get(place) {
                    Some(node) => value(node),
                    None => Err(PyIndexError::new_err(format!("there is no node {place}"))),
                })
                .collect(),
        };
        PyList::new(py, values?)
    }

    /// Types of the nodes' values, in order, as text: `float32[2, 3]`.
    fn shown(&self) -> Vec<String> {
        self.order
            .iter()
            .map(|&node| self.value(node).to_string())
            .collect()
    }

    /// Costs of the nodes, in order: multiplications, floating-point operations, bytes read, bytes
    /// written; None for what is unknown.
    fn costs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let none = || py.None().into_bound(py);
        let rows = self.costs.iter().map(|cost| {
            let work = cost.work.as_ref().ok();
            let dims = [
                work.map(|work| &work.macs),
                work.map(|work| &work.flops),
                cost.bytes_read.as_ref().ok(),
                cost.bytes_written.as_ref().ok(),
            ];
            let cells = dims.map(|dim| dim.map_or_else(|| Ok(none()), |dim| write_dim(py, dim)));
            PyTuple::new(py, cells.into_iter().collect::<PyResult<Vec<_>>>()?)
        });
        PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)
    }

    /// Nodes whose cost is unknown: name, target, and the reason.
    fn uncounted(&self, py: Python<'_>) -> PyResult<Vec<Site>> {
        let sites = self
            .order
            .iter()
            .zip(&self.costs)
            .filter_map(|(&node, cost)| Some((node, &**cost.work.as_ref().err()?)));
        self.names(py, &sites.collect::<Vec<_>>())
    }

    /// Bytes of each node's result, in order; None where sizes are unknown.
    fn result_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let bytes = self.order.iter().map(|&node| {
            let value = self.value(node);
            if value.unknown_reason().is_some() {
                return Ok(py.None().into_bound(py));
            }
            let mut sum = corsac_ops::shape::Dim::ZERO;
            value.for_each_tensor(&mut |tensor| sum = sum.clone() + tensor.size_bytes());
            write_dim(py, &sum)
        });
        PyList::new(py, bytes.collect::<PyResult<Vec<_>>>()?)
    }

    /// Peak of the bytes of activations held at once, the name of the node with that peak, bytes
    /// held while each node runs, and the names of nodes whose memory is unknown.
    #[expect(clippy::type_complexity, reason = "a tuple for Python to take apart")]
    fn peak(&self, py: Python<'_>) -> PyResult<(i64, Option<String>, Vec<i64>, Vec<String>)> {
        let graph = self.graph.bind(py).try_borrow()?;
        let name = |node: NodeId| graph.ir().node(node).name().to_owned();
        let memory = &self.memory;
        let unknown = memory.unknown.iter().map(|&node| name(node)).collect();
        Ok((
            memory.bytes,
            memory.at.map(name),
            memory.held.clone(),
            unknown,
        ))
    }

    /// Live ranges of the buffers: bytes, and the names of the first and the last node that need
    /// each.
    fn lifetimes(&self, py: Python<'_>) -> PyResult<Vec<(i64, String, String)>> {
        let graph = self.graph.bind(py).try_borrow()?;
        let name = |node: NodeId| graph.ir().node(node).name().to_owned();
        let lifetimes = self.memory.lifetimes.iter();
        Ok(lifetimes
            .map(|&(bytes, from, to)| (bytes, name(from), name(to)))
            .collect())
    }

    /// Parameters and buffers that the graph names: name, number of elements, bytes, whether it is
    /// a parameter, whether it is trained.
    fn weights(&self) -> Vec<(String, i64, i64, bool, bool)> {
        let weights = self.weights.iter();
        weights
            .map(|w| (w.name.clone(), w.numel, w.bytes, w.parameter, w.trainable))
            .collect()
    }

    /// Indices of the parameters and buffers that each node uses, in order.
    fn used_weights(&self) -> Vec<Vec<u32>> {
        self.used.clone()
    }

    /// Cuts the calls of the graph into parts, so that the slowest takes as little time as
    /// possible, with what crosses its borders. Costs have to be known.
    ///
    /// `seconds` has the time of each node, in graph order; `memory` is in bytes for each part,
    /// `bandwidth` in bytes a second; `training` has the number of copies of the weights that the
    /// optimizer keeps, and that of microbatches. With `only_tensors`, nothing else crosses.
    ///
    /// Returns the number of the part of each call, in graph order, for each part its seconds and
    /// its memory, and the bytes that cross each border between two parts.
    ///
    /// Raises `BalanceError` if there is no such cut.
    #[pyo3(signature = (seconds, parts, *, memory = None, bandwidth = None, training = None,
        only_tensors = false))]
    #[expect(
        clippy::too_many_arguments,
        reason = "keywords, one for each option that Python has"
    )]
    fn balance(
        &self,
        py: Python<'_>,
        seconds: Vec<f64>,
        parts: usize,
        memory: Option<u64>,
        bandwidth: Option<f64>,
        training: Option<(u64, u64)>,
        only_tensors: bool,
    ) -> PyResult<balance::CutParts> {
        let request = Request {
            parts,
            memory,
            bandwidth,
            training: training.map(|(states, microbatches)| Training {
                states,
                microbatches,
            }),
        };
        balance::cut(self, py, &seconds, &request, only_tensors)
    }

    /// The cheapest plan for the graph on several ranks. The ways to make calls on parts have to be
    /// known (`shards`), and sizes to be numbers.
    ///
    /// `nodes` has, in graph order, the cost of each node on whole tensors, in bytes that could be
    /// sent meanwhile, whether its value has to be whole on all ranks, and whether it is a view;
    /// `weights`, for each attribute that is a weight, its name, whether it may be sharded, whether it is trained, the
    /// dimension along which it has to be, if any, and whether no call may use the whole of it then; `kept` has the costs of a
    /// byte of a weight and of another value that a rank keeps, in bytes that are sent; if the second is not 0, sums may
    /// become parts along a dimension before the last.
    ///
    /// A placement is None for a tensor that all ranks have, `"sum"` for one of which each has a
    /// summand, or the dimension and the sizes of the pieces that are cut among the ranks. Returns, for
    /// each node in graph order, the values that it uses (index of their node, placements), the
    /// placements of its result, whether that is replicated, whether ranks compute parts, what is done
    /// besides the call, and the arguments that are sizes of parts (position or name, path in it);
    /// then the cost; then views that cannot be sharded in every way, since the ranks do not divide a size
    /// (node, size).
    ///
    /// Raises `ValueError` if there is no such plan.
    #[pyo3(signature = (ranks, nodes, weights, *, training, kept))]
    fn tensor_parallel<'py>(
        &self,
        py: Python<'py>,
        ranks: i64,
        nodes: Vec<(f64, bool, bool)>,
        weights: Vec<tensor_parallel::GivenWeight>,
        training: bool,
        kept: (f64, f64),
    ) -> PyResult<tensor_parallel::Answer<'py>> {
        tensor_parallel::plan(self, py, ranks, &nodes, weights, (training, kept))
    }
}

/// Type of the result of `target` for these arguments, by the shape rules; tensors as their
/// metadata. A string is the name of a tensor method. Returns a tuple of one value, or the reason
/// why the type is unknown as text.
#[pyfunction]
#[pyo3(signature = (target, args, kwargs))]
pub(crate) fn infer_type<'py>(
    target: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = target.py();
    let reader = TypeReader::new(py)?;
    let args = reader.values(args)?;
    let mut named: Vec<(String, Value)> = Vec::new();
    for entry in kwargs.items() {
        let (name, value): (String, Bound<'py, PyAny>) = entry.extract()?;
        named.push((name, reader.value(&value)?));
    }
    let kwargs: Vec<(&str, Value)> = named.iter().map(|(n, v)| (n.as_str(), v.clone())).collect();
    let settings = settings(py)?;
    let found = match target.extract::<String>() {
        Ok(method) => infer_method(&method, &args, &kwargs, settings),
        Err(_) => {
            let name = CallableNames::of(target)?.printed;
            infer_function(&name, &args, &kwargs, settings)
        }
    };
    match found {
        Ok(value) => match value.unknown_reason() {
            Some(reason) => Ok(reason.into_pyobject(py)?.into_any()),
            None => {
                let value = TypeWriter::new(py)?.value(&value)?;
                Ok(PyTuple::new(py, [value])?.into_any())
            }
        },
        Err(Failure::Unknown(reason)) => Ok((&*reason).into_pyobject(py)?.into_any()),
        Err(failure) => Err(ShapeInferenceError::new_err(failure.to_string())),
    }
}

/// The shape rules: family, names, and how arithmetic is counted.
#[pyfunction]
pub(crate) fn shape_rules() -> Vec<(&'static str, Vec<String>, &'static str)> {
    let row = |rule: RuleInfo| (rule.family, rule.names, rule.cost);
    rules().into_iter().map(row).collect()
}

/// Adds the module's classes and functions to `m`.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyDim>()?;
    m.add_class::<PyTypes>()?;
    m.add_function(wrap_pyfunction!(propagate_types, m)?)?;
    m.add_function(wrap_pyfunction!(infer_type, m)?)?;
    m.add_function(wrap_pyfunction!(shape_rules, m)?)?;
    let error = m.py().get_type::<ShapeInferenceError>();
    m.add("ShapeInferenceError", error)?;
    m.add("BalanceError", m.py().get_type::<balance::BalanceError>())
}
