//! Tensor parallelism: which part of each value each rank has, so that the least is kept, computed and
//! sent.
//!
//! A value is [replicated](Placement::Replicate), [sharded](Placement::Shard) along a dimension, or a
//! [sum](Placement::Partial) of which each rank has a summand. The ways to make a call on parts come
//! from the operator table ([`corsac_ops::shape::Relation`]); what may be sharded at all begins at the
//! weights. A search in the order of the graph ([`plan`]) keeps, for each way in which the values that
//! are needed later may lie, the cheapest plan so far: this is exact unless there are more such ways
//! than [`WIDTH`], of which the cheapest are kept.
//!
//! A rank's gradient of a replicated value that is used in a sharded call is a summand, too, and has to
//! be summed once for all such calls: [`Planned::split`] says which calls these are.
//!
//! If activations cost something ([`Problem::activations`]), sums may also become parts along a
//! dimension that is not the last: a sequence. What norms, dropouts and residual sums then make is a
//! part, too, until a call needs the whole (sequence parallelism; Korthikanti et al., "Reducing
//! Activation Recomputation in Large Transformer Models", 2022).

mod costs;
mod hints;
mod options;
mod search;
mod sequences;

use std::fmt;

use corsac_ir::{Graph, NodeId};
use corsac_ops::shape::{Form, ShardedCall, Value};
use smallvec::SmallVec;

/// The number of partial plans that are kept.
pub const WIDTH: usize = 256;

/// Sizes of consecutive pieces of a dimension, each of which is cut evenly among the ranks: one for a
/// plain shard, three for the queries, keys and values of one weight.
pub type Pieces = SmallVec<[i64; 4]>;

/// What each rank has of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// All of it.
    Replicate,
    /// A summand.
    Partial,
    /// An equal part of each of the pieces of a dimension.
    Shard {
        /// The dimension.
        dim: usize,
        /// The sizes of its pieces.
        pieces: Pieces,
    },
}

/// Placements of the tensors in a value.
pub type Placements = SmallVec<[Placement; 1]>;

/// Facts about the values of a graph, and what is wanted.
pub struct Problem<'f> {
    /// The value of each node. Sizes are numbers.
    pub value: &'f dyn Fn(NodeId) -> &'f Value,
    /// The ways to make a call on parts.
    pub call: &'f dyn Fn(NodeId) -> Option<&'f ShardedCall>,
    /// The time of a call on whole tensors, in bytes that could be sent meanwhile.
    pub work: &'f dyn Fn(NodeId) -> f64,
    /// The weight that an attribute is, by number.
    pub weight: &'f dyn Fn(NodeId) -> Option<usize>,
    /// Whether a value has to be whole on all ranks: memory that is written to.
    pub whole: &'f dyn Fn(NodeId) -> bool,
    /// Whether a value has no memory of its own: views.
    pub view: &'f dyn Fn(NodeId) -> bool,
    /// Facts about the weights.
    pub weights: &'f [WeightFacts],
    /// The number of ranks.
    pub ranks: i64,
    /// Whether gradients are computed.
    pub training: bool,
    /// The cost of a byte of a weight that a rank keeps, in bytes that are sent.
    pub kept: f64,
    /// The cost of a byte of another value that a rank keeps for its gradient, in bytes that are sent; if
    /// it is 0, sums are only made whole.
    pub activations: f64,
}

/// Facts about a weight.
#[derive(Clone, Debug, Default)]
pub struct WeightFacts {
    /// Whether it may be sharded.
    pub shards: bool,
    /// Whether it has a gradient.
    pub trained: bool,
    /// The dimension along which it has to be sharded.
    pub along: Option<usize>,
    /// Whether no call may use the whole of it if it has to be.
    pub fixed: bool,
}

/// A view that would shard a dimension which the ranks do not divide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uneven {
    /// The view.
    pub node: NodeId,
    /// The size that is not divisible.
    pub size: i64,
}

/// How a node is run.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The node.
    pub node: NodeId,
    /// The values that it uses, and as what.
    pub inputs: Vec<(NodeId, Placements)>,
    /// What it makes.
    pub output: Placements,
    /// Whether its result is replicated before it is used.
    pub replicated: bool,
    /// Whether each rank computes a part, so that the gradients of replicated values are summands.
    pub split: bool,
    /// What has to be done besides the call.
    pub form: Form,
}

/// The cheapest plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All nodes, in graph order.
    pub nodes: Vec<Planned>,
    /// Its cost, in bytes.
    pub cost: f64,
    /// Views that cannot be sharded in every way, since the ranks do not divide a size.
    pub uneven: Vec<Uneven>,
}

/// The cheapest plan for `graph`.
///
/// # Errors
/// A message if a weight cannot lie where it has to, or a size is no number.
pub fn plan(graph: &Graph, problem: &Problem<'_>) -> Result<Plan, String> {
    let choices = options::Choices::of_graph(graph, problem)?;
    search::cheapest(graph, problem, choices)
}

/// The bytes of a tensor.
fn bytes_of(value: &Value) -> f64 {
    let mut bytes = 0;
    value.for_each_tensor(&mut |tensor| bytes += tensor.size_bytes().known().unwrap_or(0));
    bytes as f64
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicate => f.write_str("replicated"),
            Self::Partial => f.write_str("sum"),
            Self::Shard { dim, pieces } if pieces.len() == 1 => write!(f, "shard {dim}"),
            Self::Shard { dim, pieces } => write!(f, "shard {dim} of {pieces:?}"),
        }
    }
}

#[cfg(test)]
mod tests;
