//! Origins of nodes: the user's source line, and the module calls it was reached through.

use rustc_hash::FxHashMap;

use super::Graph;
use crate::entity::{EntityId, ExternalId, NodeId, ScopeId, SecondaryMap, SourceId, Symbol};

/// A place in the user's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A line of a file.
    Line {
        /// The file's path.
        file: Symbol,
        /// The line, counted from 1.
        line: u32,
        /// The function or method that the line is in.
        function: Symbol,
    },
    /// A position in a code object of the host, which finds the line on request.
    Host {
        /// The code object.
        code: ExternalId,
        /// The position in it.
        offset: i32,
    },
}

/// One call of a module during capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The call that this one was made from.
    pub parent: Option<ScopeId>,
    /// The module's qualified name; empty for the root.
    pub path: Symbol,
    /// The module's class, held by the host.
    pub class: ExternalId,
    /// Number of earlier calls of this module in this capture.
    pub call: u32,
}

/// The origin of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The place in the user's program.
    pub source: Option<SourceId>,
    /// The innermost module call.
    pub scope: Option<ScopeId>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Origins {
    of_node: SecondaryMap<NodeId, Origin>,
    sources: Vec<Source>,
    source_ids: FxHashMap<Source, SourceId>,
    scopes: Vec<Scope>,
}

impl Graph {
    /// The id of a place, added if it is new.
    pub fn add_source(&mut self, source: Source) -> SourceId {
        let sources = &mut self.origins.sources;
        *self.origins.source_ids.entry(source).or_insert_with(|| {
            sources.push(source);
            SourceId::from_index(sources.len() - 1)
        })
    }

    /// The place.
    ///
    /// # Panics
    /// If `id` is another graph's.
    #[must_use]
    pub fn source(&self, id: SourceId) -> Source {
        self.origins.sources[id.index()]
    }

    /// Records a module call; each is a scope of its own.
    pub fn add_scope(&mut self, scope: Scope) -> ScopeId {
        self.origins.scopes.push(scope);
        ScopeId::from_index(self.origins.scopes.len() - 1)
    }

    /// The module call.
    ///
    /// # Panics
    /// If `id` is another graph's.
    #[must_use]
    pub fn scope(&self, id: ScopeId) -> Scope {
        self.origins.scopes[id.index()]
    }

    /// The chain of module calls from `id` outwards.
    pub fn scope_chain(&self, id: Option<ScopeId>) -> impl Iterator<Item = Scope> + '_ {
        let mut next = id;
        std::iter::from_fn(move || {
            let scope = self.scope(next?);
            next = scope.parent;
            Some(scope)
        })
    }

    /// The origin of a node.
    #[must_use]
    pub fn origin(&self, id: NodeId) -> Origin {
        self.origins.of_node[id]
    }

    /// Sets the origin of a node.
    pub fn set_origin(&mut self, id: NodeId, origin: Origin) {
        if origin != Origin::default() || self.origin(id) != Origin::default() {
            self.origins.of_node.set(id, origin);
        }
    }
}
