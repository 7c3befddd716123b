//! Parts of a graph: sets of nodes that go together.

use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};

use super::error::SplitError;
use crate::entity::{EntityId, NodeId, PartId, SecondaryMap};
use crate::graph::Graph;

/// The part of each node. Nodes may be in none: they stay in the calling graph.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    of_node: SecondaryMap<NodeId, Option<PartId>>,
    len: usize,
}

/// Nodes that have to run after others that they do not use: readers of a value after a write to
/// it, and writers after a read of it.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    before: FxHashMap<NodeId, Vec<NodeId>>,
}

impl Waits {
    /// Makes `node` run after `earlier`, which comes before it in the graph.
    pub fn add(&mut self, earlier: NodeId, node: NodeId) {
        self.before.entry(node).or_default().push(earlier);
    }

    /// The nodes that `node` waits for.
    #[must_use]
    pub fn of(&self, node: NodeId) -> &[NodeId] {
        self.before.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Whether no node waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.before.is_empty()
    }

    /// The nodes that wait, in no particular order, each with the nodes that it waits for.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &[NodeId])> {
        let waiting = self.before.iter();
        waiting.map(|(&node, earlier)| (node, earlier.as_slice()))
    }
}

/// The choice among the orders in which parts can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each part comes as early as possible after the one that it waited for last, depth first;
    /// the order of `split_module`.
    DepthFirst,
    /// Of the parts that can run, the one with the smallest id comes first.
    SmallestFirst,
}

impl Parts {
    /// `len` parts without nodes.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self {
            of_node: SecondaryMap::new(),
            len,
        }
    }

    /// A part for each key, in the order in which keys come up. Nodes without a key are in no part.
    pub fn by_key<K: Eq + Hash>(graph: &Graph, mut key: impl FnMut(NodeId) -> Option<K>) -> Self {
        let mut parts = Self::default();
        let mut ids: FxHashMap<K, PartId> = FxHashMap::default();
        for node in graph.nodes() {
            if let Some(key) = key(node) {
                let part = *ids.entry(key).or_insert_with(|| parts.add());
                parts.assign(node, part);
            }
        }
        parts
    }

    /// A new part without nodes.
    pub fn add(&mut self) -> PartId {
        self.len += 1;
        PartId::from_index(self.len - 1)
    }

    /// Puts a node into a part.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn assign(&mut self, node: NodeId, part: PartId) {
        assert!(part.index() < self.len, "{part} of {} parts", self.len);
        self.of_node.set(node, Some(part));
    }

    /// Takes a node out of its part.
    pub fn remove(&mut self, node: NodeId) {
        self.of_node.set(node, None);
    }

    /// The part that a node is in.
    #[inline]
    #[must_use]
    pub fn part_of(&self, node: NodeId) -> Option<PartId> {
        self.of_node[node]
    }

    /// Number of parts, empty ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no parts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The parts.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = PartId> + use<> {
        (0..self.len).map(PartId::from_index)
    }

    /// The nodes of each part, in graph order.
    #[must_use]
    pub fn members(&self, graph: &Graph) -> Vec<Vec<NodeId>> {
        let mut members = vec![Vec::new(); self.len];
        for node in graph.nodes() {
            if let Some(part) = self.part_of(node) {
                members[part.index()].push(node);
            }
        }
        members
    }

    /// Checks that each part can run as a whole: no path leads out of a part and back into it, be
    /// it through other parts or through nodes in none.
    ///
    /// # Errors
    /// [`SplitError::Cycle`] with nodes along one.
    pub fn check(&self, graph: &Graph) -> Result<(), SplitError> {
        self.order(graph, Order::SmallestFirst).map(|_| ())
    }

    /// Like [`check`](Self::check), where some nodes also wait for nodes that they do not use.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_waiting(&self, graph: &Graph, waits: &Waits) -> Result<(), SplitError> {
        self.order_waiting(graph, Order::SmallestFirst, waits)
            .map(|_| ())
    }

    /// Checks that no part uses values of parts with larger ids.
    ///
    /// # Errors
    /// [`SplitError::Order`] with the first node that does.
    pub fn check_ascending(&self, graph: &Graph) -> Result<(), SplitError> {
        self.check_ascending_waiting(graph, &Waits::default())
    }

    /// Like [`check_ascending`](Self::check_ascending), where some nodes also wait for nodes that
    /// they do not use.
    ///
    /// # Errors
    /// [`SplitError::Order`], or [`SplitError::Wait`] for a node that waits.
    pub fn check_ascending_waiting(&self, graph: &Graph, waits: &Waits) -> Result<(), SplitError> {
        for user in graph.nodes() {
            let Some(part) = self.part_of(user) else {
                continue;
            };
            for input in graph.inputs(user) {
                if let Some(later) = self.part_of(input).filter(|&p| p.index() > part.index()) {
                    return Err(SplitError::Order {
                        user: graph.node(user).name().to_owned(),
                        part: part.index(),
                        input: graph.node(input).name().to_owned(),
                        later: later.index(),
                    });
                }
            }
            for &earlier in waits.of(user) {
                if let Some(later) = self.part_of(earlier).filter(|&p| p.index() > part.index()) {
                    return Err(SplitError::Wait {
                        node: graph.node(user).name().to_owned(),
                        part: part.index(),
                        earlier: graph.node(earlier).name().to_owned(),
                        later: later.index(),
                    });
                }
            }
        }
        Ok(())
    }

    /// The parts in an order in which they can run.
    ///
    /// # Errors
    /// [`SplitError::Cycle`] if there is none.
    pub fn order(&self, graph: &Graph, order: Order) -> Result<Vec<PartId>, SplitError> {
        self.order_waiting(graph, order, &Waits::default())
    }

    /// Like [`order`](Self::order), where some nodes also wait for nodes that they do not use.
    ///
    /// # Errors
    /// As [`order`](Self::order).
    pub fn order_waiting(
        &self,
        graph: &Graph,
        order: Order,
        waits: &Waits,
    ) -> Result<Vec<PartId>, SplitError> {
        self.sorted(graph, order, Quotient::of_graph(self, graph, waits))
    }

    /// The parts in an order in which they can run, by the edges of `quotient`.
    pub(super) fn sorted(
        &self,
        graph: &Graph,
        order: Order,
        mut quotient: Quotient,
    ) -> Result<Vec<PartId>, SplitError> {
        quotient
            .sorted(order)
            .ok_or_else(|| self.cycle(graph, &quotient))
    }

    /// The error for a cycle of the quotient, with names of nodes.
    fn cycle(&self, graph: &Graph, quotient: &Quotient) -> SplitError {
        let names = quotient.a_cycle().into_iter().map(|vertex| {
            let node = quotient.node_of(graph, self, vertex);
            node.map_or_else(String::new, |node| graph.node(node).name().to_owned())
        });
        SplitError::Cycle {
            path: names.collect(),
        }
    }
}

