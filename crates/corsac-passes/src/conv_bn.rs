//! Folds a batch norm into the weights of the convolution before it.
//!
//! What it does: where the only thing that uses a convolution is a batch norm in evaluation, the
//! convolution's weights are changed so that it computes what both did, and the batch norm is
//! removed. With [`Options::linear`], a linear layer before a one-dimensional batch norm likewise.
//!
//! Needs: weights that stay as they are from now on; inputs with a batch dimension, since an
//! unbatched sequence is normalised over another dimension.
//!
//! Preserves: order, names and everything known of the nodes that stay. Results differ in rounding
//! only.
//!
//! ```text
//! conv1 = self.conv1(x)
//! bn1 = self.bn1(conv1)     →   conv1 = self.conv1(x)
//! relu = self.relu(bn1)         relu = self.relu(conv1)
//! ```
//!
//! Reference: `torch.fx.experimental.optimization.fuse`, which also folds where the convolution is
//! called twice or its weight is read elsewhere, and computes something else then.

use corsac_ir::{Graph, Node, NodeId, Op};
use corsac_ops::{Host, ModuleInfo};
use rustc_hash::{FxHashMap, FxHashSet};
use thiserror::Error;

use crate::error::PassError;
use crate::weights::{Fold, Weights, WeightsError};

/// What to fold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to fold into linear layers too. Their inputs must have two dimensions: batch and
    /// features.
    pub linear: bool,
}

/// A batch norm, and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// The qualified name of the batch norm.
    pub norm: String,
    /// The qualified name of the layer it was folded into, or could have been.
    pub layer: Option<String>,
    /// The node of the batch norm, erased where it was folded.
    pub node: NodeId,
    /// The node of the layer, which users of the batch norm use from then on.
    pub layer_node: Option<NodeId>,
    /// What the batch norm adds to the variance.
    pub eps: f64,
    /// Why it was not folded, if it was not.
    pub refusal: Option<Refusal>,
}

/// Every batch norm of the graph, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The sites.
    pub sites: Vec<Site>,
}

impl Report {
    /// Whether the graph is another one now.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.folded() > 0
    }

    /// How many batch norms were folded.
    #[must_use]
    pub fn folded(&self) -> usize {
        self.sites.iter().filter(|s| s.refusal.is_none()).count()
    }

    /// Says that the weights of a planned site could not be changed. What would have been folded
    /// into the same layer after it stays too.
    ///
    /// # Panics
    /// If there is no site `index`.
    pub fn refuse(&mut self, index: usize, error: WeightsError) {
        let (layer, expected) = (self.sites[index].layer.clone(), "a layer");
        let input = self.sites[index].norm.clone();
        self.sites[index].refusal = Some(error.into());
        for site in &mut self.sites[index + 1..] {
            if site.layer == layer && site.refusal.is_none() {
                let input = input.clone();
                site.refusal = Some(Refusal::NotAfterLayer { input, expected });
            }
        }
    }

    /// Applies the plan to the graph: users of a folded batch norm use the layer, and the batch
    /// norm is removed. The weights have been changed by then.
    ///
    /// # Errors
    /// If the graph is another one than the plan was made for.
    pub fn apply(&self, graph: &mut Graph) -> Result<(), PassError> {
        for site in self.sites.iter().filter(|s| s.refusal.is_none()) {
            if let Some(layer) = site.layer_node {
                graph.replace_all_uses(site.node, layer)?;
                graph.erase(site.node)?;
            }
        }
        Ok(())
    }
}

/// Why a batch norm was not folded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It normalises something else than the result of a layer that it can be folded into.
    #[error("its input {input} is not the result of {expected}")]
    NotAfterLayer {
        /// The name of the node it normalises.
        input: String,
        /// What is folded into.
        expected: &'static str,
    },
    /// It is called with something else than one tensor.
    #[error("{path} is called with other arguments than one tensor")]
    Arguments {
        /// The module.
        path: String,
    },
    /// Others use the result of the layer, before normalisation.
    #[error("{} nodes use the result of {layer}: {}", .users.len(), .users.join(", "))]
    LayerIsUsed {
        /// The layer.
        layer: String,
        /// The names of the nodes.
        users: Vec<String>,
    },
    /// The layer is called several times, and the other calls need its weights as they are.
    #[error("{layer} is called {calls} times")]
    LayerIsShared {
        /// The layer.
        layer: String,
        /// How often.
        calls: usize,
    },
    /// A module in training mode.
    #[error("{path} is in training mode")]
    Training {
        /// The module.
        path: String,
    },
    /// The batch norm has no running statistics: it computes them from each batch.
    #[error("{norm} normalises with the statistics of each batch: it keeps no running ones")]
    BatchStatistics {
        /// The batch norm.
        norm: String,
    },
    /// A module with hooks, or that declares side effects.
    #[error("{path} has hooks or declares side effects")]
    Hooks {
        /// The module.
        path: String,
    },
    /// The graph uses an attribute of one of the two by itself.
    #[error("the graph uses {attribute} by itself")]
    AttributeIsUsed {
        /// The qualified name of the attribute.
        attribute: String,
    },
    /// The layer is part of a module that is called as a whole.
    #[error("{layer} is part of {parent}, which is called as a whole")]
    PartOfCalled {
        /// The layer.
        layer: String,
        /// The module that it is part of.
        parent: String,
    },
    /// The weights could not be changed.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

