//! Splits a joint graph into a forward and a backward graph.
//!
//! A joint graph computes results and their gradients. The partition decides which of its nodes
//! belong to the forward pass and which to the backward pass, which values the first *saves* for
//! the second, and which ones the second recomputes. The values saved are those that take the
//! fewest bytes, and of several such sets the one for which recomputation takes the least work.
//!
//! Method: nodes that depend on tangents, the incoming gradients, belong to the backward pass; the
//! other values that these read are *demanded*. Everything that a demanded value is computed from
//! is part of a [network](crate::min_cut): a value has a vertex for its operands being available
//! and one for the value being available, with an arc between them that costs its bytes; to cut the
//! arc is to save the value. A recomputed node is wholly on the side of the sink, and its operands
//! have to be available too. Nodes that cannot or should not be recomputed are connected to the
//! source. The cheapest cut is then the cheapest set.
//!
//! Cheap nodes are recomputed ([`again`]): views, elementwise functions, fills, indexing and
//! reductions, unless their results take less than a fourth of the bytes they are computed from.
//! Calls that use random numbers, writes, products, convolutions, attention, norms and unknown
//! calls run once. Of a checkpointed region ([`Policy::Recompute`]) only the generator state of its
//! random numbers is saved.
//!
//! Equal nodes are merged, so that their value is not saved twice ([`Partition::merged`]); no value
//! that only results need is merged with one that gradients need.
//!
//! No more bytes are saved than by partitioners that may recompute the same nodes or fewer: theirs
//! are cuts of the same network. That holds for `torch._functorch.partitioners`, whose
//! `default_partition` recomputes nothing, and whose `min_cut_rematerialization_partition` has the
//! list of [`again`] with bounds for nodes that are far apart, in long chains, or written to memory
//! in the backward pass, and prices that grow with the distance. Reference for the cut: the
//! docstrings there, and H. Horace, "Min-cut optimal(*) recomputation (i.e. activation
//! checkpointing) with AOTAutograd", dev-discuss.pytorch.org, 2022.
//!
//! Needs: a graph in which definitions come before uses, sizes of values, and the roles of its
//! inputs.
//!
//! Preserves: the graph, which is only read.
//!
//! ```
//! use corsac_ir::{Arg, Graph, SecondaryMap};
//! use corsac_ops::Unhosted;
//! use corsac_passes::joint::{Effort, Role, Value, partition};
//!
//! // y = exp(cos(x)); its gradient needs cos(x), and y, which is computed again from it.
//! let mut graph = Graph::new();
//! let x = graph.placeholder("x")?;
//! let [cos, exp, mul] = ["cos.default", "exp.default", "mul.Tensor"]
//!     .map(|name| graph.function(&format!("torch.ops.aten.{name}")));
//! let a = graph.call_function(cos, [x.into()])?;
//! let y = graph.call_function(exp, [a.into()])?;
//! let tangent = graph.placeholder("tangent")?;
//! let b = graph.call_function(mul, [tangent.into(), y.into()])?;
//! let c = graph.call_function(mul, [b.into(), a.into()])?;
//! graph.output(Arg::tuple([y.into(), c.into()])?)?;
//!
//! let mut values = SecondaryMap::new();
//! for node in graph.nodes() {
//!     let role = if node == tangent { Role::Tangent } else { Role::Value };
//!     values.set(node, Value { bytes: 4, role, ..Value::default() });
//! }
//! let parts = partition(&graph, &Unhosted, &values, 1, Effort::Balanced)?;
//! assert_eq!((&parts.saved[..], parts.saved_bytes), (&[a][..], 4));
//! assert_eq!(parts.recomputed, [y]);
//! assert_eq!(parts.backward, [y, b, c]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod again;
mod order;
#[cfg(test)]
mod tests;

use corsac_ir::{Arg, Graph, NodeId, Op, SecondaryMap};
use corsac_ops::{Effects, Host};
use fixedbitset::FixedBitSet;
use smallvec::SmallVec;
use thiserror::Error;

