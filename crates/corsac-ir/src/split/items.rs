//! Keeps tuples and the items taken out of them together.

use super::parts::Parts;
use crate::entity::{NodeId, PartId};
use crate::graph::Graph;

impl Parts {
    /// Moves `operator.getitem` nodes to the part of the tuple that they take from, if it has no
    /// other users: no tuple then crosses. Nodes that use more than the one value stay, since
    /// moving those could make a cycle.
    ///
    /// Returns the nodes that moved, in the order in which they did.
    pub fn take_items_along(&mut self, graph: &Graph) -> Vec<NodeId> {
        let is_item = |user: NodeId| graph.node(user).calls("operator.getitem");
        let mut moved = Vec::new();
        loop {
            let mut moves: Vec<(NodeId, Option<PartId>)> = Vec::new();
            for tuple in graph.nodes() {
                if !graph.users(tuple).all(is_item) {
                    continue;
                }
                let part = self.part_of(tuple);
                let strays = graph
                    .users(tuple)
                    .filter(|&item| self.part_of(item) != part && graph.inputs(item).count() == 1);
                moves.extend(strays.map(|item| (item, part)));
            }
            if moves.is_empty() {
                return moved;
            }
            for (item, part) in moves {
                match part {
                    Some(part) => self.assign(item, part),
                    None => self.remove(item),
                }
                moved.retain(|&other| other != item);
                moved.push(item);
            }
        }
    }
}
