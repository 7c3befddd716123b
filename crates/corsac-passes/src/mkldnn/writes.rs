//! Values that are written to while others may read them.

use corsac_ir::{EntityId, Graph, NodeId};
use corsac_ops::{ClassId, Host};

use crate::analysis::Analysis;
use crate::error::PassError;

/// Values that are written to while others may read them, or that share storage with such values.
///
/// A write to a temporary value that has no other user, as in `relu_(conv(x))`, is no different
/// from computing a new value, and does not count.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    /// By index of the node: whether it is such a value.
    seen: Vec<bool>,
    /// The nodes that write, in order.
    writers: Vec<NodeId>,
}

impl Writes {
    /// Analyses the writes of `graph`.
    ///
    /// # Errors
    /// If a node uses one that comes after it.
    pub fn of_graph(graph: &Graph, host: &dyn Host) -> Result<Self, PassError> {
        Ok(Self::of_analysis(graph, &Analysis::of_graph(graph, host)?))
    }

    pub(super) fn of_analysis(graph: &Graph, analysis: &Analysis) -> Self {
        let classes = &analysis.classes;
        let mut by_class = vec![false; graph.id_bound().max(1)];
        // Whether the value of a node is storage of its own with only one user.
        let mut private = vec![false; graph.id_bound()];
        let mut writers = Vec::new();
        for (_, node, effects) in analysis.walk() {
            let in_place = effects.mutates.iter().all(|w| private[w.index()]);
            let renames = |alias: &NodeId| in_place && effects.mutates.contains(alias);
            private[node.index()] = graph.node(node).num_users() == 1
                && !effects.outside
                && !effects.opaque
                && effects.aliases.iter().all(renames);
            if !in_place {
                for &written in &effects.mutates {
                    by_class[classes.class(written).index()] = true;
                }
            }
            if effects.opaque {
                by_class[ClassId::OUTSIDE.index()] = true;
            }
            if !in_place || effects.opaque {
                writers.push(node);
            }
        }
        let mut seen = vec![false; graph.id_bound()];
        for &node in &analysis.nodes {
            let class = classes.class(node).index();
            seen[node.index()] = by_class[class] && !private[node.index()];
        }
        Self { seen, writers }
    }

    /// Whether the value of `node` may be written to while others may read it.
    #[must_use]
    pub fn is_seen(&self, node: NodeId) -> bool {
        self.seen.get(node.index()).copied().unwrap_or(false)
    }

    /// Records that `copy`, a new node, may be the same tensor as `value`.
    pub(super) fn add_copy(&mut self, copy: NodeId, value: NodeId) {
        let seen = self.is_seen(value);
        if self.seen.len() <= copy.index() {
            self.seen.resize(copy.index() + 1, false);
        }
        self.seen[copy.index()] = seen;
    }

    /// Whether a node between `first` and `last` writes to a value that others may read.
    #[must_use]
    pub fn come_between(&self, graph: &Graph, first: NodeId, last: NodeId) -> bool {
        let after = self
            .writers
            .partition_point(|&w| !graph.is_before(first, w));
        let next = self.writers.get(after);
        next.is_some_and(|&writer| graph.is_before(writer, last))
    }
}
