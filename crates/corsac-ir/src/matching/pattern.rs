//! A pattern, analysed once: the nodes it returns, the anchors where the search starts, and the
//! paths from one anchor to the next.

use crate::arg::Arg;
use crate::entity::{NodeId, SecondaryMap};
use crate::graph::Graph;
use crate::op::Op;

use super::search::Search;
use super::{ByName, Match, MatchError, MatchHost, Query};

/// Options of a search for a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchOptions {
    /// The output node is part of the pattern.
    pub match_output: bool,
    /// Placeholders match placeholders only, not anything.
    pub match_placeholder: bool,
    /// Of matches that share nodes, only the first is returned.
    pub remove_overlapping_matches: bool,
    /// Literals in the pattern match anything.
    pub ignore_literals: bool,
}

impl Default for MatchOptions {
    fn default() -> Self {
        Self {
            match_output: false,
            match_placeholder: false,
            remove_overlapping_matches: true,
            ignore_literals: false,
        }
    }
}

/// Properties of a pattern node that the search needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Role {
    /// The output returns it, so that other nodes may use its counterpart.
    pub(super) returned: bool,
}

/// Searches graphs for a pattern.
#[derive(Clone, Debug)]
pub struct SubgraphMatcher<'p> {
    pub(super) pattern: &'p Graph,
    pub(super) options: MatchOptions,
    pub(super) placeholders: Vec<NodeId>,
    pub(super) returning: Vec<NodeId>,
    pub(super) anchors: Vec<NodeId>,
    /// For each anchor: a chain of pattern nodes, each using the one before, from a node that an
    /// earlier anchor leads to down to this one. Empty where there is none.
    pub(super) approaches: Vec<Vec<NodeId>>,
    pub(super) roles: SecondaryMap<NodeId, Role>,
}

impl<'p> SubgraphMatcher<'p> {
    /// Analyses a pattern.
    ///
    /// # Errors
    /// [`MatchError::EmptyPattern`], or [`MatchError::DeadCode`] for a node without users.
    pub fn new(pattern: &'p Graph, options: MatchOptions) -> Result<Self, MatchError> {
        Self::with_effects(pattern, options, |_| false)
    }

    /// Analyses a pattern, in which the nodes that `has_effect` may be without users.
    ///
    /// # Errors
    /// As [`SubgraphMatcher::new`].
    pub fn with_effects(
        pattern: &'p Graph,
        options: MatchOptions,
        has_effect: impl Fn(NodeId) -> bool,
    ) -> Result<Self, MatchError> {
        // torch.fx takes the last node for the output.
        let output = pattern
            .nodes()
            .next_back()
            .ok_or(MatchError::EmptyPattern)?;
        let mut placeholders = Vec::new();
        for id in pattern.nodes() {
            let node = pattern.node(id);
            match node.op() {
                Op::Placeholder => placeholders.push(id),
                Op::Output => {}
                Op::GetAttr | Op::CallFunction | Op::CallMethod | Op::CallModule => {
                    if node.num_users() == 0 && !has_effect(id) {
                        let node = node.name().to_owned();
                        return Err(MatchError::DeadCode { node });
                    }
                }
            }
        }
        let returning: Vec<_> = pattern.inputs(output).collect();
        let mut roles = SecondaryMap::with_capacity(pattern.id_bound());
        for &id in &returning {
            roles.set(id, Role { returned: true });
        }
        let anchors = if options.match_output {
            vec![output]
        } else {
            let only_returned = |&id: &NodeId| pattern.node(id).num_users() == 1;
            returning.iter().copied().filter(only_returned).collect()
        };
        let approaches = approaches(pattern, &anchors);
        Ok(Self {
            pattern,
            options,
            placeholders,
            returning,
            anchors,
            approaches,
            roles,
        })
    }