use crate::analysis::Analysis;
use crate::common_subexpressions::CommonSubexpressions;
use crate::error::PassError;
use crate::min_cut::{Capacity, Network, Vertex};

use again::{Again, Class};

/// The kind of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A tensor.
    #[default]
    Tensor,
    /// A whole number that is known when the program runs, such as a size.
    Size,
    /// Another number or truth value that is known when the program runs.
    Number,
    /// Anything else, which cannot be saved: several values in one, or none.
    Other,
}

/// The origin of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It is computed, or an input of the forward pass.
    #[default]
    Value,
    /// It is an input of the forward pass that stays in memory anyway: saving it costs nothing.
    Parameter,
    /// It is an input of the backward pass only: an incoming gradient.
    Tangent,
}

/// The pass in which a node has to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// The one in which its value is used.
    #[default]
    ByUse,
    /// It was traced in the backward pass, and runs there if it uses random numbers or has effects.
    Backward,
    /// It runs only in the forward pass.
    OnlyForward,
    /// It runs only in the backward pass.
    OnlyBackward,
}

/// The choice of the user about saving a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// No choice: the partition decides.
    #[default]
    Free,
    /// It is saved, not recomputed.
    Save,
    /// It is recomputed, whatever the cost, and not saved.
    Recompute,
}

/// Properties of a value that a partition depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// Size of its elements; of several values in one, the sum.
    pub bytes: u64,
    /// Its kind.
    pub kind: Kind,
    /// Its origin.
    pub role: Role,
    /// The pass that computes it.
    pub time: Time,
    /// The choice of the user.
    pub policy: Policy,
    /// The number of the checkpointed region that it is computed in. Values that a later region
    /// reads are saved.
    pub region: Option<u32>,
    /// Whether its gradient has a hook, which may need the value before it could be recomputed.
    pub hooked: bool,
    /// Whether it is an input that is written to after the forward pass.
    pub overwritten: bool,
}

/// Why a graph cannot be split.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JointError {
    /// The graph is not sorted.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// There is no output, or it is no flat sequence of values.
    #[error("the graph returns no flat sequence of values")]
    NoOutputs,
    /// There are fewer outputs than those of the forward pass.
    #[error("the graph has {given} outputs, and {expected} are said to be of the way forward")]
    TooFewOutputs {
        /// Number of outputs.
        given: usize,
        /// Number of outputs of the forward pass.
        expected: usize,
    },
    /// The forward pass needs a value that exists only in the backward pass.
    #[error("{node} is needed on the way forward and depends on a tangent")]
    NeedsTangent {
        /// The name of the node.
        node: String,
    },
    /// The backward pass writes to a value of the forward pass.
    #[error("{node} runs on the way back and writes to {written}, which is not made there")]
    WritesBack {
        /// The name of the node.
        node: String,
        /// The name of the node that it writes to.
        written: String,
    },
    /// The backward pass needs a value that can be neither saved nor recomputed.
    #[error("a value that the way back needs can neither be saved nor be computed again")]
    NotSaved,
}

/// A joint graph split in two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// Nodes equal to an earlier one, with that one, which is used instead.
    pub merged: Vec<(NodeId, NodeId)>,
    /// Tensors that the forward pass saves, in the order of the graph; inputs may be among them.
    pub saved: Vec<NodeId>,
    /// Numbers that it saves.
    pub saved_numbers: Vec<NodeId>,
    /// Size of `saved`, without parameters.
    pub saved_bytes: u64,
    /// Calls and attributes of the forward pass, in the order in which they run.
    pub forward: Vec<NodeId>,
    /// Calls and attributes of the backward pass, in the order in which they run.
    pub backward: Vec<NodeId>,
    /// Calls that are in both, in the order of the graph.
    pub recomputed: Vec<NodeId>,
    /// Those of `recomputed` that use random numbers: the second call has to start from the same
    /// generator state as the first, which is saved besides.
    pub redrawn: Vec<NodeId>,
}