/// Folds batch norms into the layers before them.
///
/// # Errors
/// If the graph refuses a change, which it does not for a graph that is well formed.
pub fn fuse(
    graph: &mut Graph,
    host: &dyn Host,
    weights: &mut dyn Weights,
    options: Options,
) -> Result<Report, PassError> {
    let mut report = plan(graph, host, options);
    for index in 0..report.sites.len() {
        let site = &report.sites[index];
        if let (None, Some(layer)) = (&site.refusal, &site.layer) {
            let (norm, eps) = (&site.norm, site.eps);
            if let Err(error) = weights.fold(Fold { layer, norm, eps }) {
                report.refuse(index, error);
            }
        }
    }
    report.apply(graph)?;
    Ok(report)
}

/// Every batch norm of the graph, with what it could be folded into or why not. Nothing changes.
#[must_use]
pub fn plan(graph: &Graph, host: &dyn Host, options: Options) -> Report {
    let modules = Modules::of_graph(graph, host);
    let mut report = Report::default();
    // What folded batch norms leave in their places.
    let mut folded = FxHashMap::default();
    for node in graph.find_nodes(Op::CallModule, None) {
        let norm = graph.node(node).target_name();
        let Some(info) = modules.by_path.get(norm).filter(|m| is_batch_norm(m)) else {
            continue;
        };
        let mut site = Site {
            norm: norm.to_owned(),
            layer: None,
            node,
            layer_node: None,
            eps: info.eps,
            refusal: None,
        };
        match decide(graph, &modules, &folded, node, info, options) {
            Ok(layer) => {
                folded.insert(node, layer);
                site.layer = Some(graph.node(layer).target_name().to_owned());
                site.layer_node = Some(layer);
            }
            Err((layer, refusal)) => {
                site.layer = layer;
                site.refusal = Some(refusal);
            }
        }
        report.sites.push(site);
    }
    report
}

/// The modules that a graph calls, and the attributes that it uses by itself.
struct Modules {
    by_path: FxHashMap<String, ModuleInfo>,
    /// How often each module is called, whatever its path.
    calls: FxHashMap<u64, usize>,
    /// An attribute used by itself, for each module that it is part of.
    attribute_of: FxHashMap<u64, String>,
    /// By path: which module it is, for every module on the way to a called one.
    identities: FxHashMap<String, u64>,
}

impl Modules {
    fn of_graph(graph: &Graph, host: &dyn Host) -> Self {
        let mut modules = Self {
            by_path: FxHashMap::default(),
            calls: FxHashMap::default(),
            attribute_of: FxHashMap::default(),
            identities: FxHashMap::default(),
        };
        let mut seen = FxHashSet::default();
        for node in graph.find_nodes(Op::CallModule, None) {
            let path = graph.node(node).target_name();
            if seen.insert(path)
                && let Some(info) = host.module(path)
            {
                modules.identities.insert(path.to_owned(), info.identity);
                modules.by_path.insert(path.to_owned(), info);
            }
            if let Some(info) = modules.by_path.get(path) {
                *modules.calls.entry(info.identity).or_default() += 1;
            }
        }
        let called: Vec<String> = modules.by_path.keys().cloned().collect();
        for path in called {
            for parent in parents(&path) {
                modules.identify(parent, host);
            }
        }
        for node in graph.find_nodes(Op::GetAttr, None) {
            let attribute = graph.node(node).target_name();
            for parent in parents(attribute) {
                if let Some(identity) = modules.identify(parent, host) {
                    modules
                        .attribute_of
                        .entry(identity)
                        .or_insert_with(|| attribute.to_owned());
                }
            }
        }
        modules
    }

