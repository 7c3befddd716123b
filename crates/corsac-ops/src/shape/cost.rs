//! Cost of a graph: arithmetic, memory traffic, and memory held, from the types of its values.

use corsac_ir::{Graph, NodeId, Op, SecondaryMap};

use super::call::Call;
use super::dim::Dim;
use super::promotion::element_bytes;
use super::propagate::Propagator;
use super::rule::{Cost, Found, Work};
use super::tensor_type::TensorType;
use super::value::{Storage, Tensor, Value};

/// Something that is counted, or the reason why it is not.
pub type Counted<T> = Result<T, Box<str>>;

/// Cost of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCost {
    /// Its arithmetic.
    pub work: Counted<Work>,
    /// Bytes of its arguments and weights that it reads.
    pub bytes_read: Counted<Dim>,
    /// Bytes of results, or of arguments in place, that it writes.
    pub bytes_written: Counted<Dim>,
}

impl NodeCost {
    const NOTHING: Self = Self {
        work: Ok(Work {
            macs: Dim::ZERO,
            flops: Dim::ZERO,
        }),
        bytes_read: Ok(Dim::ZERO),
        bytes_written: Ok(Dim::ZERO),
    };

    fn unknown(reason: &str) -> Self {
        Self {
            work: Err(reason.into()),
            bytes_read: Err(reason.into()),
            bytes_written: Err(reason.into()),
        }
    }
}

/// Cost of `node`, once the types of all values are known.
///
/// A multiplication that is added to a sum counts two operations; a bias, which the sum starts
/// from, none. See [`Cost`] for the rest. Traffic is the least that a call needs: each argument
/// read once and each result written once, whatever caches do.
pub fn node_cost(types: &mut Propagator<'_>, graph: &Graph, node: NodeId) -> NodeCost {
    let view = graph.node(node);
    if !matches!(
        view.op(),
        Op::CallFunction | Op::CallMethod | Op::CallModule
    ) {
        return NodeCost::NOTHING;
    }
    let result = types.value(node).clone();
    if let Some(reason) = result.unknown_reason() {
        return NodeCost::unknown(reason);
    }
    match types.bind(graph, view) {
        Ok((found, call)) => of_call(found, &call, &result),
        Err(failure) => NodeCost::unknown(&failure.to_string()),
    }
}

pub(super) fn of_call(found: Found, call: &Call<'_>, result: &Value) -> NodeCost {
    let given: Vec<&Tensor> = {
        let mut given = Vec::new();
        let args = call.args.iter().flatten().chain(&call.rest);
        args.for_each(|arg| arg.for_each_tensor(&mut |tensor| given.push(tensor)));
        given
    };
    let is_given = |tensor: &Tensor| given.iter().any(|own| own.storage == tensor.storage);
    let mut fresh = Dim::ZERO;
    let mut made = false;
    let mut reused = Dim::ZERO;
    result.for_each_tensor(&mut |tensor| {
        if is_given(tensor) {
            reused = reused.clone() + tensor.size_bytes();
        } else {
            made = true;
            fresh = fresh.clone() + tensor.size_bytes();
        }
    });
    let cost = found.entry.rule.cost;
    let writes = writes_in_place(found, call);
    if !made && !writes && !matches!(result, Value::None) {
        // A view, the argument itself, or a number.
        return NodeCost::NOTHING;
    }
    if matches!(result, Value::None) && !matches!(cost, Cost::Move) {
        return NodeCost::NOTHING;
    }
    let written = match result {
        // `x[i] = v` writes as much as `v` has.
        Value::None => given.last().map_or(Dim::ZERO, |tensor| tensor.size_bytes()),
        _ if writes => fresh + reused,
        _ => fresh,
    };
    NodeCost {
        work: work(cost, call, result),
        bytes_read: Ok(read(found, &given, &written)),
        bytes_written: Ok(written),
    }
}

/// Whether a call writes to its first argument.
fn writes_in_place(found: Found, call: &Call<'_>) -> bool {
    let flag = |name: &str| {
        call.signature
            .position(name)
            .map(|_| call.flag(name, false))
    };
    let in_place = found.in_place || call.out.is_some() || flag("inplace") == Some(Ok(true));
    // A dropout in evaluation does nothing, in place or not.
    let idle = flag("training") == Some(Ok(false)) && call.signature.position("p").is_some();
    let fills = found.entry.rule.names.contains("fill_")
        || found.entry.rule.names.contains("copy_")
        || found.entry.rule.names.contains("zero_")
        || found.entry.rule.names.contains("normal_");
    (in_place || fills) && !idle
}

/// Bytes of arguments, a tensor given twice counted once. An operator that picks elements reads as
/// many as it writes, and its indices.
fn read(found: Found, given: &[&Tensor], written: &Dim) -> Dim {
    if matches!(found.entry.rule.cost, Cost::Gather) {
        let indices = given
            .iter()
            .filter(|t| super::promotion::kind(t.dtype) == Some(super::Kind::Int));
        return indices.fold(written.clone(), |sum, t| sum + distinct_bytes(t));
    }
    let mut seen: Vec<&Tensor> = Vec::new();
    for tensor in given {
        if !seen.contains(tensor) {
            seen.push(tensor);
        }
    }
    seen.into_iter()
        .fold(Dim::ZERO, |sum, tensor| sum + distinct_bytes(tensor))
}

