//! The solution chosen for a region: for each class in use, the call that computes it.

use corsac_ir::NodeId;
use egg::Id;
use rustc_hash::{FxHashMap, FxHashSet};

use super::extract::{Problem, Solution, Way};
use super::language::{Classes, ENode, Head};
use crate::rules::hazards::Hazards;

/// A free node with its class and e-node.
#[derive(Clone, Debug)]
pub(super) struct Original {
    pub(super) node: NodeId,
    pub(super) class: Id,
    pub(super) e_node: ENode,
}

/// The classes of a region with the ways to compute them, before one is chosen.
pub(super) struct Table<'a> {
    classes: &'a Classes<'a>,
    /// Dense numbers of classes.
    number: FxHashMap<Id, u32>,
    /// The ways by class: the e-nodes that may compute it.
    e_nodes: Vec<Vec<ENode>>,
    /// By class: free nodes of it with their e-nodes, in order.
    originals: Vec<Vec<(NodeId, ENode)>>,
    class_of: FxHashMap<NodeId, u32>,
    free: FxHashSet<NodeId>,
    /// Nodes that stay because the caller gets them, whatever computes their classes.
    kept: FxHashSet<NodeId>,
    pub(super) problem: Problem,
    /// The cost of the region now.
    pub(super) cost_now: f64,
    /// The cost of the nodes that are kept.
    pub(super) cost_kept: f64,
}

impl<'a> Table<'a> {
    /// `cost` returns the cost of an e-node; `is_fresh` whether its value is a tensor of its own;
    /// `is_needed` whether a free node is used by a node that is not free, or is unused.
    pub(super) fn new<E>(
        classes: &'a Classes<'a>,
        originals: &[Original],
        leaves: &FxHashMap<NodeId, Id>,
        hazards: &Hazards,
        cost: &mut dyn FnMut(Id, &ENode) -> Result<f64, E>,
        is_fresh: &mut dyn FnMut(&ENode) -> bool,
        is_needed: &dyn Fn(NodeId) -> bool,
    ) -> Result<Self, E> {
        let mut ids: Vec<Id> = classes.classes().map(|class| class.id).collect();
        ids.sort_unstable();
        let number: FxHashMap<Id, u32> = ids.iter().copied().zip(0..).collect();
        let dense = |id: Id| number[&classes.find(id)];
        let canonical = |node: &ENode| {
            let mut node = node.clone();
            node.children.iter_mut().for_each(|c| *c = classes.find(*c));
            node
        };
        let is_leaf = |node: &ENode| matches!(classes.analysis.heads.get(node.head), Head::Leaf(_));
        let mut table = Self {
            classes,
            e_nodes: Vec::with_capacity(ids.len()),
            originals: vec![Vec::new(); ids.len()],
            class_of: leaves
                .iter()
                .map(|(&leaf, &id)| (leaf, dense(id)))
                .collect(),
            free: originals.iter().map(|original| original.node).collect(),
            kept: FxHashSet::default(),
            problem: Problem::default(),
            cost_now: 0.0,
            cost_kept: 0.0,
            number: FxHashMap::default(),
        };
        for original in originals {
            let class = dense(original.class);
            table.class_of.insert(original.node, class);
            let e_node = canonical(&original.e_node);
            table.originals[class as usize].push((original.node, e_node));
        }
        for (class, &id) in ids.iter().enumerate() {
            let own = &table.originals[class];
            let mut e_nodes: Vec<ENode> = Vec::new();
            for node in &classes[id].nodes {
                let node = canonical(node);
                if !e_nodes.contains(&node) {
                    e_nodes.push(node);
                }
            }
            // A class with a leaf needs no computation.
            let leaf = e_nodes.iter().position(&is_leaf);
            let mut now = match leaf {
                Some(leaf) => {
                    e_nodes = vec![e_nodes.swap_remove(leaf)];
                    Some(0)
                }
                None => own.first().and_then(|(_, first)| position(&e_nodes, first)),
            };
            // Each value that the caller gets is a tensor of its own.
            let returned: Vec<NodeId> = own
                .iter()
                .filter(|(node, _)| hazards.is_returned(*node))
                .map(|(node, _)| *node)
                .collect();
            if !returned.is_empty() {
                let first_is_fresh =
                    leaf.is_none() && own.first().is_some_and(|(_, first)| is_fresh(first));
                if first_is_fresh {
                    let first = now.map(|now| e_nodes[now].clone());
                    e_nodes.retain(|node| is_fresh(node));
                    now = first.and_then(|first| position(&e_nodes, &first));
                }
                table.kept.extend(&returned[usize::from(first_is_fresh)..]);
            }
            let mut ways = Vec::with_capacity(e_nodes.len());
            for node in &e_nodes {
                let mut uses: Vec<u32> = node.children.iter().map(|&c| dense(c)).collect();
                uses.sort_unstable();
                uses.dedup();
                let cost = if is_leaf(node) { 0.0 } else { cost(id, node)? };
                ways.push(Way { cost, uses });
            }
            table.problem.ways.push(ways);
            table.problem.now.push(now.map(|now| now as u32));
            table.e_nodes.push(e_nodes);
        }
        table.number = number.clone();
        let mut roots: Vec<u32> = Vec::new();
        for original in originals {
            let class = dense(original.class);
            let own = cost(original.class, &canonical(&original.e_node))?;
            table.cost_now += own;
            if table.kept.contains(&original.node) {
                table.cost_kept += own;
                roots.extend(original.e_node.children.iter().map(|&child| dense(child)));
            } else if is_needed(original.node) {
                roots.push(class);
            }
        }
        roots.sort_unstable();
        roots.dedup();
        table.problem.roots = roots;
        Ok(table)
    }

