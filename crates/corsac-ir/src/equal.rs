//! Equality of graphs.

use rustc_hash::FxHashMap;

use crate::arg::Arg;
use crate::entity::{ExternalId, FunctionId, NodeId, ScopeId, SecondaryMap};
use crate::graph::{Graph, Source};
use crate::op::Target;
use crate::text::{HostText, NoHost};

impl Graph {
    /// Whether the two graphs are the same but for how they number things: the same nodes in the
    /// same order with the same names, opcodes, targets, arguments, annotations, users (in order)
    /// and origins.
    ///
    /// Host values are the same if they have the same name, and one of them here always stands
    /// where one of them stands there. NaN is the same as NaN. Erased nodes count by name where
    /// they are still mentioned, and not otherwise.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        if self.len() != other.len() {
            return false;
        }
        let mut pairing = Pairing::new(self, other, (&NoHost, &NoHost));
        for (a, b) in self.nodes().zip(other.nodes()) {
            pairing.nodes.set(a, Some(b));
        }
        self.nodes()
            .zip(other.nodes())
            .all(|(a, b)| pairing.nodes_match(a, b))
    }
}

/// The things of `left` with those that stand in the same places in `right`.
pub(crate) struct Pairing<'g> {
    left: &'g Graph,
    right: &'g Graph,
    hosts: (&'g dyn HostText, &'g dyn HostText),
    pub(crate) nodes: SecondaryMap<NodeId, Option<NodeId>>,
    externals: SecondaryMap<ExternalId, Option<ExternalId>>,
    externals_back: FxHashMap<ExternalId, ExternalId>,
    functions: FxHashMap<(FunctionId, FunctionId), bool>,
    scopes: FxHashMap<ScopeId, ScopeId>,
    scopes_back: FxHashMap<ScopeId, ScopeId>,
}

impl<'g> Pairing<'g> {
    pub(crate) fn new(
        left: &'g Graph,
        right: &'g Graph,
        hosts: (&'g dyn HostText, &'g dyn HostText),
    ) -> Self {
        Self {
            left,
            right,
            hosts,
            nodes: SecondaryMap::with_capacity(left.id_bound()),
            externals: SecondaryMap::new(),
            externals_back: FxHashMap::default(),
            functions: FxHashMap::default(),
            scopes: FxHashMap::default(),
            scopes_back: FxHashMap::default(),
        }
    }

    fn nodes_match(&mut self, a: NodeId, b: NodeId) -> bool {
        let (left, right) = (self.left.node(a), self.right.node(b));
        left.name() == right.name()
            && left.op() == right.op()
            && self.targets_match(left.target(), right.target())
            && self.all_args_match(left.args(), right.args())
            && self.kwargs_match(a, b)
            && self.annotations_match(left.ty(), right.ty())
            && self.users_match(a, b)
            && self.origins_match(a, b)
    }

    pub(crate) fn targets_match(&mut self, a: Target, b: Target) -> bool {
        match (a, b) {
            (Target::Name(a), Target::Name(b)) => self.left.text(a) == self.right.text(b),
            (Target::Function(a), Target::Function(b)) => {
                if let Some(&known) = self.functions.get(&(a, b)) {
                    return known;
                }
                let (left, right) = (self.left.function_info(a), self.right.function_info(b));
                let same = self.left.text(left.name) == self.right.text(right.name)
                    && self.left.text(left.base) == self.right.text(right.base)
                    && self.annotations_match(left.external, right.external);
                self.functions.insert((a, b), same);
                same
            }
            (Target::Name(_), Target::Function(_)) | (Target::Function(_), Target::Name(_)) => {
                false
            }
        }
    }

    pub(crate) fn annotations_match(
        &mut self,
        a: Option<ExternalId>,
        b: Option<ExternalId>,
    ) -> bool {
        match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => self.externals_match(a, b),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// Compares the identities that the hosts give; without those, the places where the values were
    /// met.
    fn externals_match(&mut self, a: ExternalId, b: ExternalId) -> bool {
        if let (Some(a), Some(b)) = (self.hosts.0.identity(a), self.hosts.1.identity(b)) {
            return a == b;
        }
        match (self.externals[a], self.externals_back.get(&b)) {
            (None, None) => {
                let same = self.left.external_name(a) == self.right.external_name(b);
                if same {
                    self.externals.set(a, Some(b));
                    self.externals_back.insert(b, a);
                }
                same
            }
            (known, back) => known == Some(b) && back == Some(&a),
        }
    }

    pub(crate) fn kwargs_match(&mut self, a: NodeId, b: NodeId) -> bool {
        let (left, right) = (self.left.node(a).kwargs(), self.right.node(b).kwargs());
        left.len() == right.len()
            && left.iter().zip(right).all(|((k, a), (l, b))| {
                self.left.text(*k) == self.right.text(*l) && self.args_match(a, b)
            })
    }

    pub(crate) fn all_args_match(&mut self, a: &[Arg], b: &[Arg]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.args_match(a, b))
    }