/// The nodes that may be recomputed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// Cheap nodes, but no function such as an exponential whose result the backward pass needs in
    /// memory, since a product or the like reads it: it would take another pass over memory.
    #[default]
    Balanced,
    /// All cheap nodes.
    FewestBytes,
}

/// The value of an output: a node, or `None` for a constant.
type Leaf = Option<NodeId>;

/// Splits a joint graph. The graph returns a flat tuple or list, of which the first
/// `forward_outputs` are results of the forward pass, and the rest of the backward pass.
///
/// # Errors
/// [`JointError`], if the graph cannot be split.
pub fn partition(
    graph: &Graph,
    host: &dyn Host,
    values: &SecondaryMap<NodeId, Value>,
    forward_outputs: usize,
    effort: Effort,
) -> Result<Partition, JointError> {
    let mut joint = Joint::of(graph, host, values, forward_outputs)?;
    if effort == Effort::Balanced {
        joint.keep_functions();
    }
    let chosen = joint.choose()?;
    Ok(joint.parted(&chosen))
}

/// A joint graph. Nodes are numbered in its order.
struct Joint<'g> {
    graph: &'g Graph,
    nodes: Vec<NodeId>,
    number: SecondaryMap<NodeId, u32>,
    values: Vec<Value>,
    /// The inputs of each node, after merging.
    inputs: Vec<SmallVec<[u32; 4]>>,
    /// By node: the earlier node that it equals.
    merged: Vec<Option<u32>>,
    /// By node: the cost of recomputing it.
    again: Vec<Again>,
    /// By node: the cost class of its target.
    classes: Vec<Class>,
    /// Nodes with effects, which have to run.
    impure: FixedBitSet,
    /// Nodes that belong to the backward pass.
    back: FixedBitSet,
    /// Nodes that results or effects of the forward pass need.
    ahead: FixedBitSet,
    /// Nodes that gradients or effects of the backward pass need.
    behind: FixedBitSet,
    /// Values whose memory the forward pass writes to.
    stale: FixedBitSet,
    /// Nodes that the forward pass has to compute, and those that the backward pass has to.
    forward_roots: Vec<u32>,
    backward_roots: Vec<u32>,
}

/// The values to save.
struct Chosen {
    saved: FixedBitSet,
}

/// A price above those of all values together, for values that should be saved only as a last
/// resort.
const STALE: u64 = 1 << 46;
/// No value costs more than this, so that prices can be summed up.
const DEAREST: u64 = 1 << 45;
/// Prices of numbers: of a size next to nothing, of others more than recomputing them is likely to
/// cost.
const SIZE: u64 = 1;
const NUMBER: u64 = 1_000_000;
/// A byte costs more than all work together: work decides only between sets of the same bytes.
const WORK_BITS: u32 = 48;

fn price(bytes: u64, work: u64) -> Capacity {
    let most = 1 << (WORK_BITS - 21);
    Capacity::of((u128::from(bytes) << WORK_BITS) + u128::from(work.min(most)))
}

