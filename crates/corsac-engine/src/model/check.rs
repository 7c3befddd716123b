//! Limits of a graph: sizes of its values, and of what rules and kernels allocate for them.

use corsac_ir::{Graph, NodeId, SecondaryMap};
use corsac_ops::shape::{Dim, Propagator, TensorType, Value, element_bytes};

use super::error::ModelError;
use super::limits::{Limits, within};
use crate::plan::Plan;
use crate::program::{Conv, Element, Op, Program};

/// Largest rank of a tensor. Source: PyTorch's `at::kDimVectorStaticSize` is far below; its kernels
/// refuse more than 64.
pub(super) const RANK: usize = 64;

/// Largest number of numbers, tensors and other leaves in all containers of a graph: a container
/// made of two others doubles, and a few hundred lines of text would make one that fits no memory.
const ITEMS: usize = 1 << 20;

/// Finds the types of all values of `graph`, and checks them against `limits`.
pub(super) fn find_types(
    graph: &Graph,
    types: &mut Propagator<'_>,
    inputs: &[Value],
    limits: &Limits,
) -> Result<(), ModelError> {
    types.set_inputs(graph, inputs);
    let mut items: SecondaryMap<NodeId, usize> = SecondaryMap::new();
    let mut total = 0_usize;
    for id in graph.nodes() {
        let node = graph.node(id);
        let mut read = 0_usize;
        let mut count = |input| read = read.saturating_add(*items.get(input));
        node.args()
            .iter()
            .for_each(|arg| arg.for_each_node(&mut count));
        let named = node.kwargs().iter();
        named.for_each(|(_, arg)| arg.for_each_node(&mut count));
        within("items of containers", total.saturating_add(read), ITEMS)?;
        types
            .step(graph, id)
            .map_err(|error| ModelError::Types(Box::new(error)))?;
        let value = types.value(id);
        let own = items_of(value);
        items.set(id, own);
        total = total.saturating_add(read).saturating_add(own);
        within("items of containers", total, ITEMS)?;
        let mut wrong = Ok(());
        value.for_each_tensor(&mut |tensor| {
            if wrong.is_ok() {
                wrong = fits(&tensor.ty, limits);
            }
        });
        wrong.map_err(|error| match error {
            Wrong::Rank(rank) => {
                ModelError::graph(node.name(), format!("a tensor of {rank} dimensions"))
            }
            Wrong::Negative(shape) => {
                ModelError::graph(node.name(), format!("a tensor of shape [{shape}]"))
            }
            Wrong::Large(size) => ModelError::TooLarge {
                what: "bytes of a value",
                size,
                limit: limits.value_bytes,
            },
        })?;
    }
    Ok(())
}

/// Number of leaves and containers in a value.
fn items_of(value: &Value) -> usize {
    let all = |items: &mut dyn Iterator<Item = &Value>| {
        items.fold(1_usize, |sum, item| sum.saturating_add(items_of(item)))
    };
    match value {
        Value::Tuple(items) | Value::List(items) => all(&mut items.iter()),
        Value::Named(items) => all(&mut items.iter().map(|(_, item)| item)),
        Value::Dict(entries) => all(&mut entries.iter().flat_map(|(key, item)| [key, item])),
        Value::Slice(parts) => all(&mut parts.iter()),
        Value::Str(text) | Value::Unknown(text) => 1 + text.len() / 64,
        _ => 1,
    }
}

enum Wrong {
    Rank(usize),
    Negative(String),
    Large(u64),
}

fn fits(ty: &TensorType, limits: &Limits) -> Result<(), Wrong> {
    if ty.rank() > RANK {
        return Err(Wrong::Rank(ty.rank()));
    }
    let each = u64::try_from(element_bytes(ty.dtype)).unwrap_or(1);
    let mut bytes = each.max(1);
    for dim in &ty.shape {
        // Lowering reports sizes that depend on symbols.
        let Some(size) = dim.known() else { continue };
        let Ok(size) = u64::try_from(size) else {
            let shape: Vec<String> = ty.shape.iter().map(Dim::to_string).collect();
            return Err(Wrong::Negative(shape.join(", ")));
        };
        // A tensor without elements still has rows, for which kernels keep tables.
        bytes = bytes.saturating_mul(size.max(1));
    }
    match bytes <= limits.value_bytes {
        true => Ok(()),
        false => Err(Wrong::Large(bytes)),
    }
}

/// Checks that `program` needs no more memory than the limits allow.
pub(super) fn check_program(program: &Program, limits: &Limits) -> Result<(), ModelError> {
    for value in &program.values {
        let bytes = bytes_of(value.element, &value.shape);
        within("bytes of a value", bytes, limits.value_bytes)?;
    }
    for step in &program.steps {
        if let Op::BatchTiling(tiling) = &step.op {
            check_program(&tiling.body, limits)?;
        }
        if let Op::Control(control) = &step.op {
            let mut bodies = control.bodies.iter();
            bodies.try_for_each(|body| check_program(body, limits))?;
        }
        if let Op::Conv(conv) = &step.op {
            let shape = |index: usize| program.shape(step.inputs[index]);
            let (image, kernel) = (shape(0), shape(1));
            let bytes = conv_bytes(conv, image, kernel, program.shape(step.output));
            within("bytes of a convolution's input", bytes, limits.value_bytes)?;
        }
    }
    let plan = Plan::of(program);
    let bytes = plan.size_bytes() as u64;
    within("bytes of all values", bytes, limits.value_bytes)
}

/// Bytes of a value, where sizes of zero count as one.
pub(super) fn bytes_of(element: Element, shape: &[usize]) -> u64 {
    let sizes = shape.iter().map(|&size| size.max(1) as u64);
    sizes.fold(element.size_bytes() as u64, u64::saturating_mul)
}

/// Bytes of an image with all zeros that a convolution may put around it and between its rows.
fn conv_bytes(conv: &Conv, image: &[usize], kernel: &[usize], out: &[usize]) -> u64 {
    let (channels, dims) = match image {
        [_, channels, rows, columns] => (*channels, [*rows, *columns]),
        _ => return u64::MAX,
    };
    let large = |value: usize| value as u64;
    let mut bytes = bytes_of(Element::F32, &[channels]);
    for (at, &size) in dims.iter().enumerate() {
        let (Some(&taps), Some(&result)) = (kernel.get(2 + at), out.get(out.len() - 2 + at)) else {
            return u64::MAX;
        };
        if taps == 0 {
            return u64::MAX;
        }
        let far = (large(taps) - 1).saturating_mul(large(conv.dilation[at]));
        let moved = large(result).saturating_mul(large(conv.stride[at]));
        let around = large(conv.padding[0][at]).saturating_add(large(conv.padding[1][at]));
        let reach = far
            .saturating_add(moved)
            .saturating_add(large(conv.stride[at]));
        bytes = bytes.saturating_mul(reach.max(large(size).saturating_add(around)));
    }
    bytes
}
