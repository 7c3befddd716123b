//! Layers that a backend runs as one: which there are, and the graph without all but the first.
//!
//! The first layer of a pattern, its root, stays and is to compute the others too; the host makes
//! the module that does. The call is at the place of the last layer.
//!
//! Needs: the classes of modules, and whether they have hooks and train.
//!
//! A fused module takes the place of its root, in all calls. So layers stay as they are where the
//! root is called elsewhere with something else after it, where its attributes are read, or where one
//! of the layers has hooks.
//!
//! ```text
//! conv = self.conv(x)
//! bn = self.bn(conv)        →
//! relu = self.relu(bn)          conv = self.conv(x)
//! ```
//!
//! Reference: `torch.ao.quantization.fuse_fx`, which also fuses into layers that are called again.

use corsac_ir::{Arg, Graph, NodeId, Op, ThinVec};
use corsac_ops::{Host, ModuleInfo};
use rustc_hash::{FxHashMap, FxHashSet};

use super::pattern::{Classes, Pattern, longest_first};
use crate::budget::Budget;
use crate::edits::Edits;
use crate::error::PassError;
use crate::modules::{Modules, hooked};
use crate::report::{Refusal, Site};

const NO_STATISTICS: &str = "keeps no running statistics";
const NO_MODULE: Refusal = Refusal::because("its root is no call of a module");

/// A pattern of layers to be fused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fusible {
    /// The layers.
    pub pattern: Pattern,
    /// The place of the layer that stays, among the calls of the pattern.
    pub root: usize,
    /// The places of further inputs that it gets.
    pub extra: Vec<usize>,
}

/// Layers that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fusion {
    /// The place of the pattern in the list.
    pub pattern: usize,
    /// The nodes, in the order of the calls of the pattern.
    pub nodes: Vec<Option<NodeId>>,
    /// The node that stays.
    pub root: NodeId,
    /// Further inputs of it.
    pub extra: Vec<NodeId>,
    /// The place, with the path of the root, and the reason why the layers stay as they are.
    pub site: Site,
}

/// Finds the layers that match one of `patterns`, without changing the graph. Those with most
/// layers are tried first, else in the order of the list; each node is in one fusion at most.
#[must_use]
pub fn find(
    graph: &Graph,
    host: &dyn Host,
    patterns: &[Fusible],
    budget: &mut Budget,
) -> Vec<Fusion> {
    let modules = Modules::of_graph(graph, host);
    let classes = Classes::of_modules(&modules);
    let order = longest_first(patterns.iter().map(|fusible| &fusible.pattern));
    let mut taken: FxHashSet<NodeId> = FxHashSet::default();
    let mut found = Vec::new();
    for node in graph.nodes().rev() {
        if taken.contains(&node) {
            continue;
        }
        let matched = order.iter().find_map(|&at| {
            let nodes = patterns[at].pattern.matches(graph, &classes, node)?;
            Some((at, nodes))
        });
        let Some((at, nodes)) = matched else { continue };
        let Fusible { root, extra, .. } = &patterns[at];
        let get = |&place: &usize| nodes.get(place).copied().flatten();
        let Some(root) = get(root) else { continue };
        let extra: Vec<NodeId> = extra.iter().filter_map(get).collect();
        // Inputs of the fused layer are no part of it.
        let own = |&&layer: &&NodeId| layer == root || !extra.contains(&layer);
        taken.extend(nodes.iter().flatten().filter(own));
        let path = graph.node(root).target_name().to_owned();
        found.push(Fusion {
            pattern: at,
            root,
            extra,
            site: Site::new(graph, node, None).with_other(Some(path)),
            nodes,
        });
    }
    found.reverse();
    for fusion in &mut found {
        fusion.site.refusal = refusal(graph, &modules, fusion);
    }
    refuse_roots_called_otherwise(graph, &modules, &mut found);
    limit(graph, &modules, &mut found, budget);
    found
}

/// Refuses the fusions that the budget does not allow; those into one module are one change.
fn limit(graph: &Graph, modules: &Modules, fusions: &mut [Fusion], budget: &mut Budget) {
    let mut decided: FxHashMap<u64, Option<Refusal>> = FxHashMap::default();
    for fusion in fusions.iter_mut().filter(|fusion| fusion.site.is_applied()) {
        let path = graph.node(fusion.root).target_name();
        let identity = modules.by_path.get(path).map(|info| info.identity);
        fusion.site.refusal = match identity {
            Some(identity) => {
                let decision = decided.entry(identity);
                decision.or_insert_with(|| budget.grant(()).err()).clone()
            }
            None => budget.grant(()).err(),
        };
    }
}

