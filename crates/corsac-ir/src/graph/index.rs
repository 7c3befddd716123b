//! An index of nodes by opcode and target, searched in time proportional to the number found.
//!
//! Nodes with one opcode and target form a list threaded through the arena, whose head is in a
//! hash table per opcode.

use rustc_hash::FxHashMap;

use super::Graph;
use crate::entity::{EntityId, NodeId, SecondaryMap};
use crate::op::{Op, Target};

/// A node's neighbours among those with its opcode and target.
#[derive(Clone, Debug, Default)]
pub(super) struct IndexLinks {
    prev: Option<NodeId>,
    next: Option<NodeId>,
}

/// For each opcode: the last node entered of each target that some node has.
#[derive(Clone, Debug, Default)]
pub(super) struct TargetIndex {
    heads: [FxHashMap<Target, NodeId>; Op::ALL.len()],
}

impl Graph {
    /// The nodes with this opcode, and this target if one is given, in graph order.
    #[must_use]
    pub fn find_nodes(&self, op: Op, target: Option<Target>) -> Vec<NodeId> {
        let heads = &self.index.heads[op as usize];
        let mut found = Vec::new();
        match target {
            Some(target) => self.collect_same_target(heads.get(&target).copied(), &mut found),
            None => {
                for &head in heads.values() {
                    self.collect_same_target(Some(head), &mut found);
                }
            }
        }
        found.sort_unstable_by_key(|&id| self.order(id));
        found
    }

    /// The calls of the functions with this qualified name, in graph order.
    #[must_use]
    pub fn find_calls(&self, function: &str) -> Vec<NodeId> {
        let Some(name) = self.lookup(function) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for (id, info) in self.functions() {
            if info.name == name {
                found.extend(self.find_nodes(Op::CallFunction, Some(Target::Function(id))));
            }
        }
        found.sort_unstable_by_key(|&id| self.order(id));
        found
    }

    fn collect_same_target(&self, mut head: Option<NodeId>, found: &mut Vec<NodeId>) {
        while let Some(id) = head {
            found.push(id);
            head = self.data(id).index.next;
        }
    }

    /// The nodes that the index does not hold exactly once, under their opcode and target, and
    /// erased nodes that it still holds. For the verifier.
    pub(crate) fn nodes_out_of_index(&self) -> Vec<NodeId> {
        let mut found: SecondaryMap<NodeId, u8> = SecondaryMap::with_capacity(self.id_bound());
        for (op, heads) in Op::ALL.into_iter().zip(&self.index.heads) {
            for (&target, &head) in heads {
                let (mut previous, mut next) = (None, Some(head));
                while let Some(id) = next {
                    let data = self.data(id);
                    let in_place = (data.op, data.target) == (op, target)
                        && data.index.prev == previous
                        && !self.is_erased(id);
                    // 2 stands for "in the wrong place, or more than once"; the walk ends there.
                    let before = found[id];
                    found.set(id, if in_place && before == 0 { 1 } else { 2 });
                    if before > 0 {
                        break;
                    }
                    (previous, next) = (next, data.index.next);
                }
            }
        }
        (1..self.id_bound())
            .map(NodeId::from_index)
            .filter(|&id| found[id] != u8::from(self.contains(id)))
            .collect()
    }

    pub(super) fn link_index(&mut self, id: NodeId) {
        let data = &self.nodes[id.index()];
        let next = self.index.heads[data.op as usize].insert(data.target, id);
        self.nodes[id.index()].index = IndexLinks { prev: None, next };
        if let Some(next) = next {
            self.nodes[next.index()].index.prev = Some(id);
        }
    }

    pub(super) fn unlink_index(&mut self, id: NodeId) {
        let data = &mut self.nodes[id.index()];
        let (op, target) = (data.op, data.target);
        let IndexLinks { prev, next } = std::mem::take(&mut data.index);
        if let Some(next) = next {
            self.nodes[next.index()].index.prev = prev;
        }
        match (prev, next) {
            (Some(prev), _) => self.nodes[prev.index()].index.next = next,
            (None, Some(next)) => {
                self.index.heads[op as usize].insert(target, next);
            }
            (None, None) => {
                self.index.heads[op as usize].remove(&target);
            }
        }
    }
}
