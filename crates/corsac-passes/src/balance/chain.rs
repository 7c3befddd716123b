//! The chain of a graph: its calls in order, with what crosses between them.

use corsac_ir::{Graph, NodeId, Op, SecondaryMap};
use corsac_ops::shape::Value;
use corsac_ops::{ClassId, Host};
use rustc_hash::FxHashMap;

use super::{Buffer, Chain, WeightBytes};
use crate::effect_order::{Place, Places};
use crate::error::PassError;

/// Facts about the values of a graph.
pub struct Facts<'f> {
    /// The value of each node.
    pub value: &'f dyn Fn(NodeId) -> &'f Value,
    /// The weights that each node is or, as a call of a module, uses, by index.
    pub weights: &'f dyn Fn(NodeId) -> &'f [u32],
    /// The sizes of all weights. Tensors with lower storage numbers than there are weights are
    /// weights.
    pub sizes: &'f [WeightBytes],
}

/// The values that may cross a border between parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// All values.
    Anything,
    /// Tensors only, as between processes.
    Tensors,
}

/// Counts for each border, from changes at those where a range begins and behind its end.
struct Ranges(Vec<i64>);

impl Ranges {
    fn add(&mut self, first: usize, last: usize, amount: i64) {
        if first <= last {
            self.0[first] += amount;
            self.0[last + 1] -= amount;
        }
    }

    fn sums(self) -> impl Iterator<Item = i64> {
        let changes = self.0.into_iter();
        changes.scan(0, |sum, change| {
            *sum += change;
            Some(*sum)
        })
    }
}

impl Chain {
    /// The calls of `graph`, and their number in the chain; times are to be filled in.
    ///
    /// A value crosses each border between the call that makes it and the last one that uses it,
    /// the result of the program among the uses. Inputs and attributes are at hand in all parts,
    /// and cross none.
    ///
    /// A part may not end
    /// - between two uses of an input or an attribute that some call writes to: each part could
    ///   have its own copy, and a later call of the program would read the wrong one;
    /// - before a write to a value of which two names cross, since they would no longer share
    ///   memory;
    /// - where something crosses that is not of the kind `crossing`.
    ///
    /// # Errors
    /// [`PassError::UsedBeforeDefined`] if a node uses one that comes after it.
    pub fn of_graph(
        graph: &Graph,
        host: &dyn Host,
        facts: &Facts<'_>,
        crossing: Crossing,
    ) -> Result<(Self, Vec<NodeId>), PassError> {
        let is_tensor = |node| matches!((facts.value)(node), Value::Tensor(_));
        let places = Places::with_tensors(graph, host, is_tensor)?;
        let is_call = |op| matches!(op, Op::CallFunction | Op::CallMethod | Op::CallModule);
        let calls: Vec<NodeId> = graph
            .nodes()
            .filter(|&node| is_call(graph.node(node).op()))
            .collect();
        let len = calls.len();
        // Nodes that are no calls are used where the output is.
        let mut number: SecondaryMap<NodeId, usize> = SecondaryMap::with_capacity(graph.id_bound());
        for node in graph.nodes() {
            number.set(node, len);
        }
        for (at, &call) in calls.iter().enumerate() {
            number.set(call, at);
        }
        let users = |node| graph.users(node).map(|user| number[user]);
        let mut chain = Self {
            work: vec![0.0; len],
            sizes: facts.sizes.to_vec(),
            buffers: buffers(graph, facts, &number, len),
            ..Self::default()
        };
        let mut bytes = Ranges(vec![0; len + 2]);
        let mut barred = Ranges(vec![0; len + 2]);
        for (at, &call) in calls.iter().enumerate() {
            let attributes = graph
                .inputs(call)
                .filter(|&input| graph.node(input).op() == Op::GetAttr);
            let mut weights: Vec<u32> = attributes
                .chain([call])
                .flat_map(|node| (facts.weights)(node))
                .copied()
                .collect();
            weights.sort_unstable();
            weights.dedup();
            chain.weights.push(weights);
            let Some(last) = users(call).max() else {
                continue;
            };
            let value = (facts.value)(call);
            bytes.add(at + 1, last, size_bytes(value));
            // Each part of a region of autocast enters it anew.
            let is_mode = || graph.node(call).target_name().ends_with("_enter_autocast");
            if crossing == Crossing::Tensors && !matches!(value, Value::Tensor(_)) && !is_mode() {
                barred.add(at + 1, last, 1);
            }
        }
        bar_writes(graph, &places, facts, &number, &mut barred);
        chain.crossing = bytes.sums().take(len + 1).map(|b| b as u64).collect();
        chain.may_end = barred.sums().take(len + 1).map(|bars| bars == 0).collect();
        for end in [0, len] {
            chain.crossing[end] = 0;
            chain.may_end[end] = true;
        }
        Ok((chain, calls))
    }
}