impl<'g> Joint<'g> {
    fn of(
        graph: &'g Graph,
        host: &dyn Host,
        values: &SecondaryMap<NodeId, Value>,
        forward_outputs: usize,
    ) -> Result<Self, JointError> {
        let outputs = outputs_of(graph)?;
        if outputs.len() < forward_outputs {
            return Err(JointError::TooFewOutputs {
                given: outputs.len(),
                expected: forward_outputs,
            });
        }
        let analysis = Analysis::of_graph(graph, host)?;
        let nodes = analysis.nodes.clone();
        let mut number = SecondaryMap::with_capacity(graph.id_bound());
        for (at, &node) in (0_u32..).zip(&nodes) {
            number.set(node, at);
        }
        let len = nodes.len();
        let inputs = nodes.iter().map(|&node| {
            let mut own: SmallVec<[u32; 4]> = SmallVec::new();
            graph.inputs(node).for_each(|n| own.push(*number.get(n)));
            own
        });
        let mut joint = Self {
            graph,
            values: nodes.iter().map(|&node| *values.get(node)).collect(),
            inputs: inputs.collect(),
            nodes,
            number,
            merged: vec![None; len],
            again: Vec::with_capacity(len),
            classes: Vec::with_capacity(len),
            impure: FixedBitSet::with_capacity(len),
            back: FixedBitSet::with_capacity(len),
            ahead: FixedBitSet::with_capacity(len),
            behind: FixedBitSet::with_capacity(len),
            stale: FixedBitSet::with_capacity(len),
            forward_roots: Vec::new(),
            backward_roots: Vec::new(),
        };
        let (forward, backward) = outputs.split_at(forward_outputs);
        joint.place(&analysis, forward, backward)?;
        joint.merge(host)?;
        joint.classify(&analysis);
        joint.mark_boundaries();
        joint.mark_stale(&analysis)?;
        Ok(joint)
    }

    /// Finds the nodes that have effects, and those that belong to the backward pass.
    fn place(
        &mut self,
        analysis: &Analysis,
        forward: &[Leaf],
        backward: &[Leaf],
    ) -> Result<(), JointError> {
        for (at, node, effects) in analysis.walk() {
            let index = at as usize;
            let value = self.values[index];
            let impure = is_impure(effects) && self.graph.node(node).op() != Op::Output;
            let back = match value.time {
                Time::OnlyForward => false,
                Time::OnlyBackward => true,
                Time::Backward if impure || effects.random => true,
                Time::Backward | Time::ByUse => {
                    value.role == Role::Tangent
                        || self.inputs[index]
                            .iter()
                            .any(|&n| self.back.contains(n as usize))
                }
            };
            self.impure.set(index, impure);
            self.back.set(index, back);
        }
        for (at, _, effects) in analysis.walk() {
            // Unused random numbers are generated all the same, so that the next ones do not
            // change.
            let runs = self.impure.contains(at as usize) || effects.random;
            if runs && self.back.contains(at as usize) {
                self.backward_roots.push(at);
            } else if runs {
                self.forward_roots.push(at);
            }
        }
        let number = &self.number;
        for (roots, leaves) in [
            (&mut self.forward_roots, forward),
            (&mut self.backward_roots, backward),
        ] {
            roots.extend(leaves.iter().flatten().map(|&node| *number.get(node)));
        }
        self.find_needed()
    }

    /// Finds the nodes that the forward pass and the backward pass need.
    fn find_needed(&mut self) -> Result<(), JointError> {
        self.ahead = self.ancestors(&self.forward_roots, |_| true);
        self.behind = self.ancestors(&self.backward_roots, |_| true);
        match self.ahead.intersection(&self.back).next() {
            None => Ok(()),
            Some(at) => Err(JointError::NeedsTangent {
                node: self.name(at),
            }),
        }
    }

    /// `roots` and the nodes that they are computed from, through nodes for which `enters` holds.
    fn ancestors(&self, roots: &[u32], enters: impl Fn(usize) -> bool) -> FixedBitSet {
        let mut found = FixedBitSet::with_capacity(self.nodes.len());
        let mut open: Vec<u32> = Vec::new();
        for &root in roots {
            if !found.put(root as usize) {
                open.push(root);
            }
        }
        while let Some(node) = open.pop() {
            if !enters(node as usize) {
                continue;
            }
            for &input in &self.inputs[node as usize] {
                if !found.put(input as usize) {
                    open.push(input);
                }
            }
        }
        found
    }

