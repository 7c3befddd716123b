//! The list of nodes: their order, and comparisons of places in it.
//!
//! It is kept apart from the rest of the nodes: a walk through the list, and every comparison of
//! places, reads a few bytes of each node.

use super::InsertPoint;
use crate::entity::{EntityId, NodeId};

/// A node's place in the list.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) prev: NodeId,
    pub(super) next: NodeId,
    pub(super) erased: bool,
    /// Grows along the list: "is a before b" is one comparison.
    pub(super) order: u64,
}

impl Place {
    /// The place of a node that is not linked yet; the root's in an empty list.
    const ALONE: Self = Self {
        prev: NodeId::ROOT,
        next: NodeId::ROOT,
        erased: false,
        order: 0,
    };
}

/// Places by node: a ring around [`NodeId::ROOT`].
#[derive(Clone, Debug)]
pub(super) struct List {
    places: Vec<Place>,
}

impl List {
    /// A list of the root only.
    pub(super) fn new() -> Self {
        Self {
            places: vec![Place::ALONE],
        }
    }

    pub(super) fn reserve(&mut self, additional: usize) {
        self.places.reserve(additional);
    }

    /// Makes a place for one node more, to be linked.
    pub(super) fn push(&mut self) -> NodeId {
        self.places.push(Place::ALONE);
        NodeId::from_index(self.places.len() - 1)
    }

    #[inline]
    pub(super) fn place(&self, id: NodeId) -> &Place {
        &self.places[id.index()]
    }

    pub(super) fn place_mut(&mut self, id: NodeId) -> &mut Place {
        &mut self.places[id.index()]
    }

    /// The node after `id`; from an erased one, the one that came after it.
    #[inline]
    pub(super) fn next(&self, id: NodeId) -> NodeId {
        let mut next = self.place(id).next;
        while self.place(next).erased {
            next = self.place(next).next;
        }
        next
    }

    /// The node before `id`, likewise.
    #[inline]
    pub(super) fn prev(&self, id: NodeId) -> NodeId {
        let mut prev = self.place(id).prev;
        while self.place(prev).erased {
            prev = self.place(prev).prev;
        }
        prev
    }

    /// Threads `id` into the list, and numbers it.
    pub(super) fn link(&mut self, id: NodeId, point: InsertPoint) {
        let (prev, next) = match point {
            InsertPoint::Before(next) => (self.prev(next), next),
            InsertPoint::After(prev) => (prev, self.next(prev)),
        };
        let place = self.place_mut(id);
        (place.prev, place.next) = (prev, next);
        self.place_mut(prev).next = id;
        self.place_mut(next).prev = id;
        self.number(id, point);
    }

    /// Takes `id` out of the list. It keeps its links to the nodes around the place where it was.
    pub(super) fn unlink(&mut self, id: NodeId) {
        let Place { prev, next, .. } = *self.place(id);
        self.place_mut(prev).next = next;
        self.place_mut(next).prev = prev;
    }

    /// As [`List::unlink`], for good.
    pub(super) fn erase(&mut self, id: NodeId) {
        self.unlink(id);
        self.place_mut(id).erased = true;
    }

    /// Number of linked nodes, counted no further than `limit` + 1.
    pub(super) fn length(&self, limit: usize) -> usize {
        let walk = std::iter::successors(Some(self.place(NodeId::ROOT).next), |&id| {
            Some(self.place(id).next)
        });
        walk.take_while(|id| !id.is_root()).take(limit + 1).count()
    }
}