    fn identify(&mut self, path: &str, host: &dyn Host) -> Option<u64> {
        if let Some(&identity) = self.identities.get(path) {
            return Some(identity);
        }
        let identity = host.module(path)?.identity;
        self.identities.insert(path.to_owned(), identity);
        Some(identity)
    }
}

/// `a.b` and `a` for `a.b.c`.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = path;
    std::iter::from_fn(move || {
        rest = rest.rsplit_once('.')?.0;
        Some(rest)
    })
}

fn is_batch_norm(info: &ModuleInfo) -> bool {
    matches!(
        info.torch_class(),
        Some("BatchNorm1d" | "BatchNorm2d" | "BatchNorm3d")
    )
}

/// What a batch norm of this class is folded into.
fn layers_before(norm: &ModuleInfo, options: Options) -> (&'static [&'static str], &'static str) {
    match norm.torch_class() {
        Some("BatchNorm1d") if options.linear => {
            (&["Conv1d", "Linear"], "a Conv1d or Linear module")
        }
        Some("BatchNorm1d") => (&["Conv1d"], "a Conv1d module"),
        Some("BatchNorm2d") => (&["Conv2d"], "a Conv2d module"),
        _ => (&["Conv3d"], "a Conv3d module"),
    }
}

/// The only argument of a call that has no other.
fn only_argument(node: Node<'_>) -> Option<NodeId> {
    match (node.args(), node.kwargs()) {
        ([arg], []) => arg.as_node(),
        ([], [(_, arg)]) => node.kwarg("input").and(arg.as_node()),
        _ => None,
    }
}

/// The node of the layer that the batch norm at `node` is folded into.
fn decide(
    graph: &Graph,
    modules: &Modules,
    folded: &FxHashMap<NodeId, NodeId>,
    node: NodeId,
    norm: &ModuleInfo,
    options: Options,
) -> Result<NodeId, (Option<String>, Refusal)> {
    let norm_node = graph.node(node);
    let norm_path = norm_node.target_name().to_owned();
    let (classes, expected) = layers_before(norm, options);
    let Some(input) = only_argument(norm_node) else {
        return Err((None, Refusal::Arguments { path: norm_path }));
    };
    let layer_node = folded.get(&input).copied().unwrap_or(input);
    let view = graph.node(layer_node);
    let layer = (view.op() == Op::CallModule)
        .then(|| modules.by_path.get(view.target_name()))
        .flatten()
        .filter(|info| info.torch_class().is_some_and(|c| classes.contains(&c)));
    let Some(layer) = layer else {
        let input = view.name().to_owned();
        return Err((None, Refusal::NotAfterLayer { input, expected }));
    };
    let layer_path = view.target_name().to_owned();
    let refused = |refusal| Err((Some(layer_path.clone()), refusal));

    if only_argument(view).is_none() {
        return refused(Refusal::Arguments {
            path: layer_path.clone(),
        });
    }
    // The layer's own, or that of a batch norm which becomes the layer's.
    let result = graph.node(input);
    if result.num_users() > 1 {
        let users = result.users().map(|u| graph.node(u).name().to_owned());
        return refused(Refusal::LayerIsUsed {
            layer: layer_path.clone(),
            users: users.collect(),
        });
    }
    let calls = modules.calls.get(&layer.identity).copied().unwrap_or(0);
    if calls > 1 {
        let layer = layer_path.clone();
        return refused(Refusal::LayerIsShared { layer, calls });
    }
    for (info, path) in [(norm, &norm_path), (layer, &layer_path)] {
        let path = path.clone();
        if info.training {
            return refused(Refusal::Training { path });
        }
        if info.hooks || info.impure == Some(true) {
            return refused(Refusal::Hooks { path });
        }
        if let Some(attribute) = modules.attribute_of.get(&info.identity) {
            let attribute = attribute.clone();
            return refused(Refusal::AttributeIsUsed { attribute });
        }
    }
    if !norm.tracks_statistics {
        return refused(Refusal::BatchStatistics { norm: norm_path });
    }
    for parent in parents(&layer_path) {
        let identity = modules.identities.get(parent);
        if identity.is_some_and(|identity| modules.calls.contains_key(identity)) {
            return refused(Refusal::PartOfCalled {
                layer: layer_path.clone(),
                parent: parent.to_owned(),
            });
        }
    }
    Ok(layer_node)
}

#[cfg(test)]
mod tests;
