//! Whether a value may be computed at another place, or be another tensor: the places of writes,
//! and the values that the caller gets.

use corsac_ir::{Graph, NodeId, SecondaryMap};
use corsac_ops::{ClassId, Effects};

use crate::analysis::Analysis;
use crate::common_subexpressions::returned;
use crate::tensors::TensorFacts;

/// Places in the program, counted from one.
type Place = u32;

/// The places of writes, kept up to date while the graph is rewritten.
pub(crate) struct Hazards {
    place: SecondaryMap<NodeId, Place>,
    class: SecondaryMap<NodeId, u32>,
    /// By class: the places where it is written to, ascending.
    writes: Vec<Vec<Place>>,
    /// Places of barriers, after which a call may have another result, ascending.
    barriers: Vec<Place>,
    /// By class: whether the caller gets a value of it.
    returned: Vec<bool>,
    /// Nodes that do more than compute a value.
    impure: SecondaryMap<NodeId, bool>,
    /// Nodes that read parameters or buffers by themselves.
    reads_state: SecondaryMap<NodeId, bool>,
    /// Nodes whose value may share storage with another.
    shares: SecondaryMap<NodeId, bool>,
}

impl Hazards {
    pub(crate) fn of(graph: &Graph, analysis: &Analysis, facts: &TensorFacts) -> Self {
        let bound = graph.id_bound();
        let mut hazards = Self {
            place: SecondaryMap::with_capacity(bound),
            class: SecondaryMap::with_capacity(bound),
            writes: vec![Vec::new(); bound],
            barriers: Vec::new(),
            returned: vec![false; bound],
            impure: SecondaryMap::new(),
            reads_state: SecondaryMap::new(),
            shares: SecondaryMap::new(),
        };
        let is_returned = returned(graph, analysis, |node| facts.dtype(node).is_some());
        for (index, node, effects) in analysis.walk() {
            let (place, class) = (index + 1, analysis.classes.class(node));
            hazards.place.set(node, place);
            hazards.class.set(node, class.index() as u32);
            hazards.returned[class.index()] |= is_returned[corsac_ir::EntityId::index(node)];
            if !effects.is_plain() {
                hazards.special(node, effects, place, analysis);
            }
        }
        hazards
    }

    fn special(&mut self, node: NodeId, effects: &Effects, place: Place, analysis: &Analysis) {
        for &written in &effects.mutates {
            let class = analysis.classes.class(written).index();
            self.writes[class].push(place);
        }
        if effects.writes_state {
            self.writes[ClassId::OUTSIDE.index()].push(place);
        }
        if effects.barrier {
            self.barriers.push(place);
        }
        let repeatable = effects.is_pure() && !effects.unrepeatable;
        self.impure.set(node, !repeatable);
        self.reads_state.set(node, effects.reads_state);
        self.shares.set(node, !effects.aliases.is_empty());
    }

    /// Whether a node only computes a value from its arguments, and from parameters and buffers.
    pub(crate) fn is_pure(&self, node: NodeId) -> bool {
        !self.impure[node]
    }

    /// Whether a node reads parameters or buffers by itself.
    pub(crate) fn reads_state(&self, node: NodeId) -> bool {
        self.reads_state[node]
    }

    /// Whether a parameter, a buffer or an input is written to between the places of `first` and
    /// `last`.
    pub(crate) fn state_written_between(&self, first: NodeId, last: NodeId) -> bool {
        let writes = &self.writes[ClassId::OUTSIDE.index()];
        let after = writes.partition_point(|&place| place <= self.place[first]);
        writes
            .get(after)
            .is_some_and(|&place| place < self.place[last])
    }

    /// Whether the value of a node may share storage with another.
    pub(crate) fn shares(&self, node: NodeId) -> bool {
        self.shares[node]
    }

    fn last_write(&self, node: NodeId) -> Place {
        let writes = &self.writes[self.class[node] as usize];
        writes.last().copied().unwrap_or(0)
    }

    /// The first of `inputs` that is written to between the places of `first` and `last`, if any.
    pub(crate) fn written_between(
        &self,
        inputs: impl IntoIterator<Item = NodeId>,
        first: NodeId,
        last: NodeId,
    ) -> Option<NodeId> {
        let (first, last) = (self.place[first], self.place[last]);
        let within = |places: &[Place]| {
            let after = places.partition_point(|&place| place <= first);
            places.get(after).is_some_and(|&place| place < last)
        };
        inputs
            .into_iter()
            .find(|&input| within(&self.writes[self.class[input] as usize]))
    }

    /// Whether there is a barrier between the two, after which calls may have other results.
    pub(crate) fn barrier_between(&self, first: NodeId, last: NodeId) -> bool {
        let (first, last) = (self.place[first], self.place[last]);
        let after = self.barriers.partition_point(|&place| place <= first);
        self.barriers.get(after).is_some_and(|&place| place < last)
    }

    /// Whether the value of `node` is written to, through any name, after the place of `since`.
    pub(crate) fn written_after(&self, node: NodeId, since: NodeId) -> bool {
        self.last_write(node) > self.place[since]
    }

    /// Whether the value of `node` is written to anywhere, through any name.
    pub(crate) fn is_written(&self, node: NodeId) -> bool {
        self.last_write(node) > 0
    }

    /// Number of barriers up to and including `node`.
    pub(crate) fn barriers_before(&self, node: NodeId) -> usize {
        let place = self.place[node];
        self.barriers.partition_point(|&barrier| barrier <= place)
    }

    /// Whether the caller gets the value of `node`, or one that shares storage with it.
    pub(crate) fn is_returned(&self, node: NodeId) -> bool {
        self.returned[self.class[node] as usize]
    }

    /// Whether the value of `node` comes from outside the program.
    pub(crate) fn is_outside(&self, node: NodeId) -> bool {
        self.class[node] as usize == ClassId::OUTSIDE.index()
    }

    /// Adds a new node at the place of `root`, with a class of its own.
    pub(crate) fn add(&mut self, node: NodeId, root: NodeId) {
        self.place.set(node, self.place[root]);
        self.class.set(node, self.writes.len() as u32);
        self.writes.push(Vec::new());
        self.returned.push(false);
    }

    /// Records that a new node calls a module, which reads parameters or buffers.
    pub(crate) fn set_reads_state(&mut self, node: NodeId) {
        self.reads_state.set(node, true);
    }

    /// Records that the value of a new node comes from outside the program.
    pub(crate) fn set_outside(&mut self, node: NodeId) {
        self.class.set(node, ClassId::OUTSIDE.index() as u32);
    }

    /// Replaces `root` by a node, new or not, which takes over its place.
    pub(crate) fn replace(&mut self, root: NodeId, new: NodeId, is_new: bool) {
        if is_new {
            self.class.set(new, self.class[root]);
            self.shares.set(new, self.shares[root]);
        } else {
            let returned = self.is_returned(root);
            self.returned[self.class[new] as usize] |= returned;
        }
    }

    /// Records that the value of a new node may share storage with others, such as `like`.
    pub(crate) fn set_shares(&mut self, node: NodeId, like: Option<NodeId>) {
        self.shares.set(node, true);
        if let Some(like) = like {
            self.class.set(node, self.class[like]);
        }
    }
}
