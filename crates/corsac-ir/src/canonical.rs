//! One order and one hash for all graphs that are the same but for the names of their values and
//! the order of independent nodes.
//!
//! Each node gets a colour: first from its opcode, target and the colours of its inputs, so that
//! equal colours mean equal values; then from its users as well, and so on until no more nodes can
//! be told apart. The hash of a graph is that of its colours. Nodes that have one colour in the end
//! compute the same value and are used in the same way, so graphs of one hash may differ only in
//! the order of such nodes. Two different graphs have one hash with a probability of
//! about 2⁻¹²⁸ for each pair that is compared. The hash is the same in every process of
//! one build, unless it depends on host values that are not.
//!
//! Reference: R. C. Merkle, "A digital signature based on a conventional encryption function",
//! CRYPTO 1987; B. Weisfeiler and A. Leman, "The reduction of a graph to canonical form", 1968.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::arg::Arg;
use crate::entity::{ExternalId, NodeId, SecondaryMap};
use crate::graph::Graph;
use crate::op::{Op, Target};

/// Constraints on the order of nodes besides data dependencies.
pub trait Constraints {
    /// The node whose effect `node` depends on without using its value: for a node that uses random
    /// numbers, the one before that does.
    fn state(&self, node: NodeId) -> Option<NodeId>;

    /// Nodes that have to come before `node` though it does not depend on them: readers of the
    /// values that it writes to.
    fn after(&self, node: NodeId) -> &[NodeId];

    /// The last node before `user` that wrote to the value of `input`, which `user` uses.
    fn version(&self, user: NodeId, input: NodeId) -> Option<NodeId>;
}

/// Data dependencies alone: for graphs without writes, random numbers and other effects.
#[derive(Clone, Copy, Debug, Default)]
pub struct DataFlow;

impl Constraints for DataFlow {
    fn state(&self, _node: NodeId) -> Option<NodeId> {
        None
    }

    fn after(&self, _node: NodeId) -> &[NodeId] {
        &[]
    }

    fn version(&self, _user: NodeId, _input: NodeId) -> Option<NodeId> {
        None
    }
}

/// Decides whether two host values count as the same.
pub trait ExternalIdentity {
    /// A text that is equal for host values that count as the same; `None` for a value that is
    /// identified by the place of its first occurrence only.
    fn text(&self, graph: &Graph, external: ExternalId) -> Option<String>;
}

/// Identifies host values by name, where the graph has one, otherwise by where they first occur.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByOccurrence;

impl ExternalIdentity for ByOccurrence {
    fn text(&self, graph: &Graph, external: ExternalId) -> Option<String> {
        graph.external_name(external).map(str::to_owned)
    }
}

/// The canonical form of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canonical {
    /// The nodes in canonical order, in which definitions come before uses.
    pub order: Vec<NodeId>,
    /// Equal for graphs that are the same.
    pub hash: u128,
}

impl Graph {
    /// The hash of the graph's data flow: [`canonical`] without constraints.
    ///
    /// ```
    /// use corsac_ir::{Arg, Graph};
    ///
    /// let program = |first: &str, second: &str| {
    ///     let mut graph = Graph::new();
    ///     let x = graph.placeholder("x")?;
    ///     for name in [first, second] {
    ///         graph.call_method(name, [x.into()])?;
    ///     }
    ///     Ok::<_, corsac_ir::GraphError>(graph.canonical_hash())
    /// };
    /// assert_eq!(program("sin", "cos")?, program("cos", "sin")?);
    /// assert_ne!(program("sin", "cos")?, program("sin", "tan")?);
    /// # Ok::<(), corsac_ir::GraphError>(())
    /// ```
    #[must_use]
    pub fn canonical_hash(&self) -> u128 {
        canonical(self, &DataFlow, &ByOccurrence).hash
    }
}

