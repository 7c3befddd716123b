//! The chosen program as a change of the graph, which is planned first and then applied.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use corsac_ir::{Arg, Graph, GraphError, NodeId, NodeSpec, Op, SecondaryMap};
use rustc_hash::FxHashMap;

use super::chosen::Chosen;
use super::language::{Call, Head};
use super::region::Region;
use crate::edits::Added;

/// The node that computes a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// An existing node.
    Node(NodeId),
    /// A new node, by its number in the plan.
    New(usize),
}

/// A node to be added.
#[derive(Clone, Debug)]
struct NewNode {
    call: Call,
    operands: Vec<By>,
    /// The node that it replaces, or for which it is an intermediate value.
    home: NodeId,
    has_its_value: bool,
}

/// A change of one region.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// The node before which the region begins.
    first: Option<NodeId>,
    new: Vec<NewNode>,
    /// Nodes that stay with other operands, each with pairs of present and new operand.
    rewired: Vec<(NodeId, Vec<(NodeId, By)>)>,
    /// The order of the nodes that stay and the new ones.
    order: Vec<By>,
    /// Nodes that are removed, in order, with replacements where they are still used.
    replaced: Vec<(NodeId, Option<By>)>,
}

/// Added, erased and replaced nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// New nodes, each after those that it uses.
    pub added: Vec<Added>,
    /// Nodes that were erased.
    pub erased: Vec<NodeId>,
    /// Erased nodes with replacements, where they were still used; sorted by node.
    pub replaced: Vec<(NodeId, NodeId)>,
}

impl Applied {
    /// The replacement of an erased node, as text for messages.
    #[must_use]
    pub fn in_place_of(&self, graph: &Graph, node: NodeId) -> Option<String> {
        let at = self.replaced.binary_search_by_key(&node, |(old, _)| *old);
        let (_, new) = self.replaced.get(at.ok()?)?;
        let (old, new) = (graph.node(node), graph.node(*new));
        // A node that has inherited the name is shown by its target.
        let shown = if old.name() == new.name() {
            new.target_name()
        } else {
            new.name()
        };
        Some(shown.to_owned())
    }
}

impl Plan {
    /// The change that makes `region` compute the chosen program; `None` if there is no order for
    /// it, because a new node would have to come before one that it uses.
    pub(super) fn of(graph: &Graph, region: &Region, chosen: &Chosen<'_>) -> Option<Self> {
        Drafting::new(graph, region, chosen).plan()
    }

    /// The nodes that are removed.
    pub(super) fn replaced(&self) -> impl Iterator<Item = NodeId> {
        self.replaced.iter().map(|&(node, _)| node)
    }

    /// Makes the change. `now` has the replacements of nodes of earlier regions; those of this one
    /// are added.
    ///
    /// # Errors
    /// If the graph has changed since the plan was made.
    pub(super) fn apply(
        self,
        graph: &mut Graph,
        now: &mut FxHashMap<NodeId, NodeId>,
        applied: &mut Applied,
    ) -> Result<(), GraphError> {
        let Some(first) = self.first else {
            return Ok(());
        };
        let mut made: Vec<NodeId> = Vec::with_capacity(self.new.len());
        let mut earlier = graph.prev(first);
        // New nodes by the order in which they are made.
        let mut number: Vec<Option<usize>> = vec![None; self.new.len()];
        for item in &self.order {
            let node = match *item {
                By::Node(node) => {
                    if !earlier.is_root() && !graph.is_before(earlier, node) {
                        graph.move_after(node, earlier)?;
                    }
                    node
                }
                By::New(new) => {
                    let draft = &self.new[new];
                    let operands: Vec<NodeId> = draft
                        .operands
                        .iter()
                        .map(|&by| resolve(by, &made, &number, now))
                        .collect();
                    let (args, kwargs) = draft.call.arguments(&|k| operands[k])?;
                    let spec = NodeSpec {
                        op: draft.call.op,
                        target: draft.call.target,
                        args,
                        kwargs,
                        ty: None,
                    };
                    let node = graph.create(spec, None)?;
                    graph.set_origin(node, graph.origin(draft.home));
                    graph.move_after(node, earlier)?;
                    applied.added.push(Added {
                        node,
                        root: draft.home,
                        has_its_value: draft.has_its_value,
                    });
                    number[new] = Some(made.len());
                    made.push(node);
                    node
                }
            };
            earlier = node;
        }
        for (node, inputs) in self.rewired {
            let inputs: Vec<(NodeId, NodeId)> = inputs
                .into_iter()
                .map(|(old, by)| (old, resolve(by, &made, &number, now)))
                .collect();
            exchange_inputs(graph, node, &inputs)?;
        }
        for &(node, by) in &self.replaced {
            if let Some(by) = by {
                let by = resolve(by, &made, &number, now);
                graph.replace_all_uses(node, by)?;
                now.insert(node, by);
                applied.replaced.push((node, by));
            }
        }
        for &(node, _) in self.replaced.iter().rev() {
            graph.erase(node)?;
            applied.erased.push(node);
        }
        // A node with the value of an erased node gets its name.
        for (new, draft) in self.new.iter().enumerate() {
            if draft.has_its_value
                && let Some(at) = number[new]
            {
                let name = graph.node(draft.home).name().to_owned();
                graph.set_name(made[at], &name)?;
            }
        }
        Ok(())
    }
}

