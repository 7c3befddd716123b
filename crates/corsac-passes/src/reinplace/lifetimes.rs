//! Live ranges of values.

use corsac_ir::{EntityId, Graph, NodeId};
use corsac_ops::ClassId;

use crate::analysis::Analysis;
use crate::common_subexpressions::returned;

/// The last use of every set of values that may share storage. Sets are joined as operators come to
/// share storage with their inputs.
pub(super) struct Lifetimes {
    /// By node: another one of the same set, or itself.
    parent: Vec<u32>,
    /// By set: the place of the last node that uses a value in it, and that node.
    last_use: Vec<(u32, Option<NodeId>)>,
    /// By set: whether the caller gets a value in it.
    returned: Vec<bool>,
}

impl Lifetimes {
    pub(super) fn of(graph: &Graph, analysis: &Analysis) -> Self {
        let bound = graph.id_bound();
        let mut lifetimes = Self {
            parent: (0..bound as u32).collect(),
            last_use: vec![(0, None); bound],
            returned: vec![false; bound],
        };
        for &node in &analysis.nodes {
            let class = analysis.classes.class(node).index() as u32;
            lifetimes.parent[node.index()] = class;
        }
        // A sum of lists holds the items of both, whether or not they are taken out of it.
        for (place, effects) in analysis.special() {
            let node = analysis.nodes[place as usize];
            if effects.concatenates && !analysis.classes.is_single(node) {
                for operand in graph.inputs(node) {
                    lifetimes.union(node.index(), operand.index());
                }
            }
        }
        let returned = returned(graph, analysis, |_| false);
        for (place, &node) in analysis.nodes.iter().enumerate() {
            let set = lifetimes.find(node.index());
            lifetimes.returned[set] |= returned[node.index()];
            for used in graph.inputs(node) {
                let set = lifetimes.find(used.index());
                lifetimes.last_use[set] = (place as u32, Some(node));
            }
        }
        lifetimes
    }

    /// The last node that uses `value` or a value that may share storage with it, with its place.
    pub(super) fn last_use(&mut self, value: NodeId) -> (u32, Option<NodeId>) {
        let set = self.find(value.index());
        self.last_use[set]
    }

    /// Whether `value` may be reachable from outside the program.
    pub(super) fn is_outside(&mut self, value: NodeId) -> bool {
        self.find(value.index()) == ClassId::OUTSIDE.index()
    }

    /// Whether the caller gets `value` or a value that may share storage with it.
    pub(super) fn is_returned(&mut self, value: NodeId) -> bool {
        let set = self.find(value.index());
        self.returned[set]
    }

    /// Whether two values may share storage.
    pub(super) fn share(&mut self, a: NodeId, b: NodeId) -> bool {
        self.find(a.index()) == self.find(b.index())
    }

    /// Joins the sets of two values.
    pub(super) fn join(&mut self, a: NodeId, b: NodeId) {
        self.union(a.index(), b.index());
    }

    fn find(&mut self, mut at: usize) -> usize {
        while self.parent[at] as usize != at {
            let grandparent = self.parent[self.parent[at] as usize];
            self.parent[at] = grandparent;
            at = grandparent as usize;
        }
        at
    }

    fn union(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        // The smaller entry represents the set, so that the outside represents its own.
        let (low, high) = (a.min(b), a.max(b));
        if low == high {
            return;
        }
        self.parent[high] = low as u32;
        self.last_use[low] = self.last_use[low].max(self.last_use[high]);
        self.returned[low] |= self.returned[high];
    }
}
