//! Replaces the matches of a pattern.
//!
//! Each match is rewritten by a [`Patch`]: the nodes of the replacement are added before the first
//! user of the values that the match computes, its users are redirected, and the nodes of the match
//! are dropped. Nothing outside of the surroundings of the match is looked at, so that rewriting is
//! linear in the number of matches.
//!
//! Results are those of `replace_pattern` in torch.fx 2.15 (`torch/fx/subgraph_rewriter.py`), by
//! behaviour, node for node and name for name, except where torch.fx leaves a graph that cannot
//! run: where a pattern returns several values, the first user of one can come before an input of
//! the replacement, and such users are moved behind it; and where a pattern returns one of its own
//! placeholders, no new node uses itself in its place, and a match whose replacement would depend
//! on itself all the same is refused. Beyond torch.fx, new nodes get the source line and the module
//! call of the replaced ones.
//!
//! ```
//! use corsac_ir::Graph;
//! use corsac_ir::proxy::trace;
//! use corsac_ir::rewrite::replace_pattern;
//!
//! let mut graph = trace(|g| {
//!     let x = g.placeholder("x");
//!     g.call_function("torch.relu", [x]) + 1
//! })?;
//! let pattern = trace(|g| {
//!     let x = g.placeholder("x");
//!     g.call_function("torch.relu", [x])
//! })?;
//! let replacement = trace(|g| {
//!     let x = g.placeholder("x");
//!     x.clone().gt(0) * x
//! })?;
//! let replaced = replace_pattern(&mut graph, &pattern, &replacement)?;
//! assert_eq!(replaced.len(), 1);
//! let names: Vec<_> = graph.nodes().map(|id| graph.node(id).name()).collect();
//! assert_eq!(names, ["x", "gt", "mul", "add", "output"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod patch;

#[cfg(test)]
mod tests;

pub use error::RewriteError;
pub use patch::{Patch, redirect_users};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::arg::Arg;
use crate::entity::{EntityId, NodeId, SecondaryMap};
use crate::graph::{Graph, Origin, Translation};
use crate::matching::{Match, MatchOptions, SubgraphMatcher};
use crate::op::Op;

/// A match that was rewritten.
#[derive(Clone, Debug)]
pub struct Replaced {
    /// The match. Its placeholders stand for the inputs of the new nodes, its other nodes are gone.
    pub matched: Match,
    /// The nodes that the match returned, as they were found.
    returned: SmallVec<[NodeId; 2]>,
    /// The ids of the new nodes, as indices.
    added: std::ops::Range<usize>,
}

impl Replaced {
    /// The nodes that were added, in the order of the replacement.
    pub fn added(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        self.added.clone().map(NodeId::from_index)
    }

    /// The nodes that the match returned, in the order of the pattern.
    #[must_use]
    pub fn returned(&self) -> &[NodeId] {
        &self.returned
    }
}

/// The planned replacement of a match.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The match; its placeholders stand for the inputs of the new nodes.
    pub matched: Match,
    /// The nodes that the match returned, as they were found.
    pub returned: SmallVec<[NodeId; 2]>,
    /// The change.
    pub patch: Patch,
}

/// The purpose of a node of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purpose {
    /// The number of the first result that it is or contributes to.
    pub result: usize,
    /// Whether it is that result.
    pub is_result: bool,
}

/// Replaces all matches of `pattern` in `graph` that do not overlap by `replacement`, which takes
/// and returns as many values. Returns the replaced matches, in graph order.
///
/// # Errors
/// [`RewriteError`] for a match that cannot be replaced; the graph is then as the rewrites before
/// left it.
pub fn replace_pattern(
    graph: &mut Graph,
    pattern: &Graph,
    replacement: &Graph,
) -> Result<Vec<Replaced>, RewriteError> {
    let matcher = SubgraphMatcher::new(pattern, MatchOptions::default())?;
    let matches = matcher.find(graph)?;
    let replacement = Replacement::new(replacement);
    let mut translation = Translation::new();
    let mut rewriter = Rewriter::new(&matcher);
    matches
        .into_iter()
        .map(|matched| rewriter.replace(graph, matched, &replacement, &mut translation))
        .collect()
}

/// A replacement, analysed once.
#[derive(Clone, Debug)]
pub struct Replacement<'r> {
    graph: &'r Graph,
    placeholders: Vec<NodeId>,
    body: Vec<NodeId>,
    purposes: Vec<Purpose>,
    value: Option<&'r Arg>,
}