/// Replaces inputs of a node, all at once.
fn exchange_inputs(
    graph: &mut Graph,
    node: NodeId,
    inputs: &[(NodeId, NodeId)],
) -> Result<(), GraphError> {
    graph.map_inputs(node, |used| {
        let found = inputs.iter().find(|(old, _)| *old == used);
        found.map(|&(_, new)| Arg::Node(new))
    })
}

fn resolve(
    by: By,
    made: &[NodeId],
    number: &[Option<usize>],
    now: &FxHashMap<NodeId, NodeId>,
) -> NodeId {
    match by {
        By::Node(node) => now.get(&node).copied().unwrap_or(node),
        By::New(new) => made[number[new].expect("what is used comes first")],
    }
}

/// A plan in the making.
struct Drafting<'a, 'c> {
    graph: &'a Graph,
    region: &'a Region,
    chosen: &'a Chosen<'c>,
    plan: Plan,
    /// The node that computes each class in use.
    by: Vec<Option<By>>,
    /// By node of the region: its place, counted from one.
    place: SecondaryMap<NodeId, u32>,
    /// By new node: its preferred place.
    wanted: Vec<u32>,
}

impl<'a, 'c> Drafting<'a, 'c> {
    fn new(graph: &'a Graph, region: &'a Region, chosen: &'a Chosen<'c>) -> Self {
        let mut place = SecondaryMap::with_capacity(graph.id_bound());
        for (at, &node) in (1..).zip(&region.nodes) {
            place.set(node, at);
        }
        Self {
            graph,
            region,
            chosen,
            plan: Plan {
                first: region.nodes.first().copied(),
                ..Plan::default()
            },
            by: vec![None; chosen.classes()],
            place,
            wanted: Vec::new(),
        }
    }

    fn plan(mut self) -> Option<Plan> {
        let in_use = self.chosen.in_use();
        for &class in &in_use {
            self.draft(class)?;
        }
        for class in 0..self.chosen.classes() as u32 {
            let by = self.by[class as usize];
            let gone = self.chosen.replaced_by(class).iter();
            self.plan.replaced.extend(gone.map(|&node| (node, by)));
        }
        for &node in &self.region.free {
            if self.chosen.stays(node) {
                for input in self.graph.inputs(node) {
                    if let Some(By::New(new)) = self.operand(input) {
                        self.want(new, self.place[node], node);
                    }
                }
            }
        }
        // Users come later: a node without a place of its own goes before the first of them.
        for &class in in_use.iter().rev() {
            let Some(By::New(new)) = self.by[class as usize] else {
                continue;
            };
            let (wanted, home) = (self.wanted[new], self.plan.new[new].home);
            for at in 0..self.plan.new[new].operands.len() {
                if let By::New(operand) = self.plan.new[new].operands[at] {
                    self.want(operand, wanted, home);
                }
            }
        }
        self.rewire()?;
        self.order()?;
        Some(self.plan)
    }

    /// Moves a new node that replaces none to the place of the first of its users.
    fn want(&mut self, new: usize, place: u32, home: NodeId) {
        if !self.plan.new[new].has_its_value && place < self.wanted[new] {
            self.wanted[new] = place;
            self.plan.new[new].home = home;
        }
    }

    /// Decides which node computes a class; the classes that it uses were decided before.
    fn draft(&mut self, class: u32) -> Option<()> {
        let chosen = self.chosen;
        let node = chosen.e_node(class)?;
        let by = match chosen.head(node) {
            Head::Leaf(leaf) => By::Node(*leaf),
            Head::Call(call) => match chosen.node_of(class) {
                Some(node) => By::Node(node),
                None => {
                    let operands = node.children.iter();
                    let operands = operands.map(|&child| self.by[chosen.class(child) as usize]);
                    let operands: Option<Vec<By>> = operands.collect();
                    let replaced = chosen.replaced_by(class);
                    let home = replaced.first().copied();
                    self.plan.new.push(NewNode {
                        call: call.clone(),
                        operands: operands?,
                        // A node without a place gets one from its users.
                        home: home.or_else(|| self.region.free.last().copied())?,
                        has_its_value: home.is_some(),
                    });
                    self.wanted
                        .push(home.map_or(u32::MAX, |node| self.place[node]));
                    By::New(self.plan.new.len() - 1)
                }
            },
        };
        self.by[class as usize] = Some(by);
        Some(())
    }

