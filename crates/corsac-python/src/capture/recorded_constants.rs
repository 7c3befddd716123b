//! Tensors of recorded programs that do not depend on inputs, even if made in several steps, such as
//! masks that are written part by part.
//!
//! Each call would compute the same, so they are computed once, unless that could be observed.

use corsac_ir::NodeId;
use indexmap::IndexMap;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::graph::node::PyNode;

/// Addresses of storages.
pub(super) type Storages = SmallVec<[usize; 4]>;

/// A node that computes constants.
struct Computed {
    node: Py<PyNode>,
    result: Py<PyAny>,
    /// The storages that it reads or makes.
    storages: Storages,
}

/// The effects of a new node.
pub(super) struct Effects<'a, 'py> {
    pub(super) node: &'a Py<PyNode>,
    /// Storages of tensors that it has written to, with these.
    pub(super) written: Vec<(usize, Bound<'py, PyAny>)>,
    /// Storages that it has read, but for those of weights.
    pub(super) read: Storages,
    /// Whether it reads something else that differs between calls.
    pub(super) varies: bool,
    pub(super) result: Bound<'py, PyAny>,
    /// Storages of the tensors in the result, with these.
    pub(super) results: Vec<(usize, Bound<'py, PyAny>)>,
}

/// The nodes that compute constants, and their memory.
#[derive(Default)]
pub(super) struct Constants {
    nodes: IndexMap<NodeId, Computed, FxBuildHasher>,
    /// Their tensors by storage, which stays alive.
    tensors: FxHashMap<usize, Py<PyAny>>,
    /// Storages that other nodes write to, or that are written to after they were read.
    lost: FxHashSet<usize>,
    read: FxHashSet<usize>,
    /// Storages that are written to after they were made.
    written: FxHashSet<usize>,
}

impl Constants {
    /// Notes a new node. Returns objects to be dropped when nothing is locked.
    pub(super) fn note(&mut self, own: Effects<'_, '_>) -> impl Sized + use<> {
        let mut dropped = Vec::new();
        let is_constant = !own.varies
            && own
                .read
                .iter()
                .all(|place| self.tensors.contains_key(place));
        if !is_constant {
            let known = |place: &&usize| self.tensors.contains_key(*place);
            self.read.extend(own.read.iter().filter(known));
            self.lost.extend(own.written.iter().map(|(place, _)| place));
            // A view of a constant that depends on an input.
            let viewed = own.results.iter().map(|(place, _)| place).filter(known);
            self.lost.extend(viewed);
            return (dropped, None);
        }
        let mut storages = own.read;
        for (place, _) in &own.written {
            if self.read.contains(place) {
                self.lost.insert(*place);
            }
            self.written.insert(*place);
        }
        for (place, tensor) in own.results.into_iter().chain(own.written) {
            storages.push(place);
            dropped.extend(self.tensors.insert(place, tensor.unbind()));
        }
        let computed = Computed {
            node: own.node.clone_ref(own.result.py()),
            result: own.result.unbind(),
            storages,
        };
        let before = self.nodes.insert(own.node.get().id(), computed);
        (dropped, before)
    }

    /// The nodes whose results are constants.
    pub(super) fn nodes(&self, py: Python<'_>) -> Vec<Py<PyNode>> {
        let lost = self.spread(self.lost.clone());
        let kept = self.nodes.values().filter(|own| !own.is_in(&lost));
        kept.map(|own| own.node.clone_ref(py)).collect()
    }

    /// The nodes of constants that involve writes, with their results. Those in the storages
    /// `returned` are none. Constants without writes can be folded in the graph alone.
    pub(super) fn written(
        &self,
        py: Python<'_>,
        returned: impl IntoIterator<Item = usize>,
    ) -> Vec<(Py<PyNode>, Py<PyAny>)> {
        if self.written.is_empty() {
            return Vec::new();
        }
        let lost = self.spread(self.lost.iter().copied().chain(returned).collect());
        let kept = |own: &&Computed| own.is_in(&self.written) && !own.is_in(&lost);
        let kept = self.nodes.values().filter(kept);
        kept.map(|own| (own.node.clone_ref(py), own.result.clone_ref(py)))
            .collect()
    }

    /// Treats the nodes `inputs` and all their users as dependent on inputs after all.
    pub(super) fn depend_on(
        &mut self,
        inputs: Vec<NodeId>,
        users: impl Fn(NodeId) -> SmallVec<[NodeId; 4]>,
    ) {
        let mut seen: FxHashSet<NodeId> = FxHashSet::default();
        let mut left = inputs;
        while let Some(node) = left.pop() {
            if let Some(own) = self.nodes.get(&node) {
                self.lost.extend(&own.storages);
            }
            left.extend(users(node).into_iter().filter(|&own| seen.insert(own)));
        }
    }

    /// `lost` with all storages that share a node with it: such nodes are computed in every call.
    fn spread(&self, mut lost: FxHashSet<usize>) -> FxHashSet<usize> {
        loop {
            let before = lost.len();
            for own in self.nodes.values() {
                if own.is_in(&lost) {
                    lost.extend(&own.storages);
                }
            }
            if lost.len() == before {
                return lost;
            }
        }
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for own in self.nodes.values() {
            visit.call(&own.node)?;
            visit.call(&own.result)?;
        }
        self.tensors.values().try_for_each(|own| visit.call(own))
    }
}

impl Computed {
    fn is_in(&self, storages: &FxHashSet<usize>) -> bool {
        self.storages.iter().any(|own| storages.contains(own))
    }
}
