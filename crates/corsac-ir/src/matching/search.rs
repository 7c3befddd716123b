//! The search: candidates for each anchor, and from each a walk backwards through the arguments of
//! pattern and graph in step.
//!
//! Pairs of nodes form a trail that grows while the walk succeeds and is cut back when it does
//! not, together with the tables from pattern and graph nodes into it: no attempt costs more than
//! the part of the graph that it looked at.

use smallvec::SmallVec;

use crate::arg::Arg;
use crate::entity::{ExternalId, FunctionId, NodeId, SecondaryMap, Symbol};
use crate::graph::Graph;
use crate::op::{Op, Target};

use super::boundary::Boundary;
use super::literal::{Externals, Value, sequence_items};
use super::{Match, MatchError, MatchHost, Positions, Query, Schema, SubgraphMatcher};

/// The role of a node of the graph in the match under construction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Part {
    /// Not part of the match.
    #[default]
    Outside,
    /// The counterpart of a placeholder.
    Input,
    /// The counterpart of another node of the pattern.
    Inside,
}

pub(super) struct Search<'a, H> {
    matcher: &'a SubgraphMatcher<'a>,
    graph: &'a Graph,
    host: &'a mut H,
    query: Query<'a>,
    /// For each pattern node with a target: the targets in the graph that are the same.
    targets: SecondaryMap<NodeId, SmallVec<[Target; 1]>>,
    /// Pattern nodes with their counterparts, in the order in which they were reached.
    trail: Vec<(NodeId, Arg)>,
    /// Pattern node to position in the trail.
    position: SecondaryMap<NodeId, Option<u32>>,
    /// Graph node to its part in the trail.
    part: SecondaryMap<NodeId, Part>,
    /// Arguments still to be compared, the next one last.
    work: Vec<(Value<'a>, Value<'a>)>,
    /// Nodes of the graph that an accepted match covers.
    taken: SecondaryMap<NodeId, bool>,
    boundary: Boundary,
    found: Vec<Match>,
}

/// The state of the search for one anchor.
struct Level {
    /// Candidates close to nodes matched already; without it, all candidates are tried.
    near: Option<Vec<NodeId>>,
    next: usize,
    /// Length of the trail before this anchor.
    trail_len: usize,
}

struct AskHost<'h, H>(&'h mut H);

impl<H: MatchHost> Externals<H::Error> for AskHost<'_, H> {
    fn externals(
        &mut self,
        pattern: (&Graph, ExternalId),
        graph: (&Graph, ExternalId),
    ) -> Result<bool, H::Error> {
        self.0.same_value(pattern, graph)
    }
}