    /// Merges equal nodes.
    fn merge(&mut self, host: &dyn Host) -> Result<(), JointError> {
        let (merged, _) = CommonSubexpressions::default().find(self.graph, host)?;
        for (gone, kept) in merged {
            let (gone, kept) = (*self.number.get(gone), *self.number.get(kept));
            let (a, b) = (self.values[gone as usize], self.values[kept as usize]);
            let alike = self.behind.contains(gone as usize) == self.behind.contains(kept as usize)
                && self.back.contains(gone as usize) == self.back.contains(kept as usize)
                && (a.policy, a.region) == (b.policy, b.region);
            if alike {
                self.merged[gone as usize] = Some(kept);
            }
        }
        let is_late: Vec<u32> = (0..self.nodes.len() as u32)
            .filter(|&at| self.merged[at as usize].is_some() && !self.ahead.contains(at as usize))
            .collect();
        for inputs in &mut self.inputs {
            for input in inputs {
                *input = self.merged[*input as usize].unwrap_or(*input);
            }
        }
        for roots in [&mut self.forward_roots, &mut self.backward_roots] {
            for root in roots {
                *root = self.merged[*root as usize].unwrap_or(*root);
            }
        }
        self.find_needed()?;
        // Values that the program itself computes again in the backward pass may be computed there.
        self.again = vec![Again::Never; self.nodes.len()];
        for at in is_late {
            if let Some(kept) = self.merged[at as usize] {
                self.again[kept as usize] = Again::Anyway;
            }
        }
        Ok(())
    }

    /// Finds the cost of recomputing each node.
    fn classify(&mut self, analysis: &Analysis) {
        let mut classes = again::Classes::default();
        for (at, node, effects) in analysis.walk() {
            let index = at as usize;
            let value = self.values[index];
            let view = self.graph.node(node);
            let class = classes.of(view, value.kind);
            self.classes.push(class);
            let is_call = !matches!(view.op(), Op::Placeholder | Op::Output);
            let drawn = effects.random || effects.unrepeatable;
            let only_ahead = value.time == Time::OnlyForward;
            self.again[index] = if !is_call || self.impure.contains(index) && !effects.opaque {
                Again::Never
            } else if view.op() == Op::GetAttr {
                Again::Anyway
            } else if value.policy == Policy::Recompute && !only_ahead {
                if effects.random {
                    Again::Redrawn
                } else {
                    Again::Anyway
                }
            } else if drawn || only_ahead || effects.opaque {
                Again::Never
            } else if !self.ahead.contains(index) || self.again[index] == Again::Anyway {
                // The forward pass does not compute it.
                if value.policy == Policy::Save {
                    Again::Never
                } else {
                    Again::Anyway
                }
            } else if value.policy == Policy::Save {
                Again::Never
            } else {
                let read = self.inputs[index].iter();
                let read: u64 = read.map(|&n| self.values[n as usize].bytes).sum();
                let direct = view.args().iter().filter_map(Arg::as_node);
                let direct = direct
                    .map(|n| self.values[*self.number.get(n) as usize].bytes)
                    .sum::<u64>();
                again::bounded(class, value.bytes, read, direct)
            };
        }
    }

    /// Excludes from recomputation functions whose results are read by expensive calls of the
    /// backward pass. PyTorch's partitioner excludes everything that such calls read, so that no
    /// more is saved than by it.
    fn keep_functions(&mut self) {
        for user in 0..self.nodes.len() {
            let view = self.graph.node(self.nodes[user]);
            let is_operator = view.target_name().starts_with("torch.ops.aten.");
            let takes_long = self.classes[user] == Class::Long && is_operator;
            let takes_long = takes_long && self.behind.contains(user);
            if !takes_long || self.ahead.contains(user) || again::is_fused_at_times(view) {
                continue;
            }
            for at in 0..self.inputs[user].len() {
                let mut read = self.inputs[user][at] as usize;
                loop {
                    let is_work = matches!(self.again[read], Again::Work(_));
                    if self.classes[read] == Class::Function && is_work {
                        self.again[read] = Again::Never;
                    }
                    match self.inputs[read].first() {
                        Some(&base) if again::is_plain_view(self.graph.node(self.nodes[read])) => {
                            read = base as usize;
                        }
                        _ => break,
                    }
                }
            }
        }
    }

