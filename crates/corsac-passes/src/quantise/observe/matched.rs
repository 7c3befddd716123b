//! The patterns of a backend that the nodes of a graph match.

use corsac_ir::{Arg, Graph, NodeId, Op};
use corsac_ops::Host;
use rustc_hash::FxHashMap;

use super::{Backend, Observation, Quantisable, Request};
use crate::modules::Modules;
use crate::quantise::numbers::Numbers;
use crate::quantise::pattern::{Classes, longest_first};

/// The kind of thing that was matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Matched {
    /// A pattern of the backend, by its place.
    Pattern(usize),
    /// A module of the user's that is replaced.
    Custom,
    /// A module that is quantised by itself.
    Standalone,
}

impl Matched {
    /// The place of the pattern, if it is one of the backend.
    pub(crate) fn pattern(self) -> Option<usize> {
        match self {
            Self::Pattern(at) => Some(at),
            Self::Custom | Self::Standalone => None,
        }
    }
}

/// Nodes that are quantised together.
#[derive(Clone, Debug)]
pub(crate) struct Match {
    pub(crate) matched: Matched,
    /// The nodes, the last one to run first.
    pub(crate) nodes: Vec<NodeId>,
    /// The first one to run.
    pub(crate) root: NodeId,
    /// The last one.
    pub(crate) last: NodeId,
    /// Whether the result has the observer of the input.
    pub(crate) shared: bool,
}

/// The matches of a graph, each of which may be of several nodes.
pub(crate) struct Matches {
    pub(crate) all: Vec<Match>,
    /// The match of each node, in the order in which nodes were matched: from the end of the graph.
    pub(crate) order: Vec<NodeId>,
    by_node: FxHashMap<NodeId, usize>,
}

impl Matches {
    pub(crate) fn of_graph(
        graph: &Graph,
        host: &dyn Host,
        backend: &Backend,
        request: &Request,
        numbers: &Numbers,
    ) -> Self {
        let classes = Classes::of_modules(&Modules::of_graph(graph, host));
        let order = longest_first(backend.patterns.iter().map(|one| &one.pattern));
        let mut matches = Self {
            all: Vec::new(),
            order: Vec::new(),
            by_node: FxHashMap::default(),
        };
        for node in graph.nodes().rev() {
            if matches.by_node.contains_key(&node) {
                continue;
            }
            let matched = order.iter().find_map(|&at| {
                let pattern = &backend.patterns[at];
                let found = pattern.pattern.matches(graph, &classes, node)?;
                let root = found.get(pattern.root).copied().flatten()?;
                let nodes = found.into_iter().flatten().collect();
                Some((at, nodes, root))
            });
            if let Some((at, nodes, root)) = matched {
                matches.add(Match {
                    matched: Matched::Pattern(at),
                    nodes,
                    root,
                    last: node,
                    shared: is_shared(&backend.patterns[at], graph, root, numbers),
                });
            }
        }
        let wholes = &request.wholes;
        for matched in [Matched::Custom, Matched::Standalone] {
            for node in graph.find_nodes(Op::CallModule, None) {
                let path = graph.node(node).target_name();
                let is_it = match matched {
                    Matched::Custom => wholes.custom.contains(path),
                    Matched::Standalone => wholes.standalone.contains_key(path),
                    Matched::Pattern(_) => false,
                };
                if is_it {
                    matches.add(Match {
                        matched,
                        nodes: vec![node],
                        root: node,
                        last: node,
                        shared: false,
                    });
                }
            }
        }
        matches
    }

    fn add(&mut self, found: Match) {
        let at = self.all.len();
        for &node in &found.nodes {
            if self.by_node.insert(node, at).is_none() {
                self.order.push(node);
            }
        }
        self.all.push(found);
    }

    /// The match that a node is in.
    pub(crate) fn of(&self, node: NodeId) -> Option<&Match> {
        self.by_node.get(&node).map(|&at| &self.all[at])
    }
}

fn is_shared(pattern: &Quantisable, graph: &Graph, root: NodeId, numbers: &Numbers) -> bool {
    let args = graph.node(root).args().iter().filter_map(Arg::as_node);
    let tensors = args.filter(|&arg| !numbers.only(arg)).count();
    let by_tensors = pattern.by_tensors.get(&tensors);
    by_tensors.copied().unwrap_or(pattern.observation) == Observation::Shared
}
