//! Uses: edges from definition to user, in an arena of their own.
//!
//! An edge stands for "this user mentions this definition", however often. It is threaded into
//! two lists: the definition's users, in the order in which they came to use it, and the user's
//! inputs, in the order of its arguments. Adding and removing an edge is O(1), so that a value with
//! a million users costs no more per change than one with two.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Graph;
use crate::entity::{EdgeId, EntityId, NodeId};

/// Up to this many inputs, a scan of the list finds whether one was seen already.
const SCAN_LIMIT: usize = 16;

#[derive(Clone, Debug)]
struct Edge {
    def: NodeId,
    user: NodeId,
    prev_use: Option<EdgeId>,
    next_use: Option<EdgeId>,
    next_input: Option<EdgeId>,
}

/// All edges of a graph; freed ones are used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Edges {
    edges: Vec<Edge>,
    /// Head of the list of free edges, threaded through `next_input`.
    free: Option<EdgeId>,
}

impl Edges {
    pub(super) fn reserve(&mut self, additional: usize) {
        self.edges.reserve(additional);
    }

    /// Number of edges, freed ones included.
    pub(super) fn len(&self) -> usize {
        self.edges.len()
    }

    fn get(&self, id: EdgeId) -> &Edge {
        &self.edges[id.index()]
    }

    fn get_mut(&mut self, id: EdgeId) -> &mut Edge {
        &mut self.edges[id.index()]
    }

    fn allocate(&mut self, edge: Edge) -> EdgeId {
        if let Some(id) = self.free {
            self.free = self.get(id).next_input;
            *self.get_mut(id) = edge;
            id
        } else {
            self.edges.push(edge);
            EdgeId::from_index(self.edges.len() - 1)
        }
    }
}

/// The two lists of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct UseList {
    first_use: Option<EdgeId>,
    last_use: Option<EdgeId>,
    first_input: Option<EdgeId>,
    num_users: u32,
}

impl UseList {
    #[inline]
    pub(super) fn num_users(&self) -> usize {
        self.num_users as usize
    }
}

impl Graph {
    /// The nodes that use `id`, each once, in the order in which they came to use it.
    pub fn users(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let mut edge = self.data(id).uses.first_use;
        std::iter::from_fn(move || {
            let current = self.edges.get(edge?);
            edge = current.next_use;
            Some(current.user)
        })
    }

    /// The nodes that `id` uses, each once, in the order of its arguments.
    pub fn inputs(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let mut edge = self.data(id).uses.first_input;
        std::iter::from_fn(move || {
            let current = self.edges.get(edge?);
            edge = current.next_input;
            Some(current.def)
        })
    }

    /// Whether `user` uses `def`: a scan of the user's inputs.
    #[must_use]
    pub fn uses(&self, user: NodeId, def: NodeId) -> bool {
        self.inputs(user).any(|input| input == def)
    }

    /// Whether the list of users can be walked both ways and is the list of this node. For the
    /// verifier.
    pub(crate) fn use_list_is_sound(&self, id: NodeId) -> bool {
        let list = &self.data(id).uses;
        let (mut previous, mut next) = (None, list.first_use);
        for _ in 0..list.num_users {
            let Some(edge) = next.map(|edge| self.edges.get(edge)) else {
                return false;
            };
            if edge.def != id || edge.prev_use != previous {
                return false;
            }
            (previous, next) = (next, edge.next_use);
        }
        next.is_none() && list.last_use == previous
    }

    /// Puts the users of `id` in this order; returns false and changes nothing if these are not its
    /// users, each once.
    pub(crate) fn reorder_users(&mut self, id: NodeId, order: &[NodeId]) -> bool {
        let mut edges: FxHashMap<NodeId, EdgeId> = FxHashMap::default();
        let mut next = self.data(id).uses.first_use;
        while let Some(edge) = next {
            edges.insert(self.edges.get(edge).user, edge);
            next = self.edges.get(edge).next_use;
        }
        let Some(order) = (edges.len() == order.len())
            .then(|| order.iter().map(|user| edges.remove(user)).collect())
            .flatten()
        else {
            return false;
        };
        let order: Vec<EdgeId> = order;
        for (at, &edge) in order.iter().enumerate() {
            let edge = self.edges.get_mut(edge);
            edge.prev_use = at.checked_sub(1).map(|before| order[before]);
            edge.next_use = order.get(at + 1).copied();
        }
        let list = &mut self.nodes[id.index()].uses;
        (list.first_use, list.last_use) = (order.first().copied(), order.last().copied());
        true
    }

    /// Enters `user` among the users of every node its arguments mention.
    pub(super) fn link_uses(&mut self, user: NodeId) {
        let mut inputs: smallvec::SmallVec<[NodeId; SCAN_LIMIT]> = smallvec::SmallVec::new();
        let mut seen = FxHashSet::default();
        let data = &self.nodes[user.index()];
        let mut visit = |node: NodeId| {
            let is_new = if inputs.len() < SCAN_LIMIT {
                !inputs.contains(&node)
            } else {
                if seen.is_empty() {
                    seen.extend(inputs.iter().copied());
                }
                seen.insert(node)
            };
            if is_new {
                inputs.push(node);
            }
        };
        data.args.iter().for_each(|a| a.for_each_node(&mut visit));
        data.kwargs
            .iter()
            .for_each(|(_, a)| a.for_each_node(&mut visit));

        let mut next_input = None;
        for &def in inputs.iter().rev() {
            let edge = Edge {
                def,
                user,
                prev_use: None,
                next_use: None,
                next_input,
            };
            next_input = Some(self.edges.allocate(edge));
        }
        self.nodes[user.index()].uses.first_input = next_input;

        // Users are entered in the order of the arguments.
        while let Some(id) = next_input {
            let def = self.edges.get(id).def;
            let list = &mut self.nodes[def.index()].uses;
            let last = list.last_use.replace(id);
            list.num_users += 1;
            match last {
                Some(last) => self.edges.get_mut(last).next_use = Some(id),
                None => list.first_use = Some(id),
            }
            let edge = self.edges.get_mut(id);
            edge.prev_use = last;
            next_input = edge.next_input;
        }
    }

    /// Takes `user` out of the users of everything it uses.
    pub(super) fn unlink_uses(&mut self, user: NodeId) {
        let mut next = self.nodes[user.index()].uses.first_input.take();
        while let Some(id) = next {
            let Edge {
                def,
                prev_use,
                next_use,
                next_input,
                ..
            } = *self.edges.get(id);
            let list = &mut self.nodes[def.index()].uses;
            list.num_users -= 1;
            if prev_use.is_none() {
                list.first_use = next_use;
            }
            if next_use.is_none() {
                list.last_use = prev_use;
            }
            if let Some(prev) = prev_use {
                self.edges.get_mut(prev).next_use = next_use;
            }
            if let Some(next) = next_use {
                self.edges.get_mut(next).prev_use = prev_use;
            }
            self.edges.get_mut(id).next_input = self.edges.free.replace(id);
            next = next_input;
        }
    }
}
