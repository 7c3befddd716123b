//! A change to a graph as a value: nodes to add, uses to redirect, nodes to move and to drop.
//!
//! A patch is made while the graph is only read, checked against it as a whole, and then applied,
//! so that a change that cannot be made as a whole is not begun.

use std::ops::Range;

use smallvec::SmallVec;

use crate::arg::Arg;
use crate::entity::{EntityId, NodeId};
use crate::error::GraphError;
use crate::graph::{Graph, InsertPoint, NodeSpec, Origin};

use super::RewriteError;

/// A change to one graph.
///
/// ```
/// use corsac_ir::{Graph, NodeSpec, Op, Origin, Target};
/// use corsac_ir::rewrite::Patch;
///
/// let mut graph = Graph::new();
/// let x = graph.placeholder("x")?;
/// let y = graph.call_method("relu", [x.into()])?;
/// let output = graph.output(y)?;
///
/// let target = Target::Name(graph.intern("neg"));
/// let mut patch = Patch::new(&graph, output);
/// let spec = NodeSpec {
///     op: Op::CallMethod,
///     target,
///     args: [x.into()].into(),
///     kwargs: [].into(),
///     ty: None,
/// };
/// let neg = patch.add(spec, None, Origin::default());
/// patch.redirect(y, neg.into());
/// patch.drop_node(y);
/// patch.apply(&mut graph)?;
/// assert_eq!(graph.nodes().collect::<Vec<_>>(), [x, neg, output]);
/// # Ok::<(), corsac_ir::rewrite::RewriteError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Patch {
    /// The id of the first node added, as an index.
    base: usize,
    /// New nodes go before this one; at the end for the root.
    at: NodeId,
    additions: Vec<Addition>,
    redirections: Vec<(NodeId, Arg)>,
    moves: Vec<NodeId>,
    drops: Vec<NodeId>,
}

#[derive(Clone, Debug)]
struct Addition {
    spec: NodeSpec,
    name: Option<String>,
    origin: Origin,
}

impl Patch {
    /// A patch that changes nothing yet; its new nodes will come before `at`, at the end for
    /// [`NodeId::ROOT`].
    #[must_use]
    pub fn new(graph: &Graph, at: NodeId) -> Self {
        Self {
            base: graph.id_bound(),
            at,
            additions: Vec::new(),
            redirections: Vec::new(),
            moves: Vec::new(),
            drops: Vec::new(),
        }
    }

    /// The place of the new nodes: before this node, at the end for [`NodeId::ROOT`].
    #[must_use]
    pub fn at(&self) -> NodeId {
        self.at
    }

    /// Nodes with the values that are to be used in their place.
    #[must_use]
    pub fn redirections(&self) -> &[(NodeId, Arg)] {
        &self.redirections
    }

    /// Whether the patch takes a node out of the graph.
    #[must_use]
    pub fn drops(&self, node: NodeId) -> bool {
        self.drops.contains(&node)
    }

    /// Puts the new nodes before another node.
    pub fn insert_before(&mut self, at: NodeId) {
        self.at = at;
    }

    /// Adds a node after those added before, named after `name` or its target. Returns the id that
    /// it will have, by which later additions and redirections can mention it.
    pub fn add(&mut self, spec: NodeSpec, name: Option<String>, origin: Origin) -> NodeId {
        self.additions.push(Addition { spec, name, origin });
        NodeId::from_index(self.base + self.additions.len() - 1)
    }

    /// Makes all users of `old` use `new` instead, except those added nodes that come no later
    /// than a node in `new`, which may depend on them.
    pub fn redirect(&mut self, old: NodeId, new: Arg) {
        if new != Arg::Node(old) {
            self.redirections.push((old, new));
        }
    }

    /// Moves a node to after the new ones, and after those moved before.
    pub fn move_down(&mut self, node: NodeId) {
        self.moves.push(node);
    }

    /// Takes a node out of the graph, after all redirections. A node comes after its users.
    pub fn drop_node(&mut self, node: NodeId) {
        self.drops.push(node);
    }

    /// The ids that the new nodes will have, as indices.
    #[must_use]
    pub fn added(&self) -> Range<usize> {
        self.base..self.base + self.additions.len()
    }

    /// The existing nodes that the new nodes mention, with repetitions.
    pub fn for_each_input(&self, visit: &mut impl FnMut(NodeId)) {
        for Addition { spec, .. } in &self.additions {
            let kwargs = spec.kwargs.iter().map(|(_, arg)| arg);
            for arg in spec.args.iter().chain(kwargs) {
                self.for_each_existing(arg, visit);
            }
        }
    }

    /// The existing nodes that are to be used in the place of others, with repetitions.
    pub fn for_each_new_value(&self, visit: &mut impl FnMut(NodeId)) {
        for (_, arg) in &self.redirections {
            self.for_each_existing(arg, visit);
        }
    }

    fn for_each_existing(&self, arg: &Arg, visit: &mut impl FnMut(NodeId)) {
        arg.for_each_node(&mut |id| {
            if id.index() < self.base {
                visit(id);
            }
        });
    }

