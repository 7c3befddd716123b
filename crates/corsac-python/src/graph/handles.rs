//! The handles of a graph's nodes: a table that grows while it is only being read.

use std::sync::OnceLock;

use corsac_ir::{EntityId, NodeId};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::graph::node::PyNode;
use crate::graph::node_class::Slot;

/// Index of the first chunk's end, as a power of two.
const FIRST_CHUNK_BITS: u32 = 5;
const CHUNKS: usize = (u32::BITS - FIRST_CHUNK_BITS) as usize + 1;

/// Handles by node id, in chunks that double in size and never move, so that a handle can be
/// entered through a shared reference.
#[derive(Default)]
pub(crate) struct Handles {
    chunks: [OnceLock<Box<[Slot<PyNode>]>>; CHUNKS],
}

/// The chunk of `index`, and the place in it: chunk 0 holds the first 32, chunk n as many as all
/// before it.
fn place(index: usize) -> (usize, usize) {
    let first = 1 << FIRST_CHUNK_BITS;
    match index.checked_ilog2() {
        Some(log) if index >= first => ((log - FIRST_CHUNK_BITS + 1) as usize, index - (1 << log)),
        Some(_) | None => (0, index),
    }
}

impl Handles {
    /// The handle of a node, if there is one.
    #[inline]
    pub(crate) fn get(&self, py: Python<'_>, id: NodeId) -> Option<Py<PyNode>> {
        let (chunk, offset) = place(id.index());
        self.chunks[chunk].get()?[offset].get(py)
    }

    /// Keeps `handle` as the handle of `id`, unless there is one by now; returns the one kept.
    pub(crate) fn keep(&self, py: Python<'_>, id: NodeId, handle: Py<PyNode>) -> Py<PyNode> {
        let (chunk, offset) = place(id.index());
        let chunk_len = 1 << (FIRST_CHUNK_BITS as usize + chunk.saturating_sub(1));
        let slots = self.chunks[chunk].get_or_init(|| {
            std::iter::repeat_with(Slot::default)
                .take(chunk_len)
                .collect()
        });
        let slot = &slots[offset];
        slot.get(py).unwrap_or_else(|| {
            let kept = handle.clone_ref(py);
            let before = slot.replace(py, Some(handle));
            debug_assert!(before.is_none(), "the slot was read just now");
            kept
        })
    }

    /// Releases the handle of a node.
    pub(crate) fn take(&self, py: Python<'_>, id: NodeId) -> Option<Py<PyNode>> {
        let (chunk, offset) = place(id.index());
        self.chunks[chunk].get()?[offset].take(py)
    }

    /// Visits all handles, for the garbage collector.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let slots = self.chunks.iter().filter_map(OnceLock::get).flatten();
        slots.into_iter().try_for_each(|slot| slot.visit(visit))
    }
}