    /// Saves values that a later checkpointed region reads from an earlier one, so that one region
    /// can be recomputed without the other.
    fn mark_boundaries(&mut self) {
        for user in 0..self.nodes.len() {
            let reader = self.values[user];
            for at in 0..self.inputs[user].len() {
                let read = self.inputs[user][at] as usize;
                let own = self.values[read];
                let later = matches!((own.region, reader.region), (Some(a), Some(b)) if a < b);
                let both = reader.policy == Policy::Recompute && own.policy == Policy::Recompute;
                // PyTorch's partitioner ignores items taken out of several results, and saves less.
                let is_item = self.graph.node(self.nodes[read]).calls("operator.getitem");
                if later && both && !is_item {
                    self.keep(read);
                }
            }
        }
        let mut read_again = FixedBitSet::with_capacity(self.nodes.len());
        for (user, value) in self.values.iter().enumerate() {
            if value.policy == Policy::Recompute {
                read_again.extend(self.inputs[user].iter().map(|&n| n as usize));
            }
        }
        for at in 0..self.nodes.len() {
            let value = self.values[at];
            if value.hooked && value.policy == Policy::Recompute && !read_again.contains(at) {
                self.keep(at);
            }
        }
    }

    fn keep(&mut self, at: usize) {
        self.values[at].policy = Policy::Save;
        if self.values[at].kind != Kind::Other {
            self.again[at] = Again::Never;
        }
    }

    /// Finds values whose memory the forward pass overwrites, so that they cannot be read later.
    /// Inputs are assumed to share no memory.
    fn mark_stale(&mut self, analysis: &Analysis) -> Result<(), JointError> {
        let inputs = (0..)
            .zip(&self.values)
            .filter(|(_, value)| value.overwritten);
        let mut written: Vec<u32> = inputs.map(|(at, _)| at).collect();
        for (at, effects) in analysis.special().filter(|(_, effects)| !effects.opaque) {
            for &value in &effects.mutates {
                let number = *self.number.get(value);
                if !self.back.contains(at as usize) {
                    written.push(number);
                } else if !self.back.contains(number as usize) {
                    return Err(JointError::WritesBack {
                        node: self.name(at as usize),
                        written: self.name(number as usize),
                    });
                }
            }
        }
        if written.is_empty() {
            return Ok(());
        }
        // Values that share memory, each with the representative of its set.
        let mut shares: Vec<u32> = (0..self.nodes.len() as u32).collect();
        let first = |shares: &mut Vec<u32>, mut at: u32| {
            while shares[at as usize] != at {
                shares[at as usize] = shares[shares[at as usize] as usize];
                at = shares[at as usize];
            }
            at
        };
        for (at, effects) in analysis.special().filter(|(_, effects)| !effects.opaque) {
            for &alias in &effects.aliases {
                let [a, b] = [at, *self.number.get(alias)].map(|own| first(&mut shares, own));
                shares[a as usize] = b;
            }
        }
        let written: Vec<u32> = written.iter().map(|&at| first(&mut shares, at)).collect();
        for at in 0..self.nodes.len() as u32 {
            let own = first(&mut shares, at);
            self.stale.set(at as usize, written.contains(&own));
        }
        Ok(())
    }