/// Parts that were found by putting nodes together.
#[derive(Clone, Debug)]
pub struct Grown {
    /// The parts, in the order of their seeds from the end of the program.
    pub parts: Parts,
    /// The node that each part is named after. When two parts become one, that of the larger one
    /// stays; of two equally large ones, that of the part with the earlier node.
    pub seeds: Vec<NodeId>,
}

/// Parts that are being found, each with its seed and the position of that in the walk.
#[derive(Debug, Default)]
pub(super) struct Growing {
    members: Vec<Vec<NodeId>>,
    seeds: Vec<(usize, NodeId)>,
}

impl Growing {
    pub(super) fn add_with_seed(&mut self, seed: NodeId, position: usize) -> usize {
        self.members.push(Vec::new());
        self.seeds.push((position, seed));
        self.members.len() - 1
    }

    pub(super) fn reseed(&mut self, key: usize, seed: NodeId, position: usize) {
        self.seeds[key] = (position, seed);
    }

    /// Adds a node to a part and returns the part's number of nodes.
    pub(super) fn assign(&mut self, node: NodeId, key: usize) -> usize {
        self.members[key].push(node);
        self.members[key].len()
    }

    pub(super) fn finish(self) -> Grown {
        let mut keys: Vec<usize> = (0..self.members.len()).collect();
        keys.sort_unstable_by_key(|&key| self.seeds[key].0);
        let mut parts = Parts::default();
        let mut seeds = Vec::with_capacity(keys.len());
        for key in keys {
            let part = parts.add();
            self.members[key]
                .iter()
                .for_each(|&node| parts.assign(node, part));
            seeds.push(self.seeds[key].1);
        }
        Grown { parts, seeds }
    }
}

/// The graph in which each part is one vertex, and so is each node that lies between two parts.
pub(super) struct Quotient {
    parts: usize,
    /// The vertices that use a vertex, each once, in the order in which they come to use it.
    users: Vec<Vec<u32>>,
    waits_for: Vec<u32>,
    edges: FxHashSet<(u32, u32)>,
    /// The nodes behind the vertices that are no parts.
    singles: Vec<NodeId>,
}

impl Quotient {
    /// One vertex for each part and no edges.
    pub(super) fn new(parts: usize) -> Self {
        Self {
            parts,
            users: vec![Vec::new(); parts],
            waits_for: vec![0; parts],
            edges: FxHashSet::default(),
            singles: Vec::new(),
        }
    }