impl<'a, H: MatchHost> Search<'a, H> {
    pub(super) fn new(
        matcher: &'a SubgraphMatcher<'a>,
        graph: &'a Graph,
        host: &'a mut H,
        query: Query<'a>,
    ) -> Self {
        let targets = same_targets(matcher.pattern, graph, host);
        Self {
            matcher,
            graph,
            host,
            query,
            targets,
            trail: Vec::new(),
            position: SecondaryMap::with_capacity(matcher.pattern.id_bound()),
            part: SecondaryMap::with_capacity(graph.id_bound()),
            work: Vec::new(),
            taken: SecondaryMap::with_capacity(graph.id_bound()),
            boundary: Boundary::default(),
            found: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> Result<Vec<Match>, H::Error> {
        let anchors = &self.matcher.anchors;
        let mut candidates = Vec::with_capacity(anchors.len());
        for &anchor in anchors {
            let looking_alike = self.candidates(anchor)?;
            if looking_alike.is_empty() {
                return Ok(self.found);
            }
            candidates.push(looking_alike);
        }
        if anchors.is_empty() {
            return Ok(self.found);
        }

        let mut levels = vec![Level {
            near: None,
            next: 0,
            trail_len: 0,
        }];
        while let Some(level) = levels.last_mut() {
            self.cut_back(level.trail_len);
            let at = level.next;
            level.next += 1;
            let depth = levels.len() - 1;
            let list = levels[depth].near.as_ref().unwrap_or(&candidates[depth]);
            let Some(&candidate) = list.get(at) else {
                levels.pop();
                continue;
            };
            if !self.match_from(anchors[depth], candidate)? {
                continue;
            }
            if levels.len() < anchors.len() {
                let near = self.approach(levels.len(), candidates[levels.len()].len());
                levels.push(Level {
                    near,
                    next: 0,
                    trail_len: self.trail.len(),
                });
            } else if self.accept()? && self.matcher.options.remove_overlapping_matches {
                // Any other match that builds on the nodes just taken would overlap.
                while levels.len() > 1
                    && levels
                        .last()
                        .is_some_and(|l| self.covers_nodes(l.trail_len))
                {
                    levels.pop();
                }
            }
        }
        Ok(self.found)
    }

    /// The nodes that look like an anchor, in graph order.
    fn candidates(&mut self, anchor: NodeId) -> Result<Vec<NodeId>, H::Error> {
        let op = self.matcher.pattern.node(anchor).op();
        let is_wildcard = op == Op::Placeholder && !self.matcher.options.match_placeholder;
        let likely = if is_wildcard || !self.query.name.is_empty() {
            self.graph.nodes().collect()
        } else {
            match op {
                Op::Placeholder | Op::Output | Op::GetAttr => self.graph.find_nodes(op, None),
                Op::CallFunction | Op::CallMethod | Op::CallModule => {
                    let targets = &self.targets[anchor];
                    let mut found: Vec<_> = targets
                        .iter()
                        .flat_map(|&target| self.graph.find_nodes(op, Some(target)))
                        .collect();
                    if targets.len() > 1 {
                        self.sort(&mut found);
                    }
                    return Ok(found);
                }
            }
        };
        let mut candidates = Vec::new();
        for id in likely {
            if self.looks_like(anchor, id, true)? {
                candidates.push(id);
            }
        }
        Ok(candidates)
    }

    /// The nodes that can match the anchor at `index`, found from the nodes matched already. `None`
    /// if these do not lead to it, or lead to `limit` nodes or more: then all candidates are tried.
    fn approach(&self, index: usize, limit: usize) -> Option<Vec<NodeId>> {
        let (&start, rest) = self.matcher.approaches[index].split_first()?;
        // With a name, or with literals ignored, an anchor's match need not have these inputs.
        if self.matcher.options.ignore_literals || !self.query.name.is_empty() {
            return None;
        }
        let bound = &self.trail[self.position[start]? as usize].1;
        let mut frontier = vec![bound.as_node()?];
        for &next in rest {
            let mut users = Vec::new();
            for &id in &frontier {
                for user in self.graph.users(id) {
                    if users.len() >= limit {
                        return None;
                    }
                    users.push(user);
                }
            }
            let op = self.matcher.pattern.node(next).op();
            users.retain(|&user| {
                let user = self.graph.node(user);
                user.op() == op && (!is_call(op) || self.targets[next].contains(&user.target()))
            });
            self.sort(&mut users);
            users.dedup();
            frontier = users;
        }
        Some(frontier)
    }

    fn sort(&self, nodes: &mut [NodeId]) {
        nodes.sort_unstable_by_key(|&id| self.graph.order(id));
    }

    /// Whether a node of the graph matches a pattern node, arguments aside.
    fn looks_like(
        &mut self,
        wanted: NodeId,
        id: NodeId,
        is_anchor: bool,
    ) -> Result<bool, H::Error> {
        let (pattern, graph) = (self.matcher.pattern.node(wanted), self.graph.node(id));
        if pattern.op() == Op::Placeholder && !self.matcher.options.match_placeholder {
            return Ok(true);
        }
        if is_anchor && !self.query.name.is_empty() && graph.name().contains(self.query.name) {
            return Ok(true);
        }
        if pattern.op() != graph.op() {
            return Ok(false);
        }
        match pattern.op() {
            Op::Placeholder | Op::Output => Ok(true),
            Op::GetAttr => self
                .host
                .same_attribute(pattern.target_name(), graph.target_name()),
            Op::CallFunction | Op::CallMethod | Op::CallModule => {
                Ok(self.targets[wanted].contains(&graph.target()))
            }
        }
    }

    /// Whether everything from `anchor` backwards matches from `candidate` backwards.
    fn match_from(&mut self, anchor: NodeId, candidate: NodeId) -> Result<bool, H::Error> {
        self.work.clear();
        if !self.match_node(anchor, candidate, true)? {
            return Ok(false);
        }
        while let Some((wanted, value)) = self.work.pop() {
            let matched = match (wanted.arg, value.arg) {
                (Arg::Node(wanted), Arg::Node(id)) => self.match_node(*wanted, *id, false)?,
                (wanted_arg, arg) => match (sequence_items(wanted_arg), sequence_items(arg)) {
                    (Some(wanted_items), Some(items)) => {
                        wanted_items.len() == items.len() && {
                            let pairs = wanted_items.iter().zip(items).rev();
                            self.work.extend(pairs.map(|(w, v)| {
                                (Value { arg: w, ..wanted }, Value { arg: v, ..value })
                            }));
                            true
                        }
                    }
                    _ => self.match_literal(wanted, value)? || self.matcher.options.ignore_literals,
                },
            };
            if !matched {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn match_node(
        &mut self,
        wanted: NodeId,
        id: NodeId,
        is_anchor: bool,
    ) -> Result<bool, H::Error> {
        if let Some(at) = self.position[wanted] {
            return Ok(self.trail[at as usize].1 == Arg::Node(id));
        }
        let op = self.matcher.pattern.node(wanted).op();
        if self.part[id] != Part::Outside || (self.taken[id] && covers(op)) {
            return Ok(false);
        }
        if !self.looks_like(wanted, id, is_anchor)? {
            return Ok(false);
        }
        let part = if op == Op::Placeholder {
            Part::Input
        } else {
            Part::Inside
        };
        self.part.set(id, part);
        self.bind(wanted, Arg::Node(id));
        Ok(op == Op::Placeholder || self.queue_arguments(wanted, id))
    }

    /// Queues the arguments of both nodes for comparison; returns false if they cannot be paired.
    fn queue_arguments(&mut self, wanted: NodeId, id: NodeId) -> bool {
        let matcher: &'a SubgraphMatcher<'a> = self.matcher;
        let graph: &'a Graph = self.graph;
        let (wanted, node) = (matcher.pattern.node(wanted), graph.node(id));
        let pattern_value = |arg: &'a Arg| Value {
            arg,
            graph: matcher.pattern,
        };
        let graph_value = |arg: &'a Arg| Value { arg, graph };

        let same_keys = wanted.kwargs().len() == node.kwargs().len()
            && wanted
                .kwargs()
                .iter()
                .zip(node.kwargs())
                .all(|((a, _), (b, _))| matcher.pattern.text(*a) == graph.text(*b));
        if same_keys && wanted.args().len() == node.args().len() {
            let kwargs = wanted.kwargs().iter().zip(node.kwargs()).rev();
            self.work
                .extend(kwargs.map(|((_, w), (_, v))| (pattern_value(w), graph_value(v))));
            let args = wanted.args().iter().zip(node.args()).rev();
            self.work
                .extend(args.map(|(w, v)| (pattern_value(w), graph_value(v))));
            return true;
        }

        let Target::Function(function) = wanted.target() else {
            return false;
        };
        let schemas: &'a [(FunctionId, Schema)] = self.query.schemas;
        let Some((_, schema)) = schemas.iter().find(|(f, _)| *f == function) else {
            return false;
        };
        for (index, parameter) in schema.parameters.iter().enumerate().rev() {
            let positional = |args: &'a [Arg]| args.get(index).filter(|_| !parameter.keyword_only);
            let passed = wanted
                .kwarg(&parameter.name)
                .or_else(|| positional(wanted.args()));
            let other = node
                .kwarg(&parameter.name)
                .or_else(|| positional(node.args()));
            let (passed, other) = match (passed, other) {
                (None, None) => continue,
                (Some(w), Some(v)) => (pattern_value(w), graph_value(v)),
                (Some(w), None) => (pattern_value(w), graph_value(&parameter.default)),
                (None, Some(v)) => (graph_value(&parameter.default), graph_value(v)),
            };
            self.work.push((passed, other));
        }
        true
    }

    /// Compares two arguments of which at least one is no node, and not both are sequences.
    fn match_literal(&mut self, wanted: Value<'a>, value: Value<'a>) -> Result<bool, H::Error> {
        let host = &mut AskHost(&mut *self.host);
        match (wanted.arg, value.arg) {
            (Arg::Node(node), _) => {
                if self.matcher.pattern.node(*node).op() != Op::Placeholder {
                    return Ok(false);
                }
                if let Some(at) = self.position[*node] {
                    let known = Value {
                        arg: &self.trail[at as usize].1,
                        graph: self.graph,
                    };
                    return known.equals(value, host);
                }
                self.bind(*node, value.arg.clone());
                Ok(true)
            }
            (_, Arg::Node(_)) => Ok(false),
            _ => wanted.is_same_literal(value, host),
        }
    }

    fn bind(&mut self, wanted: NodeId, to: Arg) {
        // A pattern has fewer nodes than ids, which are 32 bits.
        self.position
            .set(wanted, u32::try_from(self.trail.len()).ok());
        self.trail.push((wanted, to));
    }

    fn cut_back(&mut self, len: usize) {
        for (wanted, bound) in self.trail.drain(len..) {
            self.position.set(wanted, None);
            if let Arg::Node(id) = bound {
                self.part.set(id, Part::Outside);
            }
        }
    }

    /// Whether the first `len` entries of the trail contain nodes that no other match may share.
    fn covers_nodes(&self, len: usize) -> bool {
        let pattern = self.matcher.pattern;
        self.trail[..len]
            .iter()
            .any(|&(wanted, _)| covers(pattern.node(wanted).op()))
    }

    /// Enters the trail among the matches, if it is one.
    fn accept(&mut self) -> Result<bool, H::Error> {
        let placeholders = self.positions(&self.matcher.placeholders)?;
        let returning = self.positions(&self.matcher.returning)?;
        let SubgraphMatcher {
            pattern,
            roles,
            options,
            ..
        } = self.matcher;
        let leaks = self.trail.iter().any(|(wanted, bound)| {
            pattern.node(*wanted).op() != Op::Placeholder
                && !roles[*wanted].returned
                && bound.as_node().is_some_and(|id| {
                    self.graph
                        .users(id)
                        .any(|user| self.part[user] != Part::Inside)
                })
        });
        if leaks {
            return Ok(false);
        }
        let covered: SmallVec<[NodeId; 8]> = self
            .trail
            .iter()
            .filter(|(wanted, _)| covers(pattern.node(*wanted).op()))
            .filter_map(|(_, bound)| bound.as_node())
            .collect();
        if self.boundary.has_way_back(self.graph, &covered, &self.part) {
            return Ok(false);
        }
        if options.remove_overlapping_matches {
            for id in covered {
                self.taken.set(id, true);
            }
        }
        self.found.push(Match {
            bindings: self.trail.clone(),
            placeholders,
            returning,
        });
        Ok(true)
    }

    fn positions(&self, nodes: &[NodeId]) -> Result<Positions, MatchError> {
        let position = |&id: &NodeId| self.position[id].ok_or_else(|| self.matcher.unbound(id));
        nodes.iter().map(position).collect()
    }
}

/// Whether a match covers the counterparts of pattern nodes with this opcode, so that no other
/// match may.
fn covers(op: Op) -> bool {
    !matches!(op, Op::Placeholder | Op::Output)
}

fn is_call(op: Op) -> bool {
    matches!(op, Op::CallFunction | Op::CallMethod | Op::CallModule)
}

/// For each call in the pattern, the targets in the graph that are the same.
fn same_targets<H: MatchHost>(
    pattern: &Graph,
    graph: &Graph,
    host: &mut H,
) -> SecondaryMap<NodeId, SmallVec<[Target; 1]>> {
    let mut functions: SecondaryMap<FunctionId, Option<SmallVec<[Target; 1]>>> =
        SecondaryMap::new();
    let mut targets = SecondaryMap::with_capacity(pattern.id_bound());
    for id in pattern.nodes() {
        let node = pattern.node(id);
        let same = match node.target() {
            Target::Name(name) => {
                let same: Option<Symbol> = graph.lookup(pattern.text(name));
                same.map(Target::Name).into_iter().collect()
            }
            Target::Function(wanted) => functions
                .get_mut(wanted)
                .get_or_insert_with(|| {
                    let all = graph.functions().map(|(function, _)| function);
                    all.filter(|&function| host.same_function((pattern, wanted), (graph, function)))
                        .map(Target::Function)
                        .collect()
                })
                .clone(),
        };
        targets.set(id, same);
    }
    targets
}