    /// Whether several nodes compute the same, so that some are removed even without exchange.
    pub(super) fn has_twins(&self) -> bool {
        let mut originals = self.originals.iter();
        originals.any(|own| own.iter().filter(|(n, _)| !self.kept.contains(n)).count() > 1)
    }
}

fn position(e_nodes: &[ENode], wanted: &ENode) -> Option<usize> {
    e_nodes.iter().position(|node| node == wanted)
}

/// The chosen solution.
pub(super) struct Chosen<'a> {
    table: &'a Table<'a>,
    choice: Vec<Option<u32>>,
    /// Classes in use, each after those that it uses.
    in_use: Vec<u32>,
    /// By class in use: the node that computes it already, if one does.
    node_of: Vec<Option<NodeId>>,
    /// By class: nodes that are removed.
    replaced: Vec<Vec<NodeId>>,
    stays: FxHashSet<NodeId>,
}

impl<'a> Chosen<'a> {
    pub(super) fn new(table: &'a Table<'a>, solution: &Solution) -> Self {
        let count = table.e_nodes.len();
        let mut chosen = Self {
            table,
            choice: solution.choice.clone(),
            in_use: Vec::new(),
            node_of: vec![None; count],
            replaced: vec![Vec::new(); count],
            stays: table.kept.clone(),
        };
        chosen.in_use = chosen.reach();
        for &class in &chosen.in_use {
            let at = class as usize;
            let Some(e_node) = chosen.e_node(class) else {
                continue;
            };
            let own = &table.originals[at];
            let node = own.iter().find(|(node, known)| {
                known == e_node && (!table.kept.contains(node) || !own_is_attached(table, at))
            });
            chosen.node_of[at] = node.map(|(node, _)| *node);
            chosen.stays.extend(chosen.node_of[at]);
        }
        for (class, own) in table.originals.iter().enumerate() {
            let gone = own.iter().map(|(node, _)| *node);
            let gone = gone.filter(|node| !chosen.stays.contains(node));
            chosen.replaced[class] = gone.collect();
        }
        chosen
    }

    /// Classes in use, each after those that it uses.
    fn reach(&self) -> Vec<u32> {
        let mut seen = vec![false; self.choice.len()];
        let mut order = Vec::new();
        let mut stack: Vec<(u32, usize)> = Vec::new();
        for &root in &self.table.problem.roots {
            stack.push((root, 0));
            while let Some((class, next)) = stack.pop() {
                if next == 0 && std::mem::replace(&mut seen[class as usize], true) {
                    continue;
                }
                let ways = &self.table.problem.ways[class as usize];
                let way = self.choice[class as usize].map(|way| &ways[way as usize]);
                match way.and_then(|way| way.uses.get(next)) {
                    Some(&used) => {
                        stack.push((class, next + 1));
                        stack.push((used, 0));
                    }
                    None => order.push(class),
                }
            }
        }
        order
    }

    pub(super) fn classes(&self) -> usize {
        self.choice.len()
    }

    pub(super) fn in_use(&self) -> Vec<u32> {
        self.in_use.clone()
    }

    /// The e-node that computes a class.
    pub(super) fn e_node(&self, class: u32) -> Option<&'a ENode> {
        let way = self.choice[class as usize]?;
        self.table.e_nodes[class as usize].get(way as usize)
    }

    pub(super) fn head(&self, node: &ENode) -> &'a Head {
        self.table.classes.analysis.heads.get(node.head)
    }

    /// The number of a class.
    pub(super) fn class(&self, id: Id) -> u32 {
        self.table.number[&self.table.classes.find(id)]
    }

    /// The class of a free node, or of one that free nodes use.
    pub(super) fn class_of(&self, node: NodeId) -> Option<u32> {
        self.table.class_of.get(&node).copied()
    }

    /// The node that computes a class as it was chosen, if there is one.
    pub(super) fn node_of(&self, class: u32) -> Option<NodeId> {
        self.node_of[class as usize]
    }

    /// The nodes that are removed, since another call computes their class.
    pub(super) fn replaced_by(&self, class: u32) -> &[NodeId] {
        &self.replaced[class as usize]
    }

    /// Whether a free node stays.
    pub(super) fn stays(&self, node: NodeId) -> bool {
        self.stays.contains(&node)
    }

    /// Whether a node is one of those that may be exchanged.
    pub(super) fn is_free(&self, node: NodeId) -> bool {
        self.table.free.contains(&node)
    }
}

/// Whether the value that the caller gets is that of the class: then other values of it that the
/// caller gets have tensors of their own.
fn own_is_attached(table: &Table<'_>, class: usize) -> bool {
    let own = &table.originals[class];
    own.iter().any(|(node, _)| table.kept.contains(node))
        && own.iter().any(|(node, _)| !table.kept.contains(node))
}
