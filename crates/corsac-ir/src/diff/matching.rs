//! Matches the nodes of two graphs.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::arg::Arg;
use crate::entity::{NodeId, SecondaryMap};
use crate::graph::Graph;
use crate::op::Op;

/// Pairs of nodes that correspond, each node in one pair at most.
pub(super) fn match_nodes(before: &Graph, after: &Graph) -> Vec<(NodeId, NodeId)> {
    let mut matcher = Matcher {
        old: before.nodes().collect(),
        new: after.nodes().collect(),
        pairs: Vec::new(),
    };
    let (old, new) = (computations(before), computations(after));
    matcher.by(
        |id| (old[id], before.node(id).name()),
        |id| (new[id], after.node(id).name()),
    );
    matcher.by(|id| old[id], |id| new[id]);
    matcher.by(|id| named_call(before, id), |id| named_call(after, id));
    matcher.by(|id| named(before, id), |id| named(after, id));
    matcher.by(|id| call(before, id), |id| call(after, id));
    matcher.pairs
}

fn named_call(graph: &Graph, id: NodeId) -> (&str, Op, &str) {
    let node = graph.node(id);
    (node.name(), node.op(), node.target_name())
}

fn named(graph: &Graph, id: NodeId) -> (&str, Op) {
    (graph.node(id).name(), graph.node(id).op())
}

fn call(graph: &Graph, id: NodeId) -> (Op, &str) {
    (graph.node(id).op(), graph.node(id).target_name())
}

/// Nodes of both graphs that are not paired yet, and the pairs.
struct Matcher {
    old: Vec<NodeId>,
    new: Vec<NodeId>,
    pairs: Vec<(NodeId, NodeId)>,
}

impl Matcher {
    /// Pairs nodes with equal keys, in order.
    fn by<K: Hash + Eq>(&mut self, old_key: impl Fn(NodeId) -> K, new_key: impl Fn(NodeId) -> K) {
        let mut waiting: FxHashMap<K, Vec<NodeId>> = FxHashMap::default();
        for &id in self.new.iter().rev() {
            waiting.entry(new_key(id)).or_default().push(id);
        }
        let mut taken = FxHashSet::default();
        self.old.retain(|&id| {
            let found = waiting.get_mut(&old_key(id)).and_then(Vec::pop);
            if let Some(other) = found {
                self.pairs.push((id, other));
                taken.insert(other);
            }
            found.is_none()
        });
        self.new.retain(|id| !taken.contains(id));
    }
}

/// A hash of the computation of each node: opcode, target and arguments, with the nodes among them
/// by their own hashes. Hash collisions only make a diff harder to read: nodes of a pair
/// are compared afterwards.
fn computations(graph: &Graph) -> SecondaryMap<NodeId, u64> {
    let mut hashes: SecondaryMap<NodeId, u64> = SecondaryMap::with_capacity(graph.id_bound());
    for id in graph.nodes() {
        let node = graph.node(id);
        let mut hasher = FxHasher::default();
        (node.op(), node.target_name()).hash(&mut hasher);
        for arg in node.args() {
            hash_arg(graph, &hashes, arg, &mut hasher);
        }
        for (key, arg) in node.kwargs() {
            graph.text(*key).hash(&mut hasher);
            hash_arg(graph, &hashes, arg, &mut hasher);
        }
        hashes.set(id, hasher.finish());
    }
    hashes
}

fn hash_arg(graph: &Graph, hashes: &SecondaryMap<NodeId, u64>, arg: &Arg, hasher: &mut FxHasher) {
    std::mem::discriminant(arg).hash(hasher);
    match arg {
        Arg::None | Arg::Ellipsis => {}
        Arg::Bool(value) => value.hash(hasher),
        Arg::Int(value) => value.hash(hasher),
        Arg::BigInt(value) => value.hash(hasher),
        Arg::Float(value) => value.to_bits().hash(hasher),
        Arg::Complex(value) => (value.0.to_bits(), value.1.to_bits()).hash(hasher),
        Arg::Str(text) => graph.text(*text).hash(hasher),
        Arg::Bytes(bytes) => bytes.hash(hasher),
        Arg::DType(value) => value.hash(hasher),
        Arg::Device(value) => value.hash(hasher),
        Arg::Layout(value) => value.hash(hasher),
        Arg::MemoryFormat(value) => value.hash(hasher),
        Arg::Node(id) => hashes[*id].hash(hasher),
        Arg::NamedTuple(named) => graph.external_name(named.0).hash(hasher),
        Arg::Opaque(value) => graph.external_name(*value).hash(hasher),
        Arg::Tuple(items) | Arg::List(items) | Arg::Slice(items) | Arg::Range(items) => {
            items.len().hash(hasher);
        }
        Arg::Dict(entries) => entries.len().hash(hasher),
    }
    arg.for_each_part(&mut |part| hash_arg_dyn(graph, hashes, part, hasher));
}

/// One closure type for every depth.
fn hash_arg_dyn(
    graph: &Graph,
    hashes: &SecondaryMap<NodeId, u64>,
    arg: &Arg,
    hasher: &mut FxHasher,
) {
    hash_arg(graph, hashes, arg, hasher);
}

/// The largest set of `nodes` that come in the order of `graph`, as they do here.
pub(super) fn longest_increasing(nodes: &[NodeId], graph: &Graph) -> SecondaryMap<NodeId, bool> {
    // For each length, the position in `nodes` of the smallest last node of such a sequence.
    let mut tails: Vec<usize> = Vec::new();
    let mut previous: Vec<Option<usize>> = Vec::with_capacity(nodes.len());
    for (at, &id) in nodes.iter().enumerate() {
        let length = tails.partition_point(|&tail| graph.is_before(nodes[tail], id));
        previous.push(length.checked_sub(1).map(|shorter| tails[shorter]));
        if length == tails.len() {
            tails.push(at);
        } else {
            tails[length] = at;
        }
    }
    let mut chosen = SecondaryMap::with_capacity(graph.id_bound());
    let mut next = tails.last().copied();
    while let Some(at) = next {
        chosen.set(nodes[at], true);
        next = previous[at];
    }
    chosen
}
