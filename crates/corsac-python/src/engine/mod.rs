//! Programs of the engine, for Python: compiled from a graph, run on tensors and arrays.

mod allocation;
mod arguments;
mod cache;
mod converted;
mod entry;
mod fresh;
mod model;
mod model_guards;
pub(crate) mod modes;
mod planted;
mod probe;
mod program;
mod runner;
mod tensor_finder;
mod tensor_layout;
mod tensors;
mod torch_library;
mod weights;

use corsac_engine::{same_input, unsupported};
use corsac_ir::{Graph, NodeId, Op};
use corsac_ops::shape::{Propagator, Storage};
use pyo3::create_exception;
use pyo3::exceptions::PyRuntimeError;
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::FxHashMap;

use crate::analysis::facts::TypeFacts;
use crate::analysis::value::TypeReader;
use crate::analysis::{find_types, settings, shape_error};
use crate::graph::PyGraph;
use crate::graph::node::PyNode;

pub(crate) use program::{Contexts, PyProgram, read, structure};
pub(crate) use tensor_finder::TensorFinder;
pub(crate) use tensors::Exchange;
pub(crate) use tensors::requires_grad;

create_exception!(
    corsac._core,
    CompileError,
    PyRuntimeError,
    "A graph that cannot be compiled: the node, and the reason."
);

/// Calls `work` with `graph` and the types of its values for tensors like `inputs`.
fn with_types<'py, T>(
    graph: &Bound<'py, PyGraph>,
    inputs: &Bound<'py, PyTuple>,
    facts: &TypeFacts,
    work: impl FnOnce(&Graph, &Propagator<'_>) -> PyResult<T>,
) -> PyResult<T> {
    let py = graph.py();
    let inputs = TypeReader::new(py)?.values(inputs)?;
    let mut types = Propagator::new(facts, settings(py)?);
    let borrowed = graph.try_borrow()?;
    match types.run(borrowed.ir(), &inputs) {
        Ok(()) => work(borrowed.ir(), &types),
        Err(error) => {
            drop(borrowed);
            Err(shape_error(graph, &error))
        }
    }
}

/// The nodes whose values are returned although they share memory with an input, a weight, a result
/// of a call on the `host` or another result, and the reason why that is impossible: results of
/// programs are new tensors, unless `itself` allows results that are inputs themselves.
fn shared_results(
    graph: &Graph,
    types: &Propagator<'_>,
    itself: bool,
    host: impl Iterator<Item = NodeId>,
) -> Vec<(NodeId, String)> {
    let mut owners: FxHashMap<Storage, String> = FxHashMap::default();
    for node in host {
        types.value(node).for_each_tensor(&mut |tensor| {
            owners.insert(tensor.storage, graph.node(node).name().to_owned());
        });
    }
    let mut returned = Vec::new();
    for node in graph.nodes() {
        let view = graph.node(node);
        match view.op() {
            Op::Placeholder => types.value(node).for_each_tensor(&mut |tensor| {
                owners.insert(tensor.storage, format!("the input {}", view.name()));
            }),
            Op::Output => view.args().iter().for_each(|arg| {
                arg.for_each_node(&mut |node| {
                    let is_input = itself && same_input(graph, types, node).is_some();
                    if !is_input && !returned.contains(&node) {
                        returned.push(node);
                    }
                });
            }),
            _ => {}
        }
    }
    returned.sort_by_key(|&node| graph.node(node).order());
    let mut found: Vec<(NodeId, String)> = Vec::new();
    let mut results: FxHashMap<Storage, NodeId> = FxHashMap::default();
    for &node in &returned {
        let mut own = Vec::new();
        let mut first = None;
        let mut shared = None;
        types.value(node).for_each_tensor(&mut |tensor| {
            if tensor.storage.index() < types.weight_count() {
                shared = Some("a weight".to_owned());
            } else if let Some(owner) = owners.get(&tensor.storage) {
                shared = Some(owner.clone());
                first = first.or(results.remove(&tensor.storage));
            } else {
                own.push(tensor.storage);
            }
        });
        if let Some(owner) = shared {
            let reason = format!("it is returned and shares memory with {owner}");
            found.push((node, reason));
        }
        // Both are views of one tensor of PyTorch, which therefore has to make both.
        if let Some(first) = first.filter(|&first| is_view(graph, types, first)) {
            let name = graph.node(node).name();
            found.push((
                first,
                format!("it is returned and shares memory with the result {name}"),
            ));
        }
        for storage in own {
            results.insert(storage, node);
            owners.insert(storage, format!("the result {}", graph.node(node).name()));
        }
    }
    // They are views of other values, which PyTorch has to make, too.
    let mut left: Vec<(NodeId, Storage)> = Vec::new();
    for &(node, _) in &found {
        left.extend(storages(types, node).map(|storage| (node, storage)));
    }
    while let Some((node, storage)) = left.pop() {
        for input in graph.node(node).inputs() {
            let is_known = returned.contains(&input) || found.iter().any(|(own, _)| *own == input);
            // A list of views shares their storage.
            if is_call(graph, input)
                && !is_known
                && storages(types, input).any(|own| own == storage)
            {
                let name = graph.node(node).name();
                found.push((input, format!("{name} is a view of it, and is returned")));
                left.push((input, storage));
            }
        }
    }
    found
}