    /// Makes the nodes that stay use those that compute the classes of their operands.
    fn rewire(&mut self) -> Option<()> {
        for &node in &self.region.free {
            if !self.chosen.stays(node) {
                continue;
            }
            let mut inputs: Vec<(NodeId, By)> = Vec::new();
            for input in self.graph.inputs(node) {
                let by = self.operand(input)?;
                if by != By::Node(input) && !inputs.iter().any(|(known, _)| *known == input) {
                    inputs.push((input, by));
                }
            }
            if !inputs.is_empty() {
                self.plan.rewired.push((node, inputs));
            }
        }
        self.plan
            .replaced
            .sort_unstable_by_key(|(node, _)| self.place[*node]);
        Some(())
    }

    /// The node that a free node uses in place of `input`.
    fn operand(&self, input: NodeId) -> Option<By> {
        match self.chosen.class_of(input) {
            Some(class) => self.by[class as usize],
            None => Some(By::Node(input)),
        }
    }

    /// The node that a node that is not free uses in place of `input`.
    fn seen_outside(&self, input: NodeId) -> Option<By> {
        let is_replaced = self.chosen.is_free(input) && !self.chosen.stays(input);
        if is_replaced {
            self.operand(input)
        } else {
            Some(By::Node(input))
        }
    }

    /// Puts the nodes that stay and the new ones in an order close to the present one: of the nodes
    /// that may come next, the first in the program does.
    fn order(&mut self) -> Option<()> {
        let (region, new_count) = (self.region, self.plan.new.len());
        let stays = |node: NodeId| !self.chosen.is_free(node) || self.chosen.stays(node);
        // Items: the places of the region, then the new nodes.
        let places = region.nodes.len();
        let items = places + new_count;
        let item_of = |by: By| match by {
            By::Node(node) => (self.place[node] as usize).checked_sub(1),
            By::New(new) => Some(places + new),
        };
        let mut users: Vec<Vec<u32>> = vec![Vec::new(); items];
        let mut missing = vec![0_u32; items];
        let mut needs = |item: usize, by: By| {
            if let Some(used) = item_of(by) {
                users[used].push(item as u32);
                missing[item] += 1;
            }
        };
        let mut fixed: Option<NodeId> = None;
        for (item, &node) in region.nodes.iter().enumerate() {
            if !stays(node) {
                continue;
            }
            let is_free = self.chosen.is_free(node);
            for input in self.graph.inputs(node) {
                let by = if is_free {
                    self.operand(input)?
                } else {
                    self.seen_outside(input)?
                };
                needs(item, by);
            }
            if !is_free {
                // Nodes with effects stay in order.
                if let Some(before) = fixed {
                    needs(item, By::Node(before));
                }
                fixed = Some(node);
            }
        }
        for (new, draft) in self.plan.new.iter().enumerate() {
            draft
                .operands
                .iter()
                .for_each(|&operand| needs(places + new, operand));
        }
        // A barrier, or the end, comes after everything.
        let last = region.nodes.last().filter(|&&node| {
            !self.chosen.is_free(node) && self.graph.node(node).op() != Op::Placeholder
        });
        if let Some(&last) = last {
            let end = places - 1;
            for (item, &node) in region.nodes.iter().enumerate() {
                if node != last && stays(node) {
                    users[item].push(end as u32);
                    missing[end] += 1;
                }
            }
            for new in 0..new_count {
                users[places + new].push(end as u32);
                missing[end] += 1;
            }
        }
        let key = |item: usize| match item.checked_sub(places) {
            // New nodes go before the node at their place.
            Some(new) => (u64::from(self.wanted[new]) * 2 - 1, item),
            None => (item as u64 * 2 + 2, item),
        };
        let mut ready = BinaryHeap::new();
        let mut expected = 0;
        for (item, &missing) in missing.iter().enumerate() {
            if item >= places || stays(region.nodes[item]) {
                expected += 1;
                if missing == 0 {
                    ready.push(Reverse(key(item)));
                }
            }
        }
        let mut order = Vec::with_capacity(expected);
        while let Some(Reverse((_, item))) = ready.pop() {
            order.push(match item.checked_sub(places) {
                Some(new) => By::New(new),
                None => By::Node(region.nodes[item]),
            });
            for &user in &users[item] {
                missing[user as usize] -= 1;
                if missing[user as usize] == 0 {
                    ready.push(Reverse(key(user as usize)));
                }
            }
        }
        (order.len() == expected).then(|| self.plan.order = order)
    }
}