/// Bytes of all tensors of a value; those of unknown size count nothing.
fn size_bytes(value: &Value) -> i64 {
    let mut sum = 0_i64;
    value.for_each_tensor(&mut |tensor| {
        sum = sum.saturating_add(tensor.size_bytes().known().unwrap_or(0));
    });
    sum
}

/// The memory of activations: each storage from the call that makes it to the last that uses it.
fn buffers(
    graph: &Graph,
    facts: &Facts<'_>,
    number: &SecondaryMap<NodeId, usize>,
    len: usize,
) -> Vec<Buffer> {
    let mut buffers: Vec<Buffer> = Vec::new();
    let mut known: FxHashMap<usize, usize> = FxHashMap::default();
    for node in graph.nodes() {
        let used = || graph.users(node).map(|user| number[user]);
        let first = match graph.node(node).op() {
            Op::Placeholder | Op::GetAttr => used().min(),
            Op::CallFunction | Op::CallMethod | Op::CallModule => Some(number[node]),
            Op::Output => None,
        };
        let Some(first) = first.filter(|&first| first < len) else {
            continue;
        };
        let last = used().max().unwrap_or(first);
        (facts.value)(node).for_each_tensor(&mut |tensor| {
            let storage = tensor.storage.index();
            if storage < facts.sizes.len() {
                return;
            }
            let bytes = tensor.size_bytes().known().unwrap_or(0).max(0) as u64;
            let at = *known.entry(storage).or_insert(buffers.len());
            match buffers.get_mut(at) {
                Some(buffer) => {
                    buffer.first = buffer.first.min(first);
                    buffer.last = buffer.last.max(last);
                }
                None => buffers.push(Buffer { bytes, first, last }),
            }
        });
    }
    buffers
}

/// Bars the borders that a write does not permit.
fn bar_writes(
    graph: &Graph,
    places: &Places,
    facts: &Facts<'_>,
    number: &SecondaryMap<NodeId, usize>,
    barred: &mut Ranges,
) {
    let calls = barred.0.len() - 2;
    // The last write to each place.
    let mut written: FxHashMap<Place, usize> = FxHashMap::default();
    for (node, effects) in places.writers() {
        for place in effects.mutates.iter().flat_map(|&value| places.of(value)) {
            written.insert(place, number[node]);
        }
    }
    if written.is_empty() {
        return;
    }
    // The uses of inputs and attributes that are written to; the live ranges of other values.
    let mut uses: FxHashMap<Place, (usize, usize)> = FxHashMap::default();
    let mut names: FxHashMap<ClassId, Vec<(usize, i64)>> = FxHashMap::default();
    for node in graph.nodes() {
        let Some(last) = graph.users(node).map(|user| number[user]).max() else {
            continue;
        };
        for place in places.of(node) {
            let Some(&write) = written.get(&place) else {
                continue;
            };
            let Place::Class(class) = place else {
                let uses_of = graph.users(node).chain([node]).map(|node| number[node]);
                for at in uses_of.filter(|&at| at < calls) {
                    let span = uses.entry(place).or_insert((at, at));
                    *span = (span.0.min(at), span.1.max(at));
                }
                continue;
            };
            let mut tensors = 0;
            (facts.value)(node).for_each_tensor(&mut |_| tensors += 1);
            let (first, last) = (number[node] + 1, last.min(write));
            if first <= last {
                let ends = names.entry(class).or_default();
                ends.extend([(first, tensors.max(1)), (last + 1, -tensors.max(1))]);
            }
        }
    }
    for (first, last) in uses.into_values() {
        barred.add(first + 1, last, 1);
    }
    for mut ends in names.into_values() {
        ends.sort_unstable();
        let mut alive = 0;
        for pair in ends.windows(2) {
            alive += pair[0].1;
            if alive > 1 && pair[0].0 < pair[1].0 {
                barred.add(pair[0].0, pair[1].0 - 1, 1);
            }
        }
    }
}
