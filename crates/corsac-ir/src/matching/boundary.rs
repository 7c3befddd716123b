//! Finds paths that lead out of a match and back in: fusing such a match would make a cycle.

use crate::entity::{NodeId, SecondaryMap};
use crate::graph::Graph;

use super::search::Part;

/// Scratch space for the check, kept from match to match.
#[derive(Default)]
pub(super) struct Boundary {
    /// The check in which a node was visited last.
    visited: SecondaryMap<NodeId, u32>,
    check: u32,
    work: Vec<NodeId>,
}

impl Boundary {
    /// Whether some value computed in `covered` reaches `covered` again through nodes outside of
    /// it. Paths run along the order of the graph, so that none has to be followed beyond the last
    /// covered node.
    pub(super) fn has_way_back(
        &mut self,
        graph: &Graph,
        covered: &[NodeId],
        part: &SecondaryMap<NodeId, Part>,
    ) -> bool {
        let later = |a: NodeId, b: NodeId| if graph.is_before(a, b) { b } else { a };
        let Some(last) = covered.iter().copied().reduce(later) else {
            return false;
        };
        self.check += 1;
        self.work.clear();
        for &id in covered {
            let outside = graph.users(id).filter(|&user| part[user] != Part::Inside);
            self.work
                .extend(outside.filter(|&user| graph.is_before(user, last)));
        }
        while let Some(id) = self.work.pop() {
            if std::mem::replace(self.visited.get_mut(id), self.check) == self.check {
                continue;
            }
            for user in graph.users(id) {
                if graph.is_before(last, user) {
                    continue;
                }
                if part[user] == Part::Inside {
                    return true;
                }
                self.work.push(user);
            }
        }
        false
    }
}
