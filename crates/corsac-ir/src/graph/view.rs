//! Read-only views of one node, and of all nodes in order.

use super::{Graph, NodeData, Origin};
use crate::arg::Arg;
use crate::entity::{ExternalId, NodeId, Symbol};
use crate::op::{Op, Target};

/// A node of a graph, for reading.
#[derive(Clone, Copy)]
pub struct Node<'g> {
    graph: &'g Graph,
    data: &'g NodeData,
    id: NodeId,
}

impl<'g> Node<'g> {
    #[inline]
    pub(super) fn new(graph: &'g Graph, id: NodeId) -> Self {
        Self {
            graph,
            data: graph.data(id),
            id,
        }
    }

    /// The graph it is in.
    #[inline]
    #[must_use]
    pub fn graph(self) -> &'g Graph {
        self.graph
    }

    /// Its id.
    #[inline]
    #[must_use]
    pub fn id(self) -> NodeId {
        self.id
    }

    /// Its opcode.
    #[inline]
    #[must_use]
    pub fn op(self) -> Op {
        self.data.op
    }

    /// The name of its value.
    #[inline]
    #[must_use]
    pub fn name(self) -> &'g str {
        self.graph.text(self.data.name)
    }

    /// The name of its value, interned.
    #[inline]
    #[must_use]
    pub fn name_symbol(self) -> Symbol {
        self.data.name
    }

    /// Its target.
    #[inline]
    #[must_use]
    pub fn target(self) -> Target {
        self.data.target
    }

    /// Its target as printed: a function's qualified name, or the name itself.
    #[must_use]
    pub fn target_name(self) -> &'g str {
        match self.data.target {
            Target::Name(symbol) => self.graph.text(symbol),
            Target::Function(function) => self.graph.function_name(function),
        }
    }

    /// Whether it calls the function with this qualified name.
    #[must_use]
    pub fn calls(self, function: &str) -> bool {
        self.data.op == Op::CallFunction && self.target_name() == function
    }

    /// Positional arguments.
    #[inline]
    #[must_use]
    pub fn args(self) -> &'g [Arg] {
        &self.data.args
    }

    /// Keyword arguments, in order.
    #[inline]
    #[must_use]
    pub fn kwargs(self) -> &'g [(Symbol, Arg)] {
        &self.data.kwargs
    }

    /// The keyword argument called `name`.
    #[must_use]
    pub fn kwarg(self, name: &str) -> Option<&'g Arg> {
        self.data
            .kwargs
            .iter()
            .find(|(k, _)| self.graph.text(*k) == name)
            .map(|(_, arg)| arg)
    }

    /// The type annotation, held by the host.
    #[must_use]
    pub fn ty(self) -> Option<ExternalId> {
        self.data.ty
    }

    /// A number that grows along the list; valid until the order changes.
    #[must_use]
    pub fn order(self) -> u64 {
        self.graph.order(self.id)
    }

    /// Whether the node was erased.
    #[must_use]
    pub fn is_erased(self) -> bool {
        self.graph.is_erased(self.id)
    }

    /// Number of nodes that use it.
    #[inline]
    #[must_use]
    pub fn num_users(self) -> usize {
        self.data.uses.num_users()
    }

    /// The nodes that use it, each once, in the order in which they came to use it.
    pub fn users(self) -> impl Iterator<Item = NodeId> + 'g {
        self.graph.users(self.id)
    }

    /// The nodes it uses, each once, in the order of the arguments.
    pub fn inputs(self) -> impl Iterator<Item = NodeId> + 'g {
        self.graph.inputs(self.id)
    }

    /// Its origin in the user's program.
    #[must_use]
    pub fn origin(self) -> Origin {
        self.graph.origin(self.id)
    }
}

/// The nodes of a graph, in order, from both ends.
#[derive(Clone)]
pub struct Nodes<'g> {
    graph: &'g Graph,
    front: NodeId,
    back: NodeId,
    left: usize,
}

impl<'g> Nodes<'g> {
    pub(super) fn new(graph: &'g Graph) -> Self {
        let (front, back) = (graph.next(NodeId::ROOT), graph.prev(NodeId::ROOT));
        Self {
            graph,
            front,
            back,
            left: graph.len(),
        }
    }
}

impl Iterator for Nodes<'_> {
    type Item = NodeId;

    #[inline]
    fn next(&mut self) -> Option<NodeId> {
        self.left = self.left.checked_sub(1)?;
        let id = self.front;
        self.front = self.graph.list.place(id).next;
        Some(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Nodes<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<NodeId> {
        self.left = self.left.checked_sub(1)?;
        let id = self.back;
        self.back = self.graph.list.place(id).prev;
        Some(id)
    }
}

impl ExactSizeIterator for Nodes<'_> {}
