//! The names in a text, with the things that they stand for.

use rustc_hash::FxHashMap;

use super::allow::Allowed;
use super::cursor::Cursor;
use super::parse_error::{ParseError, quoted};
use crate::entity::{EntityId, ExternalId, FunctionId, NodeId, ScopeId};
use crate::graph::Graph;
use crate::interner::Interner;

/// Nodes by name, and host values by number or by printed text.
#[derive(Default)]
pub(super) struct Names<'t> {
    /// The n-th name is the n-th node's.
    nodes: Interner,
    externals: FxHashMap<u32, ExternalId>,
    shown: FxHashMap<&'t str, ExternalId>,
    functions: FxHashMap<(String, ExternalId), FunctionId>,
    scopes: FxHashMap<u32, ScopeId>,
    allowed: Allowed<'t>,
}

impl<'t> Names<'t> {
    /// No names, with room for a node in each line of `text`; functions and host values must be
    /// `allowed`.
    pub(super) fn for_text(text: &str, allowed: Allowed<'t>) -> Self {
        let mut names = Self {
            allowed,
            ..Self::default()
        };
        // No line of a node is shorter than this: `return x`.
        let lines = text.bytes().filter(|&b| b == b'\n').count();
        names.nodes.reserve(lines.min(text.len() / 8));
        names
    }

    /// A graph without nodes, with room for those that have names here.
    pub(super) fn new_graph(&self) -> Graph {
        let mut graph = Graph::new();
        graph.reserve(self.nodes.len(), &self.nodes);
        graph
    }

    /// Names the next node. Nodes get their ids in the order in which they are named here, which
    /// is how a graph numbers the nodes created in it.
    pub(super) fn add_node(
        &mut self,
        cursor: &Cursor<'_>,
        at: usize,
        name: &str,
    ) -> Result<(), ParseError> {
        let known = self.nodes.len();
        self.nodes.intern(name);
        if self.nodes.len() == known {
            let found = format!("{}, which is the name of another node", quoted(name));
            return Err(cursor.error_found(at, "a new name", found));
        }
        Ok(())
    }

    /// The node called `name`.
    pub(super) fn node(&self, name: &str) -> Option<NodeId> {
        let symbol = self.nodes.lookup(name)?;
        // The root has the first id.
        Some(NodeId::from_index(symbol.index() + 1))
    }

    /// Checks that a function or host value may be called `name`, which stands at `at`.
    pub(super) fn check_allowed(
        &mut self,
        cursor: &Cursor<'_>,
        at: usize,
        name: &str,
    ) -> Result<(), ParseError> {
        self.allowed.check(cursor, at, name)
    }

    /// Declares the host value with this number; returns false if it is declared already.
    pub(super) fn declare_external(&mut self, number: u32, value: ExternalId) -> bool {
        self.externals.insert(number, value).is_none()
    }

    /// The host value with this number.
    pub(super) fn external(&self, number: u32) -> Option<ExternalId> {
        self.externals.get(&number).copied()
    }

    /// The host value that was printed as `text`, which stands at `at`; the same one for the same
    /// text.
    pub(super) fn shown(
        &mut self,
        graph: &mut Graph,
        cursor: &Cursor<'_>,
        at: usize,
        text: &'t str,
    ) -> Result<ExternalId, ParseError> {
        if let Some(&known) = self.shown.get(text) {
            return Ok(known);
        }
        self.check_allowed(cursor, at, text)?;
        let value = graph.add_external(Some(text));
        self.shown.insert(text, value);
        Ok(value)
    }

    /// The function of this name, base name and host value.
    pub(super) fn function(
        &mut self,
        graph: &mut Graph,
        name: &str,
        base: Option<&str>,
        external: Option<ExternalId>,
    ) -> FunctionId {
        match external {
            None => graph.function_with_base(name, base, None),
            Some(value) => *self
                .functions
                .entry((name.to_owned(), value))
                .or_insert_with(|| graph.function_with_base(name, base, Some(value))),
        }
    }

    /// Declares the module call with this number; returns false if it is declared already.
    pub(super) fn declare_scope(&mut self, number: u32, scope: ScopeId) -> bool {
        self.scopes.insert(number, scope).is_none()
    }

    /// The module call with this number.
    pub(super) fn scope(&self, number: u32) -> Option<ScopeId> {
        self.scopes.get(&number).copied()
    }
}