    /// Finds the cheapest set of values to save.
    fn choose(&self) -> Result<Chosen, JointError> {
        let len = self.nodes.len();
        let demanded = self.demanded();
        let list: Vec<u32> = demanded.ones().map(|at| at as u32).collect();
        let wanted = self.ancestors(&list, |_| true);
        let mut network = Network::new();
        // Vertices of a value: before and after its computation.
        let mut ends: Vec<Option<(Vertex, Vertex)>> = vec![None; len];
        for at in wanted.ones() {
            let price = self.price(at);
            let before = network.vertex();
            let after = if price.is_some() {
                network.vertex()
            } else {
                before
            };
            if let Some(price) = price {
                network.arc(before, after, price);
            }
            let computed = match self.again[at] {
                Again::Never => Capacity::UNLIMITED,
                Again::Anyway => Capacity::of(0),
                // The state of the generator is saved instead of the random numbers.
                Again::Redrawn => self::price(GENERATOR_BYTES, 1),
                Again::Work(work) => self::price(0, work),
            };
            network.arc(Network::SOURCE, before, computed);
            for &input in &self.inputs[at] {
                if let Some((_, after)) = ends[input as usize] {
                    network.arc(after, before, Capacity::UNLIMITED);
                }
            }
            if demanded.contains(at) {
                network.arc(after, Network::SINK, Capacity::UNLIMITED);
            }
            ends[at] = Some((before, after));
        }
        let cut = network.min_cut().ok_or(JointError::NotSaved)?;
        let mut saved = FixedBitSet::with_capacity(len);
        for (at, ends) in ends.iter().enumerate() {
            if let Some((before, after)) = *ends {
                saved.set(at, !cut.is_with_sink(before) && cut.is_with_sink(after));
            }
        }
        Ok(Chosen { saved })
    }

    /// Values that the backward pass reads and that do not belong to it.
    fn demanded(&self) -> FixedBitSet {
        let mut demanded = FixedBitSet::with_capacity(self.nodes.len());
        for &root in &self.backward_roots {
            demanded.set(root as usize, !self.back.contains(root as usize));
        }
        for at in self.behind.intersection(&self.back) {
            for &input in &self.inputs[at] {
                if !self.back.contains(input as usize) {
                    demanded.insert(input as usize);
                }
            }
        }
        demanded
    }

    /// The price of saving a value; `None` if it cannot be saved.
    fn price(&self, at: usize) -> Option<Capacity> {
        let value = self.values[at];
        // A value that cannot be recomputed, though the user chose so, has to be saved.
        if value.policy == Policy::Recompute && self.again[at] != Again::Never {
            return None;
        }
        let bytes = match value.kind {
            Kind::Other => return None,
            Kind::Size => SIZE,
            Kind::Number => NUMBER,
            Kind::Tensor if value.role == Role::Parameter => 0,
            Kind::Tensor => value.bytes.min(DEAREST),
        };
        let bytes = if self.stale.contains(at) {
            bytes + STALE
        } else {
            bytes
        };
        // Of a value and a view of it, the value is saved.
        let is_view = matches!(self.again[at], Again::Work(0) | Again::Anyway);
        Some(self::price(bytes, u64::from(is_view)))
    }

    fn name(&self, at: usize) -> String {
        self.graph.node(self.nodes[at]).name().to_owned()
    }
}

/// State of PyTorch's CPU generator (a Mersenne twister with its settings), in bytes.
const GENERATOR_BYTES: u64 = 5056;

/// Whether a node does something besides computing its value.
fn is_impure(effects: &Effects) -> bool {
    !effects.mutates.is_empty()
        || effects.side_effect
        || effects.writes_state
        || effects.barrier
        || effects.opaque
}

/// The values that a graph returns.
fn outputs_of(graph: &Graph) -> Result<Vec<Leaf>, JointError> {
    let output = graph.output_node().ok_or(JointError::NoOutputs)?;
    let items = graph.node(output).args().first().and_then(Arg::as_items);
    let mut leaves = Vec::new();
    for item in items.ok_or(JointError::NoOutputs)? {
        match item {
            Arg::Node(node) => leaves.push(Some(*node)),
            Arg::Tuple(_) | Arg::List(_) | Arg::Dict(_) | Arg::NamedTuple(_) => {
                return Err(JointError::NoOutputs);
            }
            _ => leaves.push(None),
        }
    }
    Ok(leaves)
}
