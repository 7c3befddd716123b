//! Partitioning of Python's joint graphs into forward and backward.

use corsac_ir::{EntityId, NodeId, SecondaryMap};
use corsac_passes::joint::again::{Class, class_of};
use corsac_passes::joint::{Effort, JointError, Kind, Policy, Role, Time, Value, partition};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::effects::Facts;
use crate::error::pass_error;
use crate::graph::PyGraph;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(partition_joint, m)?)?;
    m.add_function(wrap_pyfunction!(computing_again, m)?)?;
    Ok(())
}

/// Of each node, in order: the bytes of its value, properties of the value as bits, and the
/// checkpointed region that it is in, or -1.
type Values = Vec<(u64, u32, i64)>;
/// Merged nodes with their replacements; saved tensors; saved numbers; bytes of these; calls of the
/// forward; of the backward; of both; those of both that use random numbers.
type Parts = (
    Vec<(usize, usize)>,
    Vec<usize>,
    Vec<usize>,
    u64,
    Vec<usize>,
    Vec<usize>,
    Vec<usize>,
    Vec<usize>,
);

/// Reads the bits of a value: two each for its kind, its role, its time and the user's policy, and
/// one for each of the other fields, in the order of `Value`.
fn value_of(&(bytes, bits, region): &(u64, u32, i64)) -> PyResult<Value> {
    let two = |at: u32| bits >> at & 3;
    let unknown = || PyValueError::new_err(format!("no value is said to be {bits:#b}"));
    Ok(Value {
        bytes,
        kind: match two(0) {
            0 => Kind::Tensor,
            1 => Kind::Size,
            2 => Kind::Number,
            _ => Kind::Other,
        },
        role: match two(2) {
            0 => Role::Value,
            1 => Role::Parameter,
            2 => Role::Tangent,
            _ => return Err(unknown()),
        },
        time: match two(4) {
            0 => Time::ByUse,
            1 => Time::Backward,
            2 => Time::OnlyForward,
            _ => Time::OnlyBackward,
        },
        policy: match two(6) {
            0 => Policy::Free,
            1 => Policy::Save,
            2 => Policy::Recompute,
            _ => return Err(unknown()),
        },
        region: u32::try_from(region).ok(),
        hooked: bits >> 8 & 1 == 1,
        overwritten: bits >> 9 & 1 == 1,
    })
}

fn joint_error(error: JointError) -> PyErr {
    match error {
        JointError::Pass(error) => pass_error(error),
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

/// Partitions a joint graph, whose first `forward_outputs` outputs are those of the forward. Nodes
/// are numbered in the order of the graph. `fewest_bytes` recomputes everything that is cheap.
#[pyfunction]
pub(crate) fn partition_joint(
    graph: &Bound<'_, PyGraph>,
    values: Values,
    forward_outputs: usize,
    fewest_bytes: bool,
) -> PyResult<Parts> {
    let facts = Facts::of_graph(graph)?;
    let borrowed = graph.try_borrow()?;
    let ir = borrowed.ir();
    if values.len() != ir.len() {
        let message = format!("{} values for {} nodes", values.len(), ir.len());
        return Err(PyValueError::new_err(message));
    }
    let mut by_node = SecondaryMap::with_capacity(ir.id_bound());
    let mut numbers = vec![0; ir.id_bound()];
    for ((number, node), value) in ir.nodes().enumerate().zip(&values) {
        by_node.set(node, value_of(value)?);
        numbers[node.index()] = number;
    }
    let effort = if fewest_bytes {
        Effort::FewestBytes
    } else {
        Effort::Balanced
    };
    let parts = partition(ir, &facts, &by_node, forward_outputs, effort).map_err(joint_error)?;
    let number = |node: &NodeId| numbers[node.index()];
    let all = |nodes: &[NodeId]| nodes.iter().map(number).collect::<Vec<_>>();
    let merged = parts.merged.iter();
    Ok((
        merged
            .map(|(gone, kept)| (number(gone), number(kept)))
            .collect(),
        all(&parts.saved),
        all(&parts.saved_numbers),
        parts.saved_bytes,
        all(&parts.forward),
        all(&parts.backward),
        all(&parts.recomputed),
        all(&parts.redrawn),
    ))
}

/// Time to recompute the elements of an operator's result: "long", "none", "copied" (as long as
/// reading and writing them) or "function".
#[pyfunction]
pub(crate) fn computing_again(target: &str) -> &'static str {
    match class_of(target) {
        Class::Long => "long",
        Class::None => "none",
        Class::Copied => "copied",
        Class::Function => "function",
    }
}
