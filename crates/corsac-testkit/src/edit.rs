//! Changes of a graph as plain data.

use corsac_ir::{Graph, InsertPoint, NodeId, SecondaryMap, Translation};

use crate::recipe::{ArgRecipe, HostValues, NodeRecipe};

/// One change. Nodes are given by position, modulo the number of nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// Inserts a new node before this one, or (`true`) after it.
    Insert(u16, bool, NodeRecipe),
    /// Erases the node, if nothing uses it.
    Erase(u16),
    /// Moves the first node to just before the second.
    MoveBefore(u16, u16),
    /// Moves the first node to just after the second.
    MoveAfter(u16, u16),
    /// Makes all users of the first node use the second.
    ReplaceAllUses(u16, u16),
    /// Makes the first node use the third in place of the second.
    ReplaceInput(u16, u16, u16),
    /// Sets the positional arguments.
    SetArgs(u16, Vec<ArgRecipe>),
    /// Adds or replaces a keyword argument.
    SetKwarg(u16, u8, ArgRecipe),
    /// Sets the opcode and target of the recipe.
    SetTarget(u16, NodeRecipe),
    /// Renames the node to the first free name after this one.
    Rename(u16, String),
    /// Sets exactly this name.
    SetName(u16, String),
    /// Sets the type annotation, or removes it.
    SetType(u16, Option<u8>),
    /// Sorts the graph topologically.
    Sort,
    /// Replaces the graph by a copy without erased nodes.
    Compact,
}

/// A graph under change.
pub struct Editor {
    /// The graph.
    pub graph: Graph,
    host: HostValues,
}

impl Editor {
    /// A graph to change, with host values of its own for new arguments.
    #[must_use]
    pub fn new(mut graph: Graph) -> Self {
        let host = HostValues::new(&mut graph);
        Self { graph, host }
    }

    /// Makes the change. The graph may refuse it, and must then be unchanged: to the caller this
    /// looks like a change without effect.
    ///
    /// # Panics
    /// If a refused change left a trace.
    pub fn apply(&mut self, edit: &Edit) {
        let nodes: Vec<NodeId> = self.graph.nodes().collect();
        let at = |position: u16| {
            nodes
                .get(usize::from(position) % nodes.len().max(1))
                .copied()
        };
        let before = self.graph.to_lossless();
        let outcome = self.try_apply(edit, &nodes, &at);
        if outcome.is_none() {
            assert_eq!(
                self.graph.to_lossless(),
                before,
                "refused, but not as it was"
            );
        }
    }

    /// Makes the change; `None` if the graph refused it.
    fn try_apply(
        &mut self,
        edit: &Edit,
        nodes: &[NodeId],
        at: &dyn Fn(u16) -> Option<NodeId>,
    ) -> Option<()> {
        let (graph, host) = (&mut self.graph, &self.host);
        match edit {
            Edit::Insert(position, before, recipe) => {
                let point = match at(*position) {
                    Some(node) if *before => InsertPoint::Before(node),
                    Some(node) => InsertPoint::After(node),
                    None => InsertPoint::Before(NodeId::ROOT),
                };
                graph.set_insert_point(point).ok()?;
                recipe.create(graph, host, nodes);
            }
            Edit::Erase(node) => graph.erase(at(*node)?).ok()?,
            Edit::MoveBefore(a, b) => graph.move_before(at(*a)?, at(*b)?).ok()?,
            Edit::MoveAfter(a, b) => graph.move_after(at(*a)?, at(*b)?).ok()?,
            Edit::ReplaceAllUses(a, b) => {
                graph.replace_all_uses(at(*a)?, at(*b)?).ok()?;
            }
            Edit::ReplaceInput(user, old, new) => {
                let (user, old, new) = (at(*user)?, at(*old)?, at(*new)?);
                graph.replace_input(user, old, new).ok()?;
            }
            Edit::SetArgs(node, args) => {
                let node = at(*node)?;
                let args: Vec<_> = args.iter().map(|a| a.build(graph, host, nodes)).collect();
                graph.set_args(node, args).ok()?;
            }
            Edit::SetKwarg(node, key, value) => {
                let node = at(*node)?;
                let key = graph.intern(if key % 2 == 0 { "dim" } else { "a b" });
                let value = value.build(graph, host, nodes);
                let mut kwargs = graph.node(node).kwargs().to_vec();
                kwargs.retain(|(other, _)| *other != key);
                kwargs.push((key, value));
                graph.set_kwargs(node, kwargs).ok()?;
            }
            Edit::SetTarget(node, recipe) => {
                let node = at(*node)?;
                let (op, target) = recipe.call(graph, host);
                graph.set_op_and_target(node, op, target).ok()?;
            }
            Edit::Rename(node, name) => {
                graph.rename(at(*node)?, name).ok()?;
            }
            Edit::SetName(node, name) => graph.set_name(at(*node)?, name).ok()?,
            Edit::SetType(node, ty) => {
                let node = at(*node)?;
                let ty = ty.map(|_| graph.add_external(Some("pkg.Type")));
                graph.set_ty(node, ty).ok()?;
            }
            Edit::Sort => {
                graph.topological_sort().ok()?;
            }
            Edit::Compact => {
                // A copy ends at the first output, and cannot be made of a graph out of order.
                let mut map = SecondaryMap::new();
                let copy = graph.compact_copy(&mut map, &mut Translation::new()).ok()?;
                *self = Self::new(copy);
            }
        }
        Some(())
    }
}
