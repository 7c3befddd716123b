//! Sorts graphs topologically.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::entity::{NodeId, SecondaryMap};
use crate::error::GraphError;
use crate::graph::Graph;

impl Graph {
    /// Orders the nodes so that each comes after all it uses, and returns the number of moved ones.
    ///
    /// Nodes that come too early move to just behind the last node that they wait for; all others
    /// keep their order among themselves, placeholders included. Only order changes: names, uses
    /// and ids stay. Effects that no use expresses (mutation, random numbers) are ignored. Takes
    /// time in proportion to nodes and uses.
    ///
    /// ```
    /// use corsac_ir::Graph;
    ///
    /// let mut graph = Graph::parse(
    ///     "graph v1:
    ///     %y = call_method[target=neg](args = (%x,), kwargs = {})
    ///     %x = placeholder[target=x]",
    /// )?;
    /// assert!(graph.lint().is_err());
    /// assert_eq!(graph.topological_sort()?, 1);
    /// assert!(graph.lint().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`GraphError::Cycle`] if nodes use each other in a cycle; the graph is then as it was.
    pub fn topological_sort(&mut self) -> Result<usize, GraphError> {
        let moves = Placing::new(self).run()?;
        for &(id, after) in &moves {
            self.move_after(id, after)?;
        }
        Ok(moves.len())
    }
}

impl Graph {
    /// Some nodes in an order in which each comes after those of them that it uses; among those
    /// that could come next, the one that comes first in `nodes` does.
    ///
    /// # Errors
    /// [`GraphError::Cycle`] if they use each other in a cycle.
    pub fn sorted(&self, nodes: &[NodeId]) -> Result<Vec<NodeId>, GraphError> {
        let mut place: SecondaryMap<NodeId, Option<u32>> = SecondaryMap::new();
        for (position, &node) in nodes.iter().enumerate() {
            // No more nodes than 32-bit ids.
            place.set(node, u32::try_from(position).ok());
        }
        let waits = |&node: &NodeId| self.inputs(node).filter(|&n| place[n].is_some()).count();
        let mut waits: Vec<usize> = nodes.iter().map(waits).collect();
        let mut ready: BinaryHeap<Reverse<usize>> = BinaryHeap::new();
        ready.extend((0..nodes.len()).filter(|&p| waits[p] == 0).map(Reverse));
        let mut sorted = Vec::with_capacity(nodes.len());
        while let Some(Reverse(position)) = ready.pop() {
            sorted.push(nodes[position]);
            for user in self.users(nodes[position]) {
                if let Some(user) = place[user] {
                    let waits = &mut waits[user as usize];
                    *waits -= 1;
                    if *waits == 0 {
                        ready.push(Reverse(user as usize));
                    }
                }
            }
        }
        if sorted.len() < nodes.len() {
            let stuck = nodes.iter().zip(&waits).filter(|&(_, &waits)| waits > 0);
            let cycle = stuck.map(|(&node, _)| self.node(node).name().to_owned());
            return Err(GraphError::Cycle {
                cycle: cycle.collect(),
            });
        }
        Ok(sorted)
    }

    /// All nodes, each as soon as its inputs are there: a queue, which nodes for which `first`
    /// holds join at the head.
    ///
    /// Source: `torch.fx.passes.tools_common.legalize_graph`.
    ///
    /// # Errors
    /// [`GraphError::Cycle`] if nodes use each other in a cycle.
    pub fn queue_order(
        &self,
        mut first: impl FnMut(NodeId) -> bool,
    ) -> Result<Vec<NodeId>, GraphError> {
        let mut waits: SecondaryMap<NodeId, u32> = SecondaryMap::with_capacity(self.id_bound());
        let mut queue: VecDeque<NodeId> = VecDeque::new();
        for node in self.nodes() {
            let count = self.inputs(node).filter(|&n| self.contains(n)).count();
            waits.set(node, u32::try_from(count).unwrap_or(u32::MAX));
            if count == 0 {
                queue.push_back(node);
            }
        }
        let mut order = Vec::with_capacity(self.len());
        while let Some(node) = queue.pop_front() {
            order.push(node);
            for user in self.users(node) {
                waits[user] -= 1;
                match (waits[user], first(user)) {
                    (0, true) => queue.push_front(user),
                    (0, false) => queue.push_back(user),
                    _ => {}
                }
            }
        }
        if order.len() < self.len() {
            let stuck = self.nodes().filter(|&node| waits[node] > 0);
            let cycle = stuck.map(|node| self.node(node).name().to_owned());
            return Err(GraphError::Cycle {
                cycle: cycle.collect(),
            });
        }
        Ok(order)
    }

    /// Puts all nodes in this order.
    ///
    /// # Errors
    /// [`GraphError::UnknownNode`] or [`GraphError::Erased`] if one is not in the graph.
    pub fn reorder(&mut self, order: &[NodeId]) -> Result<(), GraphError> {
        for &node in order {
            self.check_live(node)?;
        }
        for &node in order {
            self.move_before(node, NodeId::ROOT)?;
        }
        Ok(())
    }
}

/// The state of a node on its way to its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Not reached yet.
    #[default]
    Ahead,
    /// Reached, but this many nodes that it uses are not placed yet.
    Waiting(u32),
    /// In its place.
    Placed,
}

struct Placing<'g> {
    graph: &'g Graph,
    states: SecondaryMap<NodeId, State>,
    /// Waiting nodes that wait for nothing any more; the one that came first goes first.
    ready: BinaryHeap<Reverse<(u64, NodeId)>>,
    last_placed: NodeId,
    /// Nodes that move, each with the node that it comes right after.
    moves: Vec<(NodeId, NodeId)>,
}