    fn args_match(&mut self, a: &Arg, b: &Arg) -> bool {
        let same_float = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        match (a, b) {
            (Arg::Node(a), Arg::Node(b)) => match self.nodes[*a] {
                Some(known) => known == *b,
                None => {
                    self.left.node(*a).is_erased()
                        && self.right.node(*b).is_erased()
                        && self.left.node(*a).name() == self.right.node(*b).name()
                }
            },
            (Arg::Float(a), Arg::Float(b)) => same_float(*a, *b),
            (Arg::Complex(a), Arg::Complex(b)) => same_float(a.0, b.0) && same_float(a.1, b.1),
            (Arg::Str(a), Arg::Str(b)) => self.left.text(*a) == self.right.text(*b),
            (Arg::Tuple(a), Arg::Tuple(b))
            | (Arg::List(a), Arg::List(b))
            | (Arg::Slice(a), Arg::Slice(b))
            | (Arg::Range(a), Arg::Range(b)) => self.all_args_match(a, b),
            (Arg::Dict(a), Arg::Dict(b)) => {
                a.len() == b.len()
                    && a.iter()
                        .zip(b.iter())
                        .all(|((k, a), (l, b))| self.args_match(k, l) && self.args_match(a, b))
            }
            (Arg::NamedTuple(a), Arg::NamedTuple(b)) => {
                self.externals_match(a.0, b.0) && self.all_args_match(&a.1, &b.1)
            }
            (Arg::Opaque(a), Arg::Opaque(b)) => self.externals_match(*a, *b),
            // The rest has no parts that are numbered per graph, or is of two kinds.
            (
                Arg::None
                | Arg::Ellipsis
                | Arg::Bool(_)
                | Arg::Int(_)
                | Arg::BigInt(_)
                | Arg::Float(_)
                | Arg::Complex(_)
                | Arg::Str(_)
                | Arg::Bytes(_)
                | Arg::DType(_)
                | Arg::Device(_)
                | Arg::Layout(_)
                | Arg::MemoryFormat(_)
                | Arg::Node(_)
                | Arg::Tuple(_)
                | Arg::List(_)
                | Arg::Dict(_)
                | Arg::Slice(_)
                | Arg::Range(_)
                | Arg::NamedTuple(_)
                | Arg::Opaque(_),
                _,
            ) => a == b,
        }
    }

    fn users_match(&self, a: NodeId, b: NodeId) -> bool {
        self.left
            .users(a)
            .map(|user| self.nodes[user])
            .eq(self.right.users(b).map(Some))
    }

    fn origins_match(&mut self, a: NodeId, b: NodeId) -> bool {
        let (left, right) = (self.left.origin(a), self.right.origin(b));
        let sources = match (left.source, right.source) {
            (None, None) => true,
            (Some(a), Some(b)) => match (self.left.source(a), self.right.source(b)) {
                (
                    Source::Line {
                        file,
                        line,
                        function,
                    },
                    Source::Line {
                        file: other_file,
                        line: other_line,
                        function: other_function,
                    },
                ) => {
                    line == other_line
                        && self.left.text(file) == self.right.text(other_file)
                        && self.left.text(function) == self.right.text(other_function)
                }
                (
                    Source::Host { code, offset },
                    Source::Host {
                        code: other_code,
                        offset: other_offset,
                    },
                ) => offset == other_offset && self.externals_match(code, other_code),
                (Source::Line { .. }, Source::Host { .. })
                | (Source::Host { .. }, Source::Line { .. }) => false,
            },
            (None, Some(_)) | (Some(_), None) => false,
        };
        sources && self.scopes_match(left.scope, right.scope)
    }

    /// Walks outwards until both chains end or meet a pair that is known.
    fn scopes_match(&mut self, mut a: Option<ScopeId>, mut b: Option<ScopeId>) -> bool {
        loop {
            let (Some(left), Some(right)) = (a, b) else {
                return a == b;
            };
            match (self.scopes.get(&left), self.scopes_back.get(&right)) {
                (None, None) => {}
                (known, back) => return known == Some(&right) && back == Some(&left),
            }
            self.scopes.insert(left, right);
            self.scopes_back.insert(right, left);
            let (left, right) = (self.left.scope(left), self.right.scope(right));
            if left.call != right.call
                || self.left.text(left.path) != self.right.text(right.path)
                || !self.externals_match(left.class, right.class)
            {
                return false;
            }
            (a, b) = (left.parent, right.parent);
        }
    }
}