    /// The pattern.
    #[must_use]
    pub fn pattern(&self) -> &'p Graph {
        self.pattern
    }

    /// The nodes where the search starts: those that only the output uses.
    #[must_use]
    pub fn anchors(&self) -> &[NodeId] {
        &self.anchors
    }

    /// The nodes that the output returns.
    #[must_use]
    pub fn returning(&self) -> &[NodeId] {
        &self.returning
    }

    /// The placeholders.
    #[must_use]
    pub fn placeholders(&self) -> &[NodeId] {
        &self.placeholders
    }

    /// The match of `bindings`, pattern nodes with their counterparts, which are taken to be right.
    ///
    /// # Errors
    /// [`MatchError::Unbound`] if a placeholder or a returned node is missing.
    pub fn match_of(&self, bindings: Vec<(NodeId, Arg)>) -> Result<Match, MatchError> {
        let mut positions: SecondaryMap<NodeId, Option<u32>> = SecondaryMap::new();
        for ((id, _), at) in bindings.iter().zip(0..) {
            positions.set(*id, Some(at));
        }
        let position = |id: &NodeId| positions[*id].ok_or_else(|| self.unbound(*id));
        Ok(Match {
            placeholders: self
                .placeholders
                .iter()
                .map(position)
                .collect::<Result<_, _>>()?,
            returning: self
                .returning
                .iter()
                .map(position)
                .collect::<Result<_, _>>()?,
            bindings,
        })
    }

    /// The error for a pattern node without a counterpart in a match.
    pub(crate) fn unbound(&self, id: NodeId) -> MatchError {
        let node = self.pattern.node(id).name().to_owned();
        MatchError::Unbound { node }
    }

    /// All matches in `graph`, in the order of their anchors.
    ///
    /// # Errors
    /// [`MatchError::Unbound`] if a match leaves a placeholder or a returned node without a
    /// counterpart.
    pub fn find(&self, graph: &Graph) -> Result<Vec<Match>, MatchError> {
        self.find_with(graph, &mut ByName, Query::default())
    }

    /// All matches in `graph`, where `host` compares things that the graphs hold only by id.
    ///
    /// # Errors
    /// As [`SubgraphMatcher::find`], and those of the host.
    pub fn find_with<H: MatchHost>(
        &self,
        graph: &Graph,
        host: &mut H,
        query: Query<'_>,
    ) -> Result<Vec<Match>, H::Error> {
        Search::new(self, graph, host, query).run()
    }
}

/// For each anchor, a shortest path down to it from a node that an earlier anchor leads to.
fn approaches(pattern: &Graph, anchors: &[NodeId]) -> Vec<Vec<NodeId>> {
    let mut reached: SecondaryMap<NodeId, bool> = SecondaryMap::with_capacity(pattern.id_bound());
    let mut ways = Vec::with_capacity(anchors.len());
    for &anchor in anchors {
        // Breadth first, upwards; `below` holds the node that led to each node.
        let mut below: SecondaryMap<NodeId, Option<NodeId>> = SecondaryMap::new();
        let mut queue = vec![anchor];
        let mut through_placeholder = None;
        let mut start = None;
        let mut at = 0;
        while at < queue.len() && start.is_none() {
            let id = queue[at];
            at += 1;
            if reached[id] {
                // The counterpart of a placeholder may have users all over the graph.
                if pattern.node(id).op() == Op::Placeholder {
                    through_placeholder = through_placeholder.or(Some(id));
                } else {
                    start = Some(id);
                }
                continue;
            }
            for input in pattern.inputs(id) {
                if below[input].is_none() && input != anchor {
                    below.set(input, Some(id));
                    queue.push(input);
                }
            }
        }
        let mut way = Vec::new();
        let mut next = start.or(through_placeholder);
        while let Some(id) = next {
            way.push(id);
            next = below[id];
        }
        ways.push(way);

        let mut work = vec![anchor];
        while let Some(id) = work.pop() {
            if !std::mem::replace(reached.get_mut(id), true) {
                work.extend(pattern.inputs(id));
            }
        }
    }
    ways
}
