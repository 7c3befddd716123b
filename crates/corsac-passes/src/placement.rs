//! Placement of the parts of a program on devices, by memory and by cost.
//!
//! Puts the calls of a graph into parts that run on one device each, so that every device has the
//! memory for its parts; the inputs and attributes that a call uses are in its part, even if they
//! are in others too. There are four methods:
//! - [`by_size`] fills one device after the other, in the order of the graph;
//! - [`by_cost`] begins with a part for each call and combines two as long as that saves time;
//! - [`by_exchange`] begins with [`by_size`] and moves or swaps calls as long as that saves time;
//! - [`with_embeddings`] gives embeddings devices of their own, and all of these a copy of the
//!   rest.
//!
//! Needs: the sizes of values, and the durations of calls where time decides.
//!
//! Preserves: the graph, which is only read. There are no cycles between parts.
//!
//! Reference: B. W. Kernighan, S. Lin, *An efficient heuristic procedure for partitioning graphs*,
//! 1970, for the exchange; the rules are those of `torch.fx.experimental.accelerator_partitioner`.
//!
//! ```
//! use corsac_ir::Graph;
//! use corsac_passes::placement::{Bytes, Device, Program, by_size};
//!
//! let mut graph = Graph::new();
//! let x = graph.placeholder("x")?;
//! let a = graph.call_method("neg", [x.into()])?;
//! let b = graph.call_method("exp", [a.into()])?;
//! graph.output(b)?;
//! let bytes = |_| Bytes { output: 10, total: 10 };
//! let program = Program::of(&graph, bytes);
//! let devices = [Device { bytes: 25, id: 7 }, Device { bytes: 25, id: 8 }];
//! let parts = by_size(&program, &devices)?;
//! assert_eq!(parts.len(), 2);
//! assert_eq!((&parts[0].nodes[..], &parts[0].devices[..]), (&[x, a][..], &[7][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod devices;
mod embeddings;
mod part;
mod search;
#[cfg(test)]
mod tests;

use corsac_ir::{Graph, NodeId, Op, SecondaryMap};
use fixedbitset::FixedBitSet;
use thiserror::Error;

use part::Part;

pub use search::Times;

/// The memory that a node needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Memory of its value.
    pub output: i64,
    /// Memory of its value and of the parameters of the module that it calls.
    pub total: i64,
}

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its memory, in bytes.
    pub bytes: i64,
    /// Its number.
    pub id: i64,
}

/// Nodes that run together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedPart {
    /// Calls, and the inputs and attributes that they use, in the order of the graph.
    pub nodes: Vec<NodeId>,
    /// The numbers of the devices that it is on; none where it fits on none.
    pub devices: Vec<i64>,
}

/// Why a program cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// A call needs more memory than any device has left.
    #[error("{node} is too large to fit any device")]
    TooLarge {
        /// The name of the call.
        node: String,
    },
    /// A call needs more memory than one device has.
    #[error("{target} is too large to fit into a device")]
    TooLargeForOne {
        /// The target of the call.
        target: String,
    },
    /// Parts are left that fit on no device.
    #[error("Cannot Get a Valid Partition to Logical Device Mapping")]
    NoDevice,
    /// There are more parts with embeddings than devices.
    #[error("Need {needed} devices, but only {given} provided")]
    TooFewDevices {
        /// Number of devices needed: one for each part with embeddings.
        needed: usize,
        /// Number of devices given.
        given: usize,
    },
    /// Embeddings do not fit on one device together with everything else.
    #[error(
        "partition_{part}(embedding partition) and non embedding partitions can not fit into one \
         device"
    )]
    TooLargeTogether {
        /// The number of the part with the embeddings.
        part: usize,
    },
}

/// A graph with memory sizes, as placement needs it. Nodes are numbered in the order of the graph.
#[derive(Clone, Debug)]
pub struct Program<'g> {
    graph: &'g Graph,
    ids: Vec<NodeId>,
    bytes: Vec<Bytes>,
    /// The inputs of each node, each once.
    inputs: Vec<Vec<usize>>,
    users: Vec<Vec<usize>>,
}