/// Bytes of the different elements of a tensor: those that a broadcast repeats count once.
fn distinct_bytes(tensor: &TensorType) -> Dim {
    let Some(strides) = tensor.stride_list() else {
        return tensor.size_bytes();
    };
    let sizes = tensor.shape.iter().zip(&strides);
    let distinct = sizes
        .filter(|(_, stride)| !stride.is(0))
        .map(|(size, _)| size);
    Dim::product(distinct) * Dim::Known(element_bytes(tensor.dtype))
}

fn work(cost: Cost, call: &Call<'_>, result: &Value) -> Counted<Work> {
    let numbers = |count: Dim, each: u32| Work {
        macs: Dim::ZERO,
        flops: count * Dim::Known(i64::from(each)),
    };
    let reason = || Box::<str>::from("the arithmetic of this operator is not counted");
    match cost {
        Cost::Free | Cost::Move | Cost::Gather => Ok(numbers(Dim::ZERO, 0)),
        Cost::PerOutput(each) => {
            let mut count = Dim::ZERO;
            result.for_each_tensor(&mut |tensor| count = count.clone() + tensor.numel());
            Ok(numbers(count, each))
        }
        Cost::PerInput(each) => {
            let mut first = None;
            let args = call.args.iter().flatten().chain(&call.rest);
            args.for_each(|arg| arg.for_each_tensor(&mut |t| first = first.or(Some(t))));
            first
                .map(|tensor| numbers(tensor.numel(), each))
                .ok_or_else(reason)
        }
        Cost::Macs(count) => count(call, result)
            .map(|macs| Work {
                flops: macs.clone() * Dim::Known(2),
                macs,
            })
            .ok_or_else(reason),
        Cost::By(count) => count(call, result).ok_or_else(reason),
        Cost::Unknown => Err(reason()),
    }
}

/// Live range of a piece of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The piece of memory.
    pub storage: Storage,
    /// Its size in bytes.
    pub bytes: i64,
    /// The node that made it.
    pub from: NodeId,
    /// The last node that uses a value lying in it.
    pub to: NodeId,
}

/// Memory held while a graph runs, node by node, weights aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// The most bytes held at once.
    pub bytes: i64,
    /// The node at which it is.
    pub at: Option<NodeId>,
    /// Bytes held while each node runs, in order.
    pub held: Vec<(NodeId, i64)>,
    /// Every piece of memory, in the order in which they are made.
    pub lifetimes: Vec<Lifetime>,
    /// Nodes whose memory is not in it, since nothing is known of their values, or sizes depend
    /// on symbols.
    pub unknown: Vec<NodeId>,
}

/// Memory held while each node of `graph` runs in order, where a value is freed after its last use,
/// views keep their storage, and a value written in place keeps its own. Inputs are held to the
/// end, as their owner does.
///
/// Memory that an operator allocates and frees while it runs is not in it.
#[must_use]
pub fn peak(types: &Propagator<'_>, graph: &Graph) -> Peak {
    let order: Vec<NodeId> = graph.nodes().collect();
    let mut place: SecondaryMap<NodeId, usize> = SecondaryMap::with_capacity(graph.id_bound());
    for (at, &node) in order.iter().enumerate() {
        place.set(node, at);
    }
    let weights = types.weight_count();
    let mut answer = Peak::default();
    let mut at_of: Vec<Option<usize>> = vec![None; types.storage_count()];
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for (at, &node) in order.iter().enumerate() {
        let value = types.value(node);
        if value.unknown_reason().is_some() {
            answer.unknown.push(node);
        }
        let last = match graph.node(node).op() {
            Op::Placeholder | Op::Output => order.len() - 1,
            _ => graph
                .users(node)
                .map(|user| place[user])
                .max()
                .unwrap_or(at),
        };
        let mut symbolic = false;
        value.for_each_tensor(&mut |tensor| {
            let index = tensor.storage.index();
            if index < weights || index >= at_of.len() {
                return;
            }
            if let Some(known) = at_of[index] {
                let span: &mut (usize, usize) = &mut spans[known];
                span.1 = span.1.max(last);
                return;
            }
            let Some(bytes) = tensor.size_bytes().known() else {
                symbolic = true;
                return;
            };
            at_of[index] = Some(spans.len());
            spans.push((at, last));
            answer.lifetimes.push(Lifetime {
                storage: tensor.storage,
                bytes,
                from: node,
                to: node,
            });
        });
        if symbolic {
            answer.unknown.push(node);
        }
    }
    let mut change = vec![0_i64; order.len() + 1];
    for (lifetime, &(from, to)) in answer.lifetimes.iter_mut().zip(&spans) {
        lifetime.to = order[to];
        change[from] += lifetime.bytes;
        change[to + 1] -= lifetime.bytes;
    }
    let mut held = 0;
    for (&node, change) in order.iter().zip(&change) {
        held += change;
        answer.held.push((node, held));
        if held > answer.bytes {
            (answer.bytes, answer.at) = (held, Some(node));
        }
    }
    answer
}