    /// Checks that the patch can be applied to `graph`.
    ///
    /// # Errors
    /// [`RewriteError::StalePatch`]; [`GraphError::Erased`] or [`GraphError::UnknownNode`] if it
    /// mentions a node that is not in the graph, or a new one before it is added;
    /// [`GraphError::HasUsers`] if a dropped node would still be used;
    /// [`GraphError::WrongTarget`] if the target of a new node does not fit its opcode.
    pub fn check(&self, graph: &Graph) -> Result<(), RewriteError> {
        if self.base != graph.id_bound() {
            return Err(RewriteError::StalePatch {
                expected: self.base,
                got: graph.id_bound(),
            });
        }
        if !self.at.is_root() {
            graph.check_live(self.at)?;
        }

        // The position of each dropped node among the drops, by id.
        let mut dropped: Vec<_> = self.drops.iter().copied().zip(0..).collect();
        dropped.sort_unstable();
        let drop_position = |id: NodeId| {
            let at = dropped
                .binary_search_by_key(&id, |&(dropped, _)| dropped)
                .ok()?;
            Some(dropped[at].1)
        };
        let check_mentioned = |arg: &Arg, bound: usize| {
            let mut fault = Ok(());
            arg.for_each_node(&mut |id| {
                if fault.is_err() || (self.base..bound).contains(&id.index()) {
                    return;
                }
                fault = graph.check_live(id);
                if fault.is_ok() && drop_position(id).is_some() {
                    fault = Err(still_used(graph, id, &[]));
                }
            });
            fault
        };

        for (index, Addition { spec, name, .. }) in self.additions.iter().enumerate() {
            graph.check_target(spec, name.as_deref())?;
            let kwargs = spec.kwargs.iter().map(|(_, arg)| arg);
            for arg in spec.args.iter().chain(kwargs) {
                check_mentioned(arg, self.base + index)?;
            }
        }
        for (old, new) in &self.redirections {
            graph.check_live(*old)?;
            check_mentioned(new, self.base + self.additions.len())?;
        }
        for &id in &self.moves {
            graph.check_live(id)?;
            if id == self.at {
                let name = graph.node(id).name().to_owned();
                return Err(GraphError::MovedToItself { node: id, name }.into());
            }
        }
        for (position, &id) in self.drops.iter().enumerate() {
            graph.check_live(id)?;
            if self.redirections.iter().any(|&(old, _)| old == id) {
                continue;
            }
            let later_user = |&user: &NodeId| drop_position(user).is_none_or(|at| at >= position);
            let left: Vec<_> = graph.users(id).filter(later_user).collect();
            if !left.is_empty() {
                return Err(still_used(graph, id, &left).into());
            }
        }
        Ok(())
    }

    /// Checks the patch and changes the graph. Returns the ids of the new nodes, as indices. The
    /// graph's insertion point stays where it was.
    ///
    /// # Errors
    /// As [`Patch::check`]; the graph is then unchanged.
    pub fn apply(mut self, graph: &mut Graph) -> Result<Range<usize>, RewriteError> {
        let added = self.begin(graph)?;
        for (old, new) in &self.redirections {
            let users = self.users_to_redirect(graph, *old, new);
            redirect_users(graph, *old, new, &users)?;
        }
        for id in self.drops {
            graph.erase(id)?;
        }
        Ok(added)
    }

    /// Checks the patch, adds its nodes and moves those to be moved; redirecting and dropping is
    /// left to the caller, for steps in between. Returns the ids of the new nodes, as indices.
    ///
    /// # Errors
    /// As [`Patch::check`]; the graph is then unchanged.
    pub fn begin(&mut self, graph: &mut Graph) -> Result<Range<usize>, RewriteError> {
        self.check(graph)?;
        let added = self.added();
        let outer = graph.set_insert_point(InsertPoint::Before(self.at))?;
        for Addition { spec, name, origin } in self.additions.drain(..) {
            let id = graph.create(spec, name.as_deref())?;
            graph.set_origin(id, origin);
        }
        graph.set_insert_point(outer)?;
        for id in self.moves.drain(..) {
            graph.move_before(id, self.at)?;
        }
        Ok(added)
    }

    /// The users of `old` that are to use `new` instead.
    #[must_use]
    pub fn users_to_redirect(
        &self,
        graph: &Graph,
        old: NodeId,
        new: &Arg,
    ) -> SmallVec<[NodeId; 4]> {
        let mut kept = self.base..self.base;
        new.for_each_node(&mut |id| kept.end = kept.end.max(id.index() + 1));
        let users = graph.users(old);
        users.filter(|user| !kept.contains(&user.index())).collect()
    }

    /// The nodes to be dropped, in that order.
    #[must_use]
    pub fn dropped(&self) -> &[NodeId] {
        &self.drops
    }
}

/// Makes `users` use `new` in the place of `old`.
///
/// # Errors
/// As [`Graph::set_arguments`].
pub fn redirect_users(
    graph: &mut Graph,
    old: NodeId,
    new: &Arg,
    users: &[NodeId],
) -> Result<(), GraphError> {
    for &user in users {
        match new {
            Arg::Node(new) => graph.replace_input(user, old, *new)?,
            other => graph.replace_input_by(user, old, other)?,
        }
    }
    Ok(())
}

fn still_used(graph: &Graph, node: NodeId, users: &[NodeId]) -> GraphError {
    let name = |id: NodeId| graph.node(id).name().to_owned();
    GraphError::HasUsers {
        node,
        name: name(node),
        users: users.iter().map(|&user| name(user)).collect(),
    }
}
