//! A graph whose changes are counted.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use corsac_ir::{Graph, NodeId};

/// Number of changes of a graph, for readers that do not borrow it: a borrow costs two locked
/// instructions, most of the time that a step from node to node takes.
#[derive(Clone, Default)]
pub(crate) struct Changes(Arc<AtomicU64>);

impl Changes {
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A graph that can only be changed through [`Counted::change`].
#[derive(Default)]
pub(super) struct Counted {
    graph: Graph,
    changes: Changes,
}

impl Counted {
    /// The graph, for a change.
    #[inline]
    pub(super) fn change(&mut self) -> &mut Graph {
        // There is no other writer: a load and a store suffice.
        let count = self.changes.count() + 1;
        self.changes.0.store(count, Ordering::Relaxed);
        &mut self.graph
    }

    /// As [`Graph::take_retargeted`], which is no change of the program.
    pub(super) fn take_retargeted(&mut self) -> Vec<NodeId> {
        self.graph.take_retargeted()
    }

    pub(super) fn changes(&self) -> &Changes {
        &self.changes
    }
}

impl Deref for Counted {
    type Target = Graph;

    fn deref(&self) -> &Graph {
        &self.graph
    }
}