/// The canonical form of `graph`, in which definitions have to come before uses.
///
/// Compared: opcodes, targets, arguments (keyword arguments in any order), the order of inputs,
/// and `constraints`. Ignored: names of values, type annotations, origins of nodes, and the order
/// of independent nodes.
#[must_use]
pub fn canonical(
    graph: &Graph,
    constraints: &dyn Constraints,
    identity: &dyn ExternalIdentity,
) -> Canonical {
    let mut colours = Colours {
        graph,
        constraints,
        identity,
        texts: FxHashMap::default(),
        of_node: SecondaryMap::with_capacity(graph.id_bound()),
    };
    let mut classes = colours.forward();
    // Most graphs have no two nodes that compute the same, or tell them apart in one round.
    while classes < graph.len() {
        colours.backward();
        let refined = colours.forward();
        if refined <= classes {
            break;
        }
        classes = refined;
    }
    let mut all: Vec<u128> = graph.nodes().map(|n| *colours.of_node.get(n)).collect();
    all.sort_unstable();
    let mut state = SipHasher13::new();
    all.hash(&mut state);
    Canonical {
        order: in_order(graph, constraints, &colours.of_node),
        hash: state.finish128().as_u128(),
    }
}

struct Colours<'a> {
    graph: &'a Graph,
    constraints: &'a dyn Constraints,
    identity: &'a dyn ExternalIdentity,
    /// For each host value, its text or the number of its first occurrence.
    texts: FxHashMap<ExternalId, Result<String, u32>>,
    of_node: SecondaryMap<NodeId, u128>,
}

impl Colours<'_> {
    /// Colours nodes by content and inputs, and by their present colours. Returns the number of
    /// colours.
    fn forward(&mut self) -> usize {
        let mut distinct = FxHashSet::default();
        let mut inputs = 0_u32;
        let mut next = SecondaryMap::with_capacity(self.graph.id_bound());
        std::mem::swap(&mut next, &mut self.of_node);
        // `next` has the colours of the round before.
        for id in self.graph.nodes() {
            let node = self.graph.node(id);
            let mut state = SipHasher13::new();
            next.get(id).hash(&mut state);
            (node.op() as u8).hash(&mut state);
            if node.op() == Op::Placeholder {
                inputs.hash(&mut state);
                inputs += 1;
            }
            match node.target() {
                Target::Name(name) => self.graph.text(name).hash(&mut state),
                Target::Function(function) => {
                    self.graph.function_name(function).hash(&mut state);
                    if let Some(external) = self.graph.function_info(function).external {
                        self.external(external, &mut state);
                    }
                }
            }
            node.args().len().hash(&mut state);
            for arg in node.args() {
                self.arg(id, arg, &mut state);
            }
            let mut kwargs: Vec<_> = node.kwargs().iter().collect();
            kwargs.sort_unstable_by_key(|(key, _)| self.graph.text(*key));
            for (key, arg) in kwargs {
                self.graph.text(*key).hash(&mut state);
                self.arg(id, arg, &mut state);
            }
            self.optional(self.constraints.state(id), &mut state);
            let colour = state.finish128().as_u128();
            distinct.insert(colour);
            self.of_node.set(id, colour);
        }
        distinct.len()
    }

    /// Mixes into the colour of each node those of its users, with the places at which they use it.
    fn backward(&mut self) {
        let mut uses: SecondaryMap<NodeId, Vec<u128>> =
            SecondaryMap::with_capacity(self.graph.id_bound());
        for id in self.graph.nodes().rev() {
            // Uses count as often as there are, in any order.
            let mut found = std::mem::take(uses.get_mut(id));
            found.sort_unstable();
            let mut state = SipHasher13::new();
            self.of_node.get(id).hash(&mut state);
            found.hash(&mut state);
            let colour = state.finish128().as_u128();
            self.of_node.set(id, colour);

            let node = self.graph.node(id);
            let mut place = 0_u32;
            let mut visit = |used| {
                let mut state = SipHasher13::new();
                (colour, place).hash(&mut state);
                uses.get_mut(used).push(state.finish128().as_u128());
                place += 1;
            };
            node.args().iter().for_each(|a| a.for_each_node(&mut visit));
            let mut kwargs: Vec<_> = node.kwargs().iter().collect();
            kwargs.sort_unstable_by_key(|(key, _)| self.graph.text(*key));
            for (_, arg) in kwargs {
                arg.for_each_node(&mut visit);
            }
        }
    }

    fn optional(&self, node: Option<NodeId>, state: &mut SipHasher13) {
        node.map(|node| *self.of_node.get(node)).hash(state);
    }

    fn external(&mut self, external: ExternalId, state: &mut SipHasher13) {
        let occurrence = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let (graph, identity) = (self.graph, self.identity);
        let text = self.texts.entry(external);
        text.or_insert_with(|| identity.text(graph, external).ok_or(occurrence))
            .hash(state);
    }

    fn arg(&mut self, user: NodeId, arg: &Arg, state: &mut SipHasher13) {
        std::mem::discriminant(arg).hash(state);
        match arg {
            Arg::None | Arg::Ellipsis => {}
            Arg::Bool(x) => x.hash(state),
            Arg::Int(x) => x.hash(state),
            Arg::BigInt(x) => x.hash(state),
            Arg::Float(x) => x.to_bits().hash(state),
            Arg::Complex(x) => (x.0.to_bits(), x.1.to_bits()).hash(state),
            Arg::Str(x) => self.graph.text(*x).hash(state),
            Arg::Bytes(x) => x.hash(state),
            Arg::DType(x) => x.name().hash(state),
            Arg::Device(x) => x.to_string().hash(state),
            Arg::Layout(x) => x.name().hash(state),
            Arg::MemoryFormat(x) => x.name().hash(state),
            Arg::Node(input) => {
                self.of_node.get(*input).hash(state);
                self.optional(self.constraints.version(user, *input), state);
            }
            Arg::Tuple(x) | Arg::List(x) | Arg::Slice(x) | Arg::Range(x) => {
                x.len().hash(state);
                x.iter().for_each(|item| self.arg(user, item, state));
            }
            Arg::Dict(x) => {
                x.len().hash(state);
                for (key, value) in x.iter() {
                    self.arg(user, key, state);
                    self.arg(user, value, state);
                }
            }
            Arg::NamedTuple(x) => {
                self.external(x.0, state);
                x.1.len().hash(state);
                x.1.iter().for_each(|item| self.arg(user, item, state));
            }
            Arg::Opaque(x) => self.external(*x, state),
        }
    }
}

