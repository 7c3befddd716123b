//! Values that cross between parts.

use rustc_hash::FxHashSet;

use super::parts::Parts;
use crate::entity::{EntityId, NodeId, PartId, SecondaryMap};
use crate::graph::Graph;

/// The values that a part takes and returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// The values from outside that the part uses, in the order of their first use in it.
    pub inputs: Vec<NodeId>,
    /// The values of the part that are used outside, in the order of their first use there.
    pub outputs: Vec<NodeId>,
}

impl Interface {
    /// The interfaces of the parts of a graph, in one walk over its uses.
    #[must_use]
    pub fn of_parts(graph: &Graph, parts: &Parts) -> Vec<Self> {
        let mut crossing = Crossing::new(parts);
        for user in graph.nodes() {
            for input in graph.inputs(user) {
                crossing.record(input, parts.part_of(user));
            }
        }
        crossing.interfaces
    }
}

/// Interfaces that are being found.
pub(super) struct Crossing<'p> {
    parts: &'p Parts,
    pub(super) interfaces: Vec<Interface>,
    taken: FxHashSet<(PartId, NodeId)>,
    given: SecondaryMap<NodeId, bool>,
}

impl<'p> Crossing<'p> {
    pub(super) fn new(parts: &'p Parts) -> Self {
        Self {
            parts,
            interfaces: vec![Interface::default(); parts.len()],
            taken: FxHashSet::default(),
            given: SecondaryMap::new(),
        }
    }

    /// Records a use of `value` in the part `used`, or outside of all parts. Returns whether the
    /// value crosses.
    pub(super) fn record(&mut self, value: NodeId, used: Option<PartId>) -> bool {
        let defined = self.parts.part_of(value);
        if defined == used {
            return false;
        }
        if let Some(part) = defined
            && !self.given[value]
        {
            self.given.set(value, true);
            self.interfaces[part.index()].outputs.push(value);
        }
        if let Some(part) = used
            && self.taken.insert((part, value))
        {
            self.interfaces[part.index()].inputs.push(value);
        }
        true
    }
}