impl<'r> Replacement<'r> {
    /// Analyses a replacement; nodes after its first output are ignored.
    #[must_use]
    pub fn new(graph: &'r Graph) -> Self {
        let mut replacement = Self {
            graph,
            placeholders: Vec::new(),
            body: Vec::new(),
            purposes: Vec::new(),
            value: None,
        };
        let mut nodes = graph.nodes();
        for id in nodes.by_ref() {
            match graph.node(id).op() {
                Op::Placeholder => replacement.placeholders.push(id),
                Op::Output => {
                    replacement.value = graph.node(id).args().first();
                    break;
                }
                Op::GetAttr | Op::CallFunction | Op::CallMethod | Op::CallModule => {
                    replacement.body.push(id);
                }
            }
        }
        let late = nodes.filter(|&id| graph.node(id).op() == Op::Placeholder);
        replacement.placeholders.extend(late);
        replacement.purposes = replacement.find_purposes();
        replacement
    }

    /// The purposes of the nodes of the body.
    fn find_purposes(&self) -> Vec<Purpose> {
        let purpose = |result, is_result| Purpose { result, is_result };
        let single = self.value.map(std::slice::from_ref);
        let results = self.value.and_then(results).or(single).unwrap_or_default();
        let mut found: SecondaryMap<NodeId, Option<Purpose>> = SecondaryMap::new();
        for (number, node) in results.iter().map(Arg::as_node).enumerate().rev() {
            if let Some(node) = node {
                found.set(node, Some(purpose(number, true)));
            }
        }
        let mut work = Vec::new();
        for (number, result) in results.iter().enumerate() {
            result.for_each_node(&mut |node| work.push(node));
            while let Some(node) = work.pop() {
                for input in self.graph.inputs(node) {
                    if found[input].is_none() {
                        found.set(input, Some(purpose(number, false)));
                        work.push(input);
                    }
                }
            }
        }
        let of_node = |&id: &NodeId| found[id].unwrap_or(purpose(0, false));
        self.body.iter().map(of_node).collect()
    }

    /// The nodes that take the place of a match, in order.
    #[must_use]
    pub fn body(&self) -> &[NodeId] {
        &self.body
    }

    /// The purpose of each node of the body.
    #[must_use]
    pub fn purposes(&self) -> &[Purpose] {
        &self.purposes
    }

    /// The placeholders, in order.
    #[must_use]
    pub fn placeholders(&self) -> &[NodeId] {
        &self.placeholders
    }
}

/// The replacements of nodes that matches returned and that later matches may use.
#[derive(Clone, Debug, Default)]
pub struct Changed(FxHashMap<NodeId, Arg>);

/// Rewrites the matches of one search, one after the other.
#[derive(Debug)]
pub struct Rewriter<'m> {
    matcher: &'m SubgraphMatcher<'m>,
    changed: Changed,
    /// The nodes of the pattern that a rewrite drops, users first.
    covered: Vec<NodeId>,
    /// The values in the graph of the nodes of the replacement.
    values: SecondaryMap<NodeId, Option<Arg>>,
    /// The counterparts in the graph of the nodes of the pattern.
    bound: SecondaryMap<NodeId, Option<NodeId>>,
}

impl<'m> Rewriter<'m> {
    /// A rewriter of matches that `matcher` found.
    #[must_use]
    pub fn new(matcher: &'m SubgraphMatcher<'m>) -> Self {
        let pattern = matcher.pattern();
        let is_covered =
            |&id: &NodeId| !matches!(pattern.node(id).op(), Op::Placeholder | Op::Output);
        Self {
            matcher,
            changed: Changed::default(),
            covered: pattern.nodes().rev().filter(is_covered).collect(),
            values: SecondaryMap::new(),
            bound: SecondaryMap::new(),
        }
    }

    /// The match of `bindings`, pattern nodes with their counterparts.
    ///
    /// # Errors
    /// As [`SubgraphMatcher::match_of`].
    pub fn match_of(&self, bindings: Vec<(NodeId, Arg)>) -> Result<Match, RewriteError> {
        Ok(self.matcher.match_of(bindings)?)
    }

    /// Goes on where another rewriter for the same search left off.
    #[must_use]
    pub fn resume(matcher: &'m SubgraphMatcher<'m>, changed: Changed) -> Self {
        Self {
            changed,
            ..Self::new(matcher)
        }
    }

    /// The state that later rewrites need, for [`Rewriter::resume`].
    #[must_use]
    pub fn into_changed(self) -> Changed {
        self.changed
    }