/// The layers of a fusion that are modules, with their paths.
fn layers<'g>(
    graph: &'g Graph,
    modules: &'g Modules,
    fusion: &'g Fusion,
) -> impl Iterator<Item = (&'g str, &'g ModuleInfo)> {
    let nodes = fusion.nodes.iter().flatten().copied();
    nodes
        .filter(|node| !fusion.extra.contains(node))
        .map(|node| graph.node(node))
        .filter(|view| view.op() == Op::CallModule)
        .filter_map(|view| Some((view.target_name(), modules.by_path.get(view.target_name())?)))
}

/// The reason why layers cannot be fused by themselves.
fn refusal(graph: &Graph, modules: &Modules, fusion: &Fusion) -> Option<Refusal> {
    let root = graph.node(fusion.root);
    if root.op() != Op::CallModule {
        return Some(NO_MODULE);
    }
    for (path, info) in layers(graph, modules, fusion) {
        if let Some(refusal) = hooked(path, info) {
            return Some(refusal);
        }
        let is_norm = info
            .torch_class()
            .is_some_and(|name| name.starts_with("BatchNorm"));
        if is_norm && !info.tracks_statistics {
            return Some(format!("{path} {NO_STATISTICS}").into());
        }
    }
    let info = modules.by_path.get(root.target_name())?;
    let attribute = modules.attribute_of.get(&info.identity)?;
    let path = root.target_name();
    Some(format!("the graph reads {attribute}, an attribute of {path}").into())
}

/// Refuses fusions into modules that are called elsewhere too, unless all calls are of the same
/// layers with the same weights.
fn refuse_roots_called_otherwise(graph: &Graph, modules: &Modules, fusions: &mut [Fusion]) {
    let mut by_root: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
    for (at, fusion) in fusions.iter().enumerate() {
        let path = graph.node(fusion.root).target_name();
        if let Some(info) = modules.by_path.get(path) {
            by_root.entry(info.identity).or_default().push(at);
        }
    }
    for (root, members) in by_root {
        let calls = modules.calls.get(&root).copied().unwrap_or(0);
        // A layer without weights is the same in all places.
        let identities = |at: &usize| -> Vec<u64> {
            layers(graph, modules, &fusions[*at])
                .filter(|(_, info)| info.torch_class() != Some("ReLU"))
                .map(|(_, info)| info.identity)
                .collect()
        };
        let first = identities(&members[0]);
        let alike = members.iter().all(|at| {
            fusions[*at].pattern == fusions[members[0]].pattern
                && fusions[*at].site.is_applied()
                && identities(at) == first
        });
        if alike && members.len() == calls {
            continue;
        }
        for at in members {
            let site = &mut fusions[at].site;
            let path = site.other.clone().unwrap_or_default();
            let reason = match calls {
                0 | 1 => continue,
                calls => format!("{path} is called {calls} times, with other layers after it"),
            };
            site.refusal.get_or_insert_with(|| reason.into());
        }
    }
}

/// Removes the layers that the root of each fusion computes, and moves it to the place of the last.
/// The host has put the fused modules into the places of the roots.
///
/// # Errors
/// If the graph is not the one in which they were found.
pub fn apply(graph: &mut Graph, fusions: &[Fusion]) -> Result<Edits, PassError> {
    let mut edits = Edits::default();
    for fusion in fusions.iter().filter(|fusion| fusion.site.is_applied()) {
        let Fusion { root, site, .. } = fusion;
        let (root, last) = (*root, site.node);
        if root != last {
            graph.move_before(root, last)?;
            graph.replace_uses_if(last, root, |_, user| user != root)?;
        }
        for &layer in fusion.nodes.iter().flatten() {
            if layer != root && !fusion.extra.contains(&layer) {
                graph.erase(layer)?;
                edits.erased.push(layer);
            }
        }
        if !fusion.extra.is_empty() {
            let view = graph.node(root);
            let mut args: ThinVec<Arg> = view.args().into();
            let kwargs = view.kwargs().into();
            args.extend(fusion.extra.iter().copied().map(Arg::Node));
            graph.set_arguments(root, args, kwargs)?;
        }
    }
    Ok(edits)
}