    fn of_graph(parts: &Parts, graph: &Graph, waits: &Waits) -> Self {
        // Nodes in no part matter where they use a part, directly or not: only then can a path
        // lead through them.
        let mut vertex: SecondaryMap<NodeId, Option<u32>> =
            SecondaryMap::with_capacity(graph.id_bound());
        let mut quotient = Self::new(parts.len());
        let mut late = Vec::new();
        for node in graph.nodes() {
            let part = parts.part_of(node);
            if let Some(part) = part {
                vertex.set(node, Some(as_u32(part.index())));
            }
            for input in graph.inputs(node).chain(waits.of(node).iter().copied()) {
                if vertex[input].is_none() && graph.is_before(node, input) {
                    late.push((input, node));
                    continue;
                }
                let Some(before) = vertex[input] else {
                    continue;
                };
                let after = match vertex[node] {
                    Some(after) => after,
                    None => {
                        let single = quotient.add_single(node);
                        vertex.set(node, Some(single));
                        single
                    }
                };
                quotient.add_edge(before as usize, after as usize);
            }
        }
        for (input, node) in late {
            if let (Some(before), Some(after)) = (vertex[input], vertex[node]) {
                quotient.add_edge(before as usize, after as usize);
            }
        }
        quotient
    }

    fn add_single(&mut self, node: NodeId) -> u32 {
        self.singles.push(node);
        self.users.push(Vec::new());
        self.waits_for.push(0);
        as_u32(self.users.len() - 1)
    }

    pub(super) fn add_edge(&mut self, before: usize, after: usize) {
        if before != after && self.edges.insert((as_u32(before), as_u32(after))) {
            self.users[before].push(as_u32(after));
            self.waits_for[after] += 1;
        }
    }

    /// The parts in order; None if there is a cycle.
    fn sorted(&mut self, order: Order) -> Option<Vec<PartId>> {
        let mut waits_for = self.waits_for.clone();
        let ready = |waits: &[u32]| -> Vec<u32> {
            let all = 0..as_u32(waits.len());
            all.filter(|&v| waits[v as usize] == 0).collect()
        };
        let mut sorted = Vec::with_capacity(self.parts);
        let mut seen = 0;
        let mut stack = ready(&waits_for);
        if order == Order::SmallestFirst {
            stack.reverse();
        }
        let mut heap = std::collections::BinaryHeap::new();
        if order == Order::SmallestFirst {
            heap.extend(stack.drain(..).map(std::cmp::Reverse));
        }
        loop {
            let next = match order {
                Order::DepthFirst => stack.pop(),
                Order::SmallestFirst => heap.pop().map(|std::cmp::Reverse(v)| v),
            };
            let Some(vertex) = next else { break };
            seen += 1;
            if (vertex as usize) < self.parts {
                sorted.push(PartId::from_index(vertex as usize));
            }
            for &user in &self.users[vertex as usize] {
                let waits = &mut waits_for[user as usize];
                *waits -= 1;
                if *waits == 0 {
                    match order {
                        Order::DepthFirst => stack.push(user),
                        Order::SmallestFirst => heap.push(std::cmp::Reverse(user)),
                    }
                }
            }
        }
        self.waits_for = waits_for;
        (seen == self.users.len()).then_some(sorted)
    }

    /// A cycle among the vertices that still wait after sorting, first one repeated at the end.
    fn a_cycle(&self) -> Vec<usize> {
        let mut before = vec![None; self.users.len()];
        for (vertex, users) in self.users.iter().enumerate() {
            for &user in users {
                if self.waits_for[vertex] > 0 && self.waits_for[user as usize] > 0 {
                    before[user as usize] = Some(vertex);
                }
            }
        }
        let mut place = vec![None; self.users.len()];
        let mut path: Vec<usize> = Vec::new();
        let mut at = (0..self.users.len()).find(|&v| self.waits_for[v] > 0);
        while let Some(vertex) = at {
            if let Some(start) = place[vertex] {
                path.drain(..start);
                path.push(vertex);
                break;
            }
            place[vertex] = Some(path.len());
            path.push(vertex);
            at = before[vertex];
        }
        path.reverse();
        path
    }

    /// A node that the vertex stands for.
    fn node_of(&self, graph: &Graph, parts: &Parts, vertex: usize) -> Option<NodeId> {
        if let Some(single) = vertex.checked_sub(self.parts) {
            return self.singles.get(single).copied();
        }
        let part = PartId::from_index(vertex);
        graph.nodes().find(|&n| parts.part_of(n) == Some(part))
    }
}

fn as_u32(index: usize) -> u32 {
    u32::try_from(index).expect("no more parts and nodes than 32-bit ids")
}