    /// Replaces one match. `translation` goes from the replacement to `graph`.
    ///
    /// # Errors
    /// [`RewriteError`] if the match cannot be replaced; the graph is then unchanged.
    pub fn replace(
        &mut self,
        graph: &mut Graph,
        matched: Match,
        replacement: &Replacement<'_>,
        translation: &mut Translation,
    ) -> Result<Replaced, RewriteError> {
        let planned = self.plan(graph, matched, replacement, translation)?;
        let added = planned.patch.apply(graph)?;
        Ok(Replaced {
            matched: planned.matched,
            returned: planned.returned,
            added,
        })
    }

    /// The change that replaces one match, and the match with the present counterparts of its
    /// placeholders. The rewriter relies on the change being made.
    ///
    /// # Errors
    /// As [`Rewriter::replace`].
    pub fn plan(
        &mut self,
        graph: &mut Graph,
        mut matched: Match,
        replacement: &Replacement<'_>,
        translation: &mut Translation,
    ) -> Result<Planned, RewriteError> {
        // Returned placeholders are kept as they were found, not as their replacements since.
        let mut returned = SmallVec::new();
        for (&id, bound) in self.matcher.returning().iter().zip(matched.returning()) {
            returned.push(
                bound
                    .as_node()
                    .ok_or_else(|| RewriteError::LiteralReturned {
                        node: self.matcher.pattern().node(id).name().to_owned(),
                    })?,
            );
        }
        self.bind_placeholders(&mut matched, replacement)?;
        let patch = self.patch(graph, &matched, &returned, replacement, translation)?;
        Ok(Planned {
            matched,
            returned,
            patch,
        })
    }

    /// Binds the placeholders of both sides to the present inputs of the match.
    fn bind_placeholders(
        &mut self,
        matched: &mut Match,
        replacement: &Replacement<'_>,
    ) -> Result<(), RewriteError> {
        let (expected, got) = (matched.placeholders().len(), replacement.placeholders.len());
        if expected != got {
            return Err(RewriteError::PlaceholderCount { expected, got });
        }
        self.values.clear();
        let current: Vec<_> = matched
            .placeholders()
            .map(|bound| self.current(bound))
            .collect();
        for (index, (&placeholder, now)) in replacement.placeholders.iter().zip(current).enumerate()
        {
            let now = now?;
            self.values.set(placeholder, Some(now.clone()));
            matched.rebind_placeholder(index, now);
        }
        Ok(())
    }

    /// An argument with the replacements of nodes that earlier rewrites replaced.
    fn current(&self, bound: &Arg) -> Result<Arg, RewriteError> {
        bound.map_leaves(&mut |leaf| {
            let changed = leaf.as_node().and_then(|node| self.changed.0.get(&node));
            Ok(changed.unwrap_or(leaf).clone())
        })
    }

    /// The change that puts the replacement in the place of the match.
    fn patch(
        &mut self,
        graph: &mut Graph,
        matched: &Match,
        returned: &[NodeId],
        replacement: &Replacement<'_>,
        translation: &mut Translation,
    ) -> Result<Patch, RewriteError> {
        self.bound.clear();
        for (id, bound) in matched.bindings() {
            self.bound.set(*id, bound.as_node());
        }
        let at = insertion_point(graph, returned)?;
        let roots: SmallVec<[Origin; 2]> = returned.iter().map(|&id| graph.origin(id)).collect();
        let mut patch = Patch::new(graph, at);
        let values = &mut self.values;
        for (&id, purpose) in replacement.body.iter().zip(&replacement.purposes) {
            let spec = translation.spec(replacement.graph, graph, id, &mut |node| {
                value(values, node)
            })?;
            let name = replacement.graph.node(id).name().to_owned();
            let own = replacement.graph.origin(id);
            let mut origin = translation.origin(replacement.graph, graph, own);
            if let Some(root) = roots.get(purpose.result) {
                origin.source = root.source.or(origin.source);
                origin.scope = origin.scope.or(root.scope);
            }
            let new = patch.add(spec, Some(name), origin);
            values.set(id, Some(Arg::Node(new)));
        }

        let nothing = RewriteError::NothingReturned { got: "nothing" };
        let output = replacement.value.ok_or(nothing)?;
        let output =
            translation.arg(replacement.graph, graph, output, &mut |n| value(values, n))?;
        let single = [output];
        let results = match &single[0] {
            Arg::Node(_) => &single[..],
            other => results(other).ok_or(RewriteError::NothingReturned { got: kind(other) })?,
        };
        if results.len() != returned.len() {
            let (expected, got) = (returned.len(), results.len());
            return Err(RewriteError::ReturnCount { expected, got });
        }
        for (&old, new) in returned.iter().zip(results) {
            // A placeholder that an earlier match covered has no users left.
            if graph.contains(old) {
                patch.redirect(old, new.clone());
            }
        }
        for &id in &self.covered {
            let node = self.bound[id].ok_or_else(|| self.matcher.unbound(id))?;
            // A callback may have erased it in the meantime.
            if graph.contains(node) {
                patch.drop_node(node);
            }
        }
        if returned.len() > 1 {
            put_behind_inputs(graph, &mut patch)?;
        }
        let changed = returned.iter().copied().zip(results.iter().cloned());
        self.changed.0.extend(changed);
        Ok(patch)
    }
}