/// Storages of the tensors in a node's result.
fn storages(types: &Propagator<'_>, node: NodeId) -> impl Iterator<Item = Storage> + use<> {
    let mut own = Vec::new();
    let value = types.value(node);
    value.for_each_tensor(&mut |tensor| own.push(tensor.storage));
    own.into_iter()
}

fn is_call(graph: &Graph, node: NodeId) -> bool {
    matches!(graph.node(node).op(), Op::CallFunction | Op::CallMethod)
}

/// Whether a node's result is a view of another call's result.
fn is_view(graph: &Graph, types: &Propagator<'_>, node: NodeId) -> bool {
    let own: Vec<_> = storages(types, node).collect();
    let mut inputs = graph.node(node).inputs();
    inputs.any(|input| {
        is_call(graph, input) && storages(types, input).any(|storage| own.contains(&storage))
    })
}

/// Compiles `graph` for tensors like `inputs`, with the weights of its `owning_module`; numbers
/// among the inputs are compiled in.
///
/// Raises `CompileError` for what the engine does not support, and `ShapeInferenceError` for a call
/// that fails when it runs. Results are new tensors; with `strict`, it is a `CompileError` if one
/// would share memory with an input, a weight or another result in PyTorch, and a value that is
/// returned twice is one tensor. `precision` is `"f32"`, or `"bf16"` for convolutions and linear
/// layers that multiply numbers rounded to bfloat16, where the processor can.
#[pyfunction]
#[pyo3(signature = (graph, inputs, *, strict = false, precision = "f32"))]
fn compile_graph<'py>(
    graph: &Bound<'py, PyGraph>,
    inputs: &Bound<'py, PyTuple>,
    strict: bool,
    precision: &str,
) -> PyResult<PyProgram> {
    model::PyNativeModel::new(graph, strict, precision, false, None)?.compile(
        graph.py(),
        inputs,
        false,
    )
}

/// The nodes of `graph` that the engine does not support, for tensors like `inputs`, with the
/// reasons. `fallback` is as for `propagate_types`, and `strict` as for `compile_graph`.
#[pyfunction]
#[pyo3(signature = (graph, inputs, fallback = None, *, strict = false))]
fn explain_compilation<'py>(
    graph: &Bound<'py, PyGraph>,
    inputs: &Bound<'py, PyTuple>,
    fallback: Option<&Bound<'py, PyAny>>,
    strict: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let py = graph.py();
    let reader = TypeReader::new(py)?;
    let inputs = reader.values(inputs)?;
    let facts = TypeFacts::of_graph(graph)?;
    let mut types = Propagator::new(&facts, settings(py)?);
    types.set_inputs(graph.try_borrow()?.ir(), &inputs);
    let without_rule = find_types(graph, &mut types, fallback, &reader)?;
    let borrowed = graph.try_borrow()?;
    let mut unknown = unsupported(borrowed.ir(), &types);
    if strict {
        let host = without_rule.iter().map(|(node, _)| *node);
        unknown.extend(shared_results(borrowed.ir(), &types, false, host));
    }
    let reason = |reason| format!("its type is not known: {reason}");
    unknown.extend(
        without_rule
            .into_iter()
            .map(|(node, own)| (node, reason(own))),
    );
    let reasons = PyDict::new(py);
    for (node, reason) in unknown {
        reasons.set_item(PyNode::handle(graph, borrowed.host(), node)?, reason)?;
    }
    Ok(reasons)
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("CompileError", m.py().get_type::<CompileError>())?;
    // The exception for a panic, a fault of corsac, which must not end the process.
    m.add("PanicException", m.py().get_type::<PanicException>())?;
    m.add_class::<cache::PyCacheFolder>()?;
    m.add_class::<PyProgram>()?;
    m.add_class::<model::PyNativeModel>()?;
    m.add_class::<runner::PyRunner>()?;
    m.add_function(wrap_pyfunction!(tensor_finder::tensors_in, m)?)?;
    m.add_function(wrap_pyfunction!(tensor_finder::storage_of, m)?)?;
    m.add_function(wrap_pyfunction!(tensor_finder::storages_in, m)?)?;
    m.add("HOST", runner::host(m.py())?)?;
    m.add("FAILED", runner::failed(m.py())?)?;
    m.add_class::<model_guards::PyModelGuards>()?;
    m.add_function(wrap_pyfunction!(compile_graph, m)?)?;
    m.add_function(wrap_pyfunction!(explain_compilation, m)?)?;
    m.add_function(wrap_pyfunction!(program::check_threads_setting, m)?)?;
    m.add_function(wrap_pyfunction!(planted::plant_panic, m)?)?;
    m.add_function(wrap_pyfunction!(runner::observe_calls, m)?)?;
    m.add_function(wrap_pyfunction!(tensors::are_native, m)?)?;
    m.add_function(wrap_pyfunction!(tensors::native_dtypes, m)?)?;
    m.add_function(wrap_pyfunction!(allocation::makes_tensors_directly, m)?)?;
    m.add_function(wrap_pyfunction!(modes::knows_switches, m)?)?;
    m.add_function(wrap_pyfunction!(tensor_layout::knows_tensor_layout, m)?)?;
    m.add_function(wrap_pyfunction!(modes::unusual_mode, m)?)
}