impl<'g> Program<'g> {
    /// Reads a graph. `bytes` returns the memory that a node needs.
    #[must_use]
    pub fn of(graph: &'g Graph, bytes: impl Fn(NodeId) -> Bytes) -> Self {
        let ids: Vec<NodeId> = graph.nodes().collect();
        let mut number = SecondaryMap::with_capacity(graph.id_bound());
        for (at, &id) in ids.iter().enumerate() {
            number.set(id, at);
        }
        let mut users = vec![Vec::new(); ids.len()];
        let mut inputs = Vec::with_capacity(ids.len());
        for (at, &id) in ids.iter().enumerate() {
            let mut used: Vec<usize> = Vec::new();
            for input in graph.inputs(id) {
                let input = *number.get(input);
                if !used.contains(&input) {
                    used.push(input);
                    users[input].push(at);
                }
            }
            inputs.push(used);
        }
        Self {
            graph,
            bytes: ids.iter().map(|&id| bytes(id)).collect(),
            ids,
            inputs,
            users,
        }
    }

    fn op(&self, node: usize) -> Op {
        self.graph.node(self.ids[node]).op()
    }

    /// Whether a node is an input or an attribute: it is in every part that uses it.
    fn is_given(&self, node: usize) -> bool {
        matches!(self.op(node), Op::Placeholder | Op::GetAttr)
    }

    fn is_call(&self, node: usize) -> bool {
        matches!(
            self.op(node),
            Op::CallFunction | Op::CallMethod | Op::CallModule
        )
    }

    fn calls(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ids.len()).filter(|&node| self.is_call(node))
    }

    /// The additional bytes that a set of nodes needs for this one: its own, and those of the
    /// values that it uses and that are not in the set.
    fn extra_bytes(&self, node: usize, nodes: &FixedBitSet) -> i64 {
        let outside = self.inputs[node].iter();
        let outside = outside.filter(|&&input| !nodes.contains(input));
        outside.map(|&input| self.bytes[input].output).sum::<i64>() + self.bytes[node].total
    }

    fn placed(&self, parts: &[Part]) -> Vec<PlacedPart> {
        let one = |part: &Part| PlacedPart {
            nodes: part.nodes.ones().map(|node| self.ids[node]).collect(),
            devices: part.devices.clone(),
        };
        parts.iter().map(one).collect()
    }
}

/// Fills one device after the other with calls in the order of the graph. When all devices have a
/// part, the remaining calls become parts of their own, which go where there is room.
///
/// # Errors
/// [`PlacementError::TooLarge`] if a call fits nowhere, [`PlacementError::NoDevice`] if a part
/// does.
pub fn by_size(
    program: &Program<'_>,
    devices: &[Device],
) -> Result<Vec<PlacedPart>, PlacementError> {
    let parts = search::by_size(program, devices)?;
    Ok(program.placed(&parts))
}

/// Begins with a part for each call, and repeatedly combines the two with which the program then
/// takes the least time, as long as that is no more than before.
#[must_use]
pub fn by_cost(program: &Program<'_>, devices: &[Device], times: &Times) -> Vec<PlacedPart> {
    program.placed(&search::by_cost(program, devices, times))
}

/// Begins with [`by_size`]; then swaps one call after the other with a call of another part, or
/// moves it there, wherever the program then takes the least time, if that is less than before.
///
/// # Errors
/// Those of [`by_size`].
pub fn by_exchange(
    program: &Program<'_>,
    devices: &[Device],
    times: &Times,
) -> Result<Vec<PlacedPart>, PlacementError> {
    let parts = search::by_exchange(program, devices, times)?;
    Ok(program.placed(&parts))
}

/// Puts embeddings on devices, one part each, and copies of everything else on all of these. Calls
/// are put into parts in the order of the graph; parts of one kind are then combined, smallest
/// first, as long as they fit on a device and are close to each other. `bytes` is the memory of
/// each device.
///
/// # Errors
/// All but [`PlacementError::TooLarge`].
pub fn with_embeddings(
    program: &Program<'_>,
    devices: &[Device],
    bytes: i64,
    is_embedding: impl Fn(NodeId) -> bool,
) -> Result<Vec<PlacedPart>, PlacementError> {
    let is_embedding = |node: usize| is_embedding(program.ids[node]);
    let parts = embeddings::place(program, devices, bytes, &is_embedding)?;
    Ok(program.placed(&parts))
}