/// The values that a replacement returns, if it returns a sequence.
fn results(value: &Arg) -> Option<&[Arg]> {
    match value {
        Arg::NamedTuple(named) => Some(&named.1),
        other => other.as_items(),
    }
}

fn value(values: &SecondaryMap<NodeId, Option<Arg>>, node: NodeId) -> Result<Arg, RewriteError> {
    let value = values[node].clone();
    value.ok_or(RewriteError::Graph(crate::error::GraphError::UnknownNode {
        node,
    }))
}

/// The first user of the values that a match returns; without one, the node after the match.
fn insertion_point(graph: &Graph, returned: &[NodeId]) -> Result<NodeId, RewriteError> {
    let order = |&id: &NodeId| graph.order(id);
    let users = returned.iter().flat_map(|&id| graph.users(id));
    if let Some(first) = users.min_by_key(order) {
        return Ok(first);
    }
    let live = returned.iter().copied().filter(|&id| graph.contains(id));
    let last = live.max_by_key(order);
    let next = last.map_or(NodeId::ROOT, |last| graph.next(last));
    if next.is_root() {
        Err(RewriteError::NoInsertPoint)
    } else {
        Ok(next)
    }
}

/// Puts the new nodes behind their last input where that comes after the first user of their
/// values, and moves down the users that come before it.
fn put_behind_inputs(graph: &Graph, patch: &mut Patch) -> Result<(), RewriteError> {
    let mut inputs = Vec::new();
    patch.for_each_input(&mut |id| inputs.push(id));
    let is_late = |&id: &NodeId| !graph.is_before(id, patch.at());
    let has_early_users = |(old, new): &(NodeId, Arg)| {
        let mut found = false;
        new.for_each_node(&mut |id| {
            let mut users = graph.users(*old);
            found |= graph.contains(id) && users.any(|user| !graph.is_before(id, user));
        });
        found
    };
    if !inputs.iter().any(is_late) && !patch.redirections().iter().any(has_early_users) {
        return Ok(());
    }
    patch.for_each_new_value(&mut |id| inputs.push(id));
    let order = |id: &NodeId| graph.order(*id);
    let Some(last) = inputs.iter().copied().max_by_key(order) else {
        return Ok(());
    };
    let mut moved: SecondaryMap<NodeId, bool> = SecondaryMap::new();
    let mut users = Vec::new();
    let mut work: Vec<_> = patch.redirections().iter().map(|&(old, _)| old).collect();
    while let Some(id) = work.pop() {
        for user in graph.users(id) {
            let is_late = graph.is_before(last, user) || patch.drops(user);
            if !is_late && !std::mem::replace(moved.get_mut(user), true) {
                users.push(user);
                work.push(user);
            }
        }
    }
    if let Some(&input) = inputs.iter().find(|&&input| moved[input]) {
        let input = graph.node(input).name().to_owned();
        return Err(RewriteError::DependsOnItself { input });
    }
    users.sort_unstable_by_key(|&id| graph.order(id));
    patch.insert_before(graph.next(last));
    users.into_iter().for_each(|user| patch.move_down(user));
    Ok(())
}

/// The kind of an argument, for messages.
fn kind(arg: &Arg) -> &'static str {
    match arg {
        Arg::None => "None",
        Arg::Dict(_) => "a dict",
        Arg::Slice(_) | Arg::Range(_) => "a slice or range",
        Arg::Opaque(_) => "a value of the host",
        Arg::Node(_) => "a node",
        Arg::Tuple(_) | Arg::List(_) | Arg::NamedTuple(_) => "a sequence",
        Arg::Ellipsis
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
        | Arg::MemoryFormat(_) => "a literal",
    }
}