/// The sort key of a node whose dependencies have all been placed: its kind (inputs first, the
/// output last), its colour, the places of the nodes it uses, its place in the graph.
type Ready = (u8, u128, Vec<u32>, u32);

/// The nodes in an order that depends on colours alone, as far as those tell them apart.
fn in_order(
    graph: &Graph,
    constraints: &dyn Constraints,
    colours: &SecondaryMap<NodeId, u128>,
) -> Vec<NodeId> {
    let nodes: Vec<NodeId> = graph.nodes().collect();
    let mut index: SecondaryMap<NodeId, u32> = SecondaryMap::with_capacity(graph.id_bound());
    for (place, &node) in (0..).zip(&nodes) {
        index.set(node, place);
    }
    let mut waits_for = vec![0_u32; nodes.len()];
    let mut followers: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
    for (place, &node) in (0_u32..).zip(&nodes) {
        let mut before: Vec<NodeId> = graph.inputs(node).collect();
        before.extend(
            graph
                .inputs(node)
                .filter_map(|input| constraints.version(node, input)),
        );
        before.extend(constraints.state(node));
        before.extend_from_slice(constraints.after(node));
        before.sort_unstable();
        before.dedup();
        waits_for[place as usize] = before.len() as u32;
        for node in before {
            followers[*index.get(node) as usize].push(place);
        }
    }
    let mut position = vec![0_u32; nodes.len()];
    let mut inputs = 0_u128;
    let mut ready: BinaryHeap<Reverse<Ready>> = BinaryHeap::new();
    let mut entry = |place: u32, position: &[u32]| {
        let node = nodes[place as usize];
        let (first, colour) = match graph.node(node).op() {
            Op::Placeholder => {
                inputs += 1;
                (0, inputs)
            }
            Op::Output => (2, 0),
            Op::GetAttr | Op::CallFunction | Op::CallMethod | Op::CallModule => {
                (1, *colours.get(node))
            }
        };
        let used = graph.inputs(node);
        let used = used.map(|n| position[*index.get(n) as usize]).collect();
        Reverse((first, colour, used, place))
    };
    for place in 0..nodes.len() as u32 {
        if waits_for[place as usize] == 0 {
            ready.push(entry(place, &position));
        }
    }
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse((.., place))) = ready.pop() {
        position[place as usize] = order.len() as u32;
        order.push(nodes[place as usize]);
        for follower in std::mem::take(&mut followers[place as usize]) {
            let waits = &mut waits_for[follower as usize];
            *waits -= 1;
            if *waits == 0 {
                ready.push(entry(follower, &position));
            }
        }
    }
    order
}