impl<'g> Placing<'g> {
    fn new(graph: &'g Graph) -> Self {
        Self {
            graph,
            states: SecondaryMap::with_capacity(graph.id_bound()),
            ready: BinaryHeap::new(),
            last_placed: NodeId::ROOT,
            moves: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Vec<(NodeId, NodeId)>, GraphError> {
        let mut waiting = 0_usize;
        for id in self.graph.nodes() {
            // Erased nodes will never be placed; the verifier reports them.
            let missing = self
                .graph
                .inputs(id)
                .filter(|&input| self.is_to_come(input))
                .count();
            if missing > 0 {
                // No node has more inputs than there are ids.
                self.states.set(
                    id,
                    State::Waiting(u32::try_from(missing).unwrap_or(u32::MAX)),
                );
                waiting += 1;
                continue;
            }
            self.place(id);
            while let Some(Reverse((_, late))) = self.ready.pop() {
                self.moves.push((late, self.last_placed));
                self.place(late);
                waiting -= 1;
            }
        }
        if waiting > 0 {
            return Err(self.cycle());
        }
        Ok(self.moves)
    }

    fn is_to_come(&self, id: NodeId) -> bool {
        self.states[id] != State::Placed && self.graph.contains(id)
    }

    fn place(&mut self, id: NodeId) {
        self.states.set(id, State::Placed);
        self.last_placed = id;
        for user in self.graph.users(id) {
            if let State::Waiting(missing) = self.states[user] {
                self.states.set(user, State::Waiting(missing - 1));
                if missing == 1 {
                    let order = self.graph.order(user);
                    self.ready.push(Reverse((order, user)));
                }
            }
        }
    }

    /// A cycle among the nodes that still wait: each of them uses another one, or itself.
    fn cycle(&self) -> GraphError {
        let mut at = self.graph.nodes().find(|&id| self.is_to_come(id));
        let mut path: Vec<NodeId> = Vec::new();
        let mut position: SecondaryMap<NodeId, Option<u32>> = SecondaryMap::new();
        while let Some(id) = at {
            if let Some(start) = position[id] {
                path.drain(..start as usize);
                path.push(id);
                break;
            }
            // No more nodes than 32-bit ids.
            position.set(id, u32::try_from(path.len()).ok());
            path.push(id);
            at = self.graph.inputs(id).find(|&input| self.is_to_come(input));
        }
        GraphError::Cycle {
            cycle: path
                .into_iter()
                .map(|id| self.graph.node(id).name().to_owned())
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph with a line `name <- uses` for each node.
    fn graph(lines: &[(&str, &[&str])]) -> Graph {
        let mut text = String::from("graph v1:\n");
        for (name, uses) in lines {
            let args: String = uses.iter().map(|used| format!("%{used}, ")).collect();
            text += &format!("%{name} = call_method[target=f](args = ({args}), kwargs = {{}})\n");
        }
        Graph::parse(&text).unwrap()
    }

    fn order(graph: &Graph) -> String {
        let names: Vec<_> = graph.nodes().map(|id| graph.node(id).name()).collect();
        names.join(" ")
    }

    #[test]
    fn nodes_that_come_too_early_move_and_others_stay() {
        type Lines = &'static [(&'static str, &'static [&'static str])];
        let cases: &[(Lines, &str, usize)] = &[
            (&[("a", &[]), ("b", &["a"]), ("c", &[])], "a b c", 0),
            (&[("b", &["a"]), ("c", &[]), ("a", &[])], "c a b", 1),
            (
                &[("out", &["c"]), ("p", &[]), ("q", &[]), ("c", &["q", "p"])],
                "p q c out",
                1,
            ),
            (
                &[
                    ("d", &["c", "b"]),
                    ("c", &["b"]),
                    ("b", &["a"]),
                    ("a", &[]),
                    ("z", &[]),
                ],
                "a b c d z",
                3,
            ),
            (&[("y", &["a"]), ("x", &["a"]), ("a", &[])], "a y x", 2),
        ];
        for (lines, expected, moved) in cases {
            let mut graph = graph(lines);
            assert_eq!(graph.topological_sort(), Ok(*moved));
            assert_eq!(order(&graph), *expected);
            assert_eq!(graph.verify(), Ok(()));
        }
    }

    #[test]
    fn a_cycle_is_named_and_nothing_moves() {
        let mut circle = graph(&[
            ("e", &["d"]),
            ("b", &["a", "c"]),
            ("c", &["d"]),
            ("d", &["b"]),
            ("a", &[]),
        ]);
        let error = circle.topological_sort().unwrap_err();
        assert_eq!(
            error.to_string(),
            "nodes use each other in a cycle: d -> b -> c -> d"
        );
        assert_eq!(order(&circle), "e b c d a");
        let mut own = graph(&[("a", &["a"])]);
        let cycle = vec!["a".to_owned(), "a".to_owned()];
        assert_eq!(own.topological_sort(), Err(GraphError::Cycle { cycle }));
    }

    #[test]
    fn a_long_chain_backwards() {
        let names: Vec<_> = (0..20_000).map(|i| format!("n{i}")).collect();
        let text: String = (1..names.len())
            .map(|i| {
                format!(
                    "%{} = call_method[target=f](args = (%{},), kwargs = {{}})\n",
                    names[i - 1],
                    names[i]
                )
            })
            .collect();
        let mut graph =
            Graph::parse(&format!("graph v1:\n{text}%n19999 = placeholder[target=x]")).unwrap();
        assert_eq!(graph.topological_sort(), Ok(19_999));
        assert_eq!(graph.verify(), Ok(()));
    }
}
