//! Puts nodes together along uses.
//!
//! The vertices of a quotient graph (parts, and nodes in none) are kept in a topological order
//! with ranks. Two vertices may become one if no other path leads from the earlier to the later
//! one; such a path passes only ranks between the two, which bounds the search. Vertices that the
//! search reached then move behind the merged vertex, so that ranks stay right: the idea of Pearce
//! and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs" (2007).

use super::parts::{Growing, Grown, Parts};
use crate::entity::{NodeId, SecondaryMap};
use crate::graph::Graph;

impl Parts {
    /// Puts wanted nodes together with those that use them, where that makes no cycle.
    ///
    /// Nodes are visited from the end of the program; each joins the parts of its users, in the
    /// order in which they came to use it. Parts are numbered in the order in which the walk makes
    /// them. The graph has to be in order.
    ///
    /// Source: the results of `torch.fx.passes.infra.partitioner` with `skip_horizontal_fusion`.
    #[must_use]
    pub fn along_uses(graph: &Graph, mut wanted: impl FnMut(NodeId) -> bool) -> Grown {
        let mut merger = Merger::new(graph);
        let mut is_wanted: SecondaryMap<NodeId, bool> =
            SecondaryMap::with_capacity(graph.id_bound());
        let mut visited = Vec::new();
        for node in graph.nodes().rev() {
            merger.visit(node);
            if !wanted(node) {
                continue;
            }
            is_wanted.set(node, true);
            visited.push(node);
            for user in graph.users(node).filter(|&user| is_wanted[user]) {
                merger.merge(node, user);
            }
        }
        let mut grown = Growing::default();
        let mut keys = SecondaryMap::new();
        for (position, &node) in visited.iter().enumerate() {
            let root = merger.root(node);
            if merger.seed(root) == node {
                keys.set(root, Some(grown.add_with_seed(node, position)));
            }
        }
        for node in visited {
            if let Some(key) = keys[merger.root(node)] {
                grown.assign(node, key);
            }
        }
        grown.finish()
    }
}

/// A quotient graph whose vertices become fewer. A vertex is named by one of its nodes, its root.
struct Merger<'g> {
    graph: &'g Graph,
    parent: SecondaryMap<NodeId, Option<NodeId>>,
    /// Members of each root, as a list that two roots can join in one step: next member, and for
    /// the root the last one.
    next: SecondaryMap<NodeId, Option<NodeId>>,
    last: SecondaryMap<NodeId, Option<NodeId>>,
    size: SecondaryMap<NodeId, u32>,
    seeds: SecondaryMap<NodeId, Option<NodeId>>,
    /// Vertices in order, from the last one to the first.
    order: Vec<NodeId>,
    rank: SecondaryMap<NodeId, u32>,
    /// The number of the search that has reached a root last.
    reached: SecondaryMap<NodeId, u32>,
    search: u32,
}

impl<'g> Merger<'g> {
    fn new(graph: &'g Graph) -> Self {
        Self {
            graph,
            parent: SecondaryMap::with_capacity(graph.id_bound()),
            next: SecondaryMap::new(),
            last: SecondaryMap::new(),
            size: SecondaryMap::new(),
            seeds: SecondaryMap::new(),
            order: Vec::with_capacity(graph.len()),
            rank: SecondaryMap::with_capacity(graph.id_bound()),
            reached: SecondaryMap::new(),
            search: 0,
        }
    }

    /// Adds a vertex in front of all others.
    fn visit(&mut self, node: NodeId) {
        self.rank.set(node, rank(self.order.len()));
        self.order.push(node);
    }

    /// The node that a vertex is called after.
    fn seed(&self, root: NodeId) -> NodeId {
        self.seeds[root].unwrap_or(root)
    }

    fn root(&mut self, node: NodeId) -> NodeId {
        let mut root = node;
        while let Some(parent) = self.parent[root] {
            root = parent;
        }
        let mut at = node;
        while let Some(parent) = self.parent[at] {
            self.parent.set(at, Some(root));
            at = parent;
        }
        root
    }

    /// Merges the vertices of two nodes, unless there is another path from one to the other.
    /// Returns whether they are one now. Of two equally large ones, the seed of `a` stays.
    fn merge(&mut self, a: NodeId, b: NodeId) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        if a == b {
            return true;
        }
        // Ranks fall along uses.
        let (early, late) = if self.rank[a] > self.rank[b] {
            (a, b)
        } else {
            (b, a)
        };
        let Some(between) = self.between(early, late) else {
            return false;
        };
        self.make_room(late, &between);
        let size = |root: NodeId| self.size[root].max(1);
        let (kept, gone) = if size(a) < size(b) { (b, a) } else { (a, b) };
        let (total, seed, place) = (size(a) + size(b), self.seed(kept), self.rank[late]);
        self.size.set(kept, total);
        self.seeds.set(kept, Some(seed));
        self.parent.set(gone, Some(kept));
        self.rank.set(kept, place);
        self.order[place as usize] = kept;
        let (kept_last, gone_last) = (
            self.last[kept].unwrap_or(kept),
            self.last[gone].unwrap_or(gone),
        );
        self.next.set(kept_last, Some(gone));
        self.last.set(kept, Some(gone_last));
        true
    }

    /// The vertices that can be reached from `early` with ranks between the two; `None` if `late`
    /// can be reached by other than a direct use.
    fn between(&mut self, early: NodeId, late: NodeId) -> Option<Vec<NodeId>> {
        self.search += 1;
        let floor = self.rank[late];
        let mut found = Vec::new();
        let mut stack = vec![early];
        while let Some(root) = stack.pop() {
            let mut member = Some(root);
            while let Some(node) = member {
                for user in self.graph.users(node) {
                    let to = self.root(user);
                    if to == late && root != early {
                        return None;
                    }
                    if to == root || self.rank[to] <= floor || self.reached[to] == self.search {
                        continue;
                    }
                    self.reached.set(to, self.search);
                    found.push(to);
                    stack.push(to);
                }
                member = self.next[node];
            }
        }
        Some(found)
    }

    /// Moves `between` behind `late`, in whose place the merged vertex will be.
    fn make_room(&mut self, late: NodeId, between: &[NodeId]) {
        if between.is_empty() {
            return;
        }
        // Vertices between that lead to `late` have to stay before it: only those reached shift.
        // The vertices from `late` up to the highest of `between` get their places anew: first
        // those reached, then `late`, then the others, each group as it was.
        let highest = between.iter().map(|&v| self.rank[v]).max().unwrap_or(0);
        let (low, high) = (self.rank[late] as usize, highest as usize);
        let window: Vec<NodeId> = self.order[low..=high].to_vec();
        let is_live = |me: &Self, v: NodeId, place: usize| {
            me.parent[v].is_none() && me.rank[v] as usize == place
        };
        let mut places = Vec::with_capacity(window.len());
        let (mut moved, mut stay) = (Vec::new(), Vec::new());
        for (offset, &vertex) in window.iter().enumerate() {
            if !is_live(self, vertex, low + offset) {
                continue;
            }
            places.push(low + offset);
            let was_reached = self.reached[vertex] == self.search && vertex != late;
            if was_reached {
                moved.push(vertex)
            } else {
                stay.push(vertex)
            }
        }
        for (place, vertex) in places.into_iter().zip(moved.into_iter().chain(stay)) {
            self.order[place] = vertex;
            self.rank.set(vertex, rank(place));
        }
    }
}

fn rank(place: usize) -> u32 {
    u32::try_from(place).expect("no more nodes than 32-bit ids")
}
