//! Folds batch norms into the weights of the layers beside them.
//!
//! What it does: a batch norm in evaluation multiplies each channel by a number and adds another.
//! Where nothing but the batch norm uses the result of a convolution, transposed convolution or
//! linear layer, the layer's weights are changed so that it computes what both did, and the batch
//! norm is removed. Where nothing but such a layer uses the result of the batch norm, likewise,
//! unless the layer puts zeros around its input or is a transposed convolution: the number added
//! would then be missing at the border. Layers and batch norms may be modules, or functions whose
//! weights are attributes; a function gets new attributes, so that others may share the old ones.
//!
//! Needs: weights that stay as they are from now on; inputs with a batch dimension, since an
//! unbatched input is normalised over another dimension. Where the number of dimensions is known
//! ([`TensorFacts`]), it decides. A linear layer is folded where its input is known to have two
//! dimensions, or is declared to with [`Options::linear`].
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

mod operand;

use corsac_ir::{Arg, EntityId, Graph, InsertPoint, Node, NodeId, Op, ThinVec};
use corsac_ops::{ClassId, Host, ModuleInfo};
use rustc_hash::{FxHashMap, FxHashSet};
use thiserror::Error;

use crate::analysis::Analysis;
use crate::budget::Budget;
use crate::error::PassError;
use crate::pass::{Context, Pass};
use crate::report::{Report as Done, Site as Place};
use crate::tensors::TensorFacts;
use crate::weights::{Fold, LayerTensors, NormTensors, Side, Weights, WeightsError};

use operand::{Layer, LayerKind, Norm};

/// What to fold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to fold into linear layers too whose inputs are not known to have two dimensions,
    /// batch and features. They must have.
    pub linear: bool,
}

/// A batch norm, and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// The qualified name of the batch norm; of the node, where it is no module.
    pub norm: String,
    /// The layer it was folded into, or could have been, named likewise.
    pub layer: Option<String>,
    /// The node of the batch norm, erased where it was folded.
    pub node: NodeId,
    /// The node of the layer.
    pub layer_node: Option<NodeId>,
    /// How the weights are to be changed, where they are.
    pub plan: Option<Plan>,
    /// Why it was not folded, if it was not.
    pub refusal: Option<Refusal>,
}

/// How the weights of a layer are to be changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The layer's weights.
    pub layer: LayerTensors,
    /// The batch norm's.
    pub norm: NormTensors,
    /// What the batch norm adds to the variance.
    pub eps: f64,
    /// Which of the two is applied first.
    pub side: Side,
    /// Whether the first dimension of the weight is that of the input channels.
    pub transposed: bool,
    /// Into how many groups the layer's channels are divided.
    pub groups: usize,
    /// The nodes of weight and bias, where the layer is a function.
    parameters: Option<(NodeId, Option<NodeId>)>,
    /// The names of the new weights, where the layer is a function.
    pub result: Option<LayerTensors>,
}

/// Every batch norm of the graph, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The sites.
    pub sites: Vec<Site>,
}

/// Which nodes came and went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// New nodes, each with the one that it is in the place of.
    pub added: Vec<(NodeId, NodeId)>,
    /// Nodes erased.
    pub erased: Vec<NodeId>,
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
        self.planned().count()
    }

    /// The sites where something is to be done, with their indices.
    pub fn planned(&self) -> impl Iterator<Item = (usize, &Site, &Plan)> {
        let sites = self.sites.iter().enumerate();
        sites.filter_map(|(index, site)| match (&site.refusal, &site.plan) {
            (None, Some(plan)) => Some((index, site, plan)),
            _ => None,
        })
    }

    /// Says what the weights of a planned site are called now.
    ///
    /// # Panics
    /// If there is no site `index`.
    pub fn settle(&mut self, index: usize, result: LayerTensors) {
        if let Some(plan) = &mut self.sites[index].plan {
            plan.result = Some(result);
        }
    }

    /// Says that the weights of a planned site could not be changed. What would have been folded
    /// into the same layer after it stays too.
    ///
    /// # Panics
    /// If there is no site `index`.
    pub fn refuse(&mut self, index: usize, error: WeightsError) {
        let layer = self.sites[index].layer_node;
        let input = self.sites[index].norm.clone();
        self.sites[index].refusal = Some(error.into());
        for site in &mut self.sites[index + 1..] {
            if site.layer_node == layer && site.refusal.is_none() {
                let (input, expected) = (input.clone(), "a layer");
                site.refusal = Some(Refusal::NotAfterLayer { input, expected });
            }
        }
    }

    /// Applies the plan to the graph: the layer takes the place of the batch norm, which is
    /// removed. The weights have been changed by then.
    ///
    /// # Errors
    /// If the graph is another one than the plan was made for.
    pub fn apply(&self, graph: &mut Graph) -> Result<Applied, PassError> {
        let mut applied = Applied::default();
        let mut orphans = Vec::new();
        for (_, site, plan) in self.planned() {
            let Some(layer) = site.layer_node else {
                continue;
            };
            orphans.extend(graph.inputs(site.node).filter(|&n| is_attribute(graph, n)));
            match plan.side {
                Side::After => {
                    graph.replace_all_uses(site.node, layer)?;
                }
                Side::Before => {
                    let input = graph.inputs(site.node).next().unwrap_or(site.node);
                    graph.replace_input(layer, site.node, input)?;
                }
            }
            graph.erase(site.node)?;
            applied.erased.push(site.node);
        }
        let mut results: FxHashMap<NodeId, &Plan> = FxHashMap::default();
        for (_, site, plan) in self.planned() {
            if let Some(layer) = site.layer_node
                && plan.result.is_some()
            {
                results.insert(layer, plan);
            }
        }
        let mut results: Vec<_> = results.into_iter().collect();
        results.sort_unstable_by_key(|&(layer, _)| layer.index());
        for (layer, plan) in results {
            if let (Some((weight, bias)), Some(result)) = (plan.parameters, &plan.result) {
                orphans.extend([Some(weight), bias].into_iter().flatten());
                give_parameters(graph, layer, (weight, bias), result, &mut applied)?;
            }
        }
        orphans.sort_unstable();
        orphans.dedup();
        for orphan in orphans {
            if graph.node(orphan).num_users() == 0 {
                graph.erase(orphan)?;
                applied.erased.push(orphan);
            }
        }
        Ok(applied)
    }
}

fn is_attribute(graph: &Graph, node: NodeId) -> bool {
    graph.node(node).op() == Op::GetAttr
}

/// Makes the function that `layer` calls use new attributes.
fn give_parameters(
    graph: &mut Graph,
    layer: NodeId,
    (weight, bias): (NodeId, Option<NodeId>),
    result: &LayerTensors,
    applied: &mut Applied,
) -> Result<(), PassError> {
    let before = graph.set_insert_point(InsertPoint::Before(layer))?;
    let mut attribute = |graph: &mut Graph, name: &str, like: NodeId| {
        let new = graph.get_attr(name)?;
        graph.set_origin(new, graph.origin(like));
        applied.added.push((new, like));
        Ok::<_, PassError>(new)
    };
    let made = attribute(graph, &result.weight, weight).and_then(|new_weight| {
        let name = result.bias.as_deref().unwrap_or_default();
        Ok((new_weight, attribute(graph, name, bias.unwrap_or(weight))?))
    });
    graph.restore_insert_point(before);
    let (new_weight, new_bias) = made?;
    let view = graph.node(layer);
    let mut args: ThinVec<Arg> = view.args().into();
    let mut kwargs: ThinVec<_> = view.kwargs().into();
    let names = ["weight", "bias"].map(|name| graph.intern(name));
    for (position, (name, new)) in [(names[0], new_weight), (names[1], new_bias)]
        .into_iter()
        .enumerate()
    {
        if let Some(arg) = args.get_mut(position + 1) {
            *arg = new.into();
        } else if let Some((_, arg)) = kwargs.iter_mut().find(|(key, _)| *key == name) {
            *arg = new.into();
        } else {
            kwargs.push((name, new.into()));
        }
    }
    graph.set_arguments(layer, args, kwargs)?;
    Ok(())
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
    /// A weight of a function is no attribute of the program.
    #[error("its {parameter} is no attribute")]
    NotAttribute {
        /// Which.
        parameter: String,
    },
    /// A layer after it puts zeros around its input, which would be normalised too.
    #[error("{layer} comes after it and pads its input with zeros")]
    Padded {
        /// The layer.
        layer: String,
    },
    /// A transposed convolution after it, whose border sees fewer terms.
    #[error("{layer} comes after it and is a transposed convolution")]
    Transposed {
        /// The layer.
        layer: String,
    },
    /// Without a batch dimension, another dimension is normalised than the channels.
    #[error(
        "its input has {rank} dimensions, so that it does not normalise the channels of {layer}"
    )]
    Rank {
        /// The layer.
        layer: String,
        /// Dimensions of what is normalised.
        rank: usize,
    },
    /// Weights, inputs or values in between are written to.
    #[error("the program writes to what {layer} reads")]
    Written {
        /// The layer.
        layer: String,
    },
    /// It could be folded, but no more changes may be made.
    #[error("{}", Budget::EXHAUSTED)]
    Budget,
    /// The weights could not be changed.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

/// The pass, with its options. Without weights it does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct FuseBatchNorms(pub Options);

impl Pass for FuseBatchNorms {
    fn name(&self) -> &'static str {
        "conv-bn fusion"
    }

    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> Result<Done, PassError> {
        let nodes_before = graph.len();
        let report = match &mut context.weights {
            Some(weights) => {
                let (host, tensors) = (context.host, context.tensors);
                let budget = &mut context.budget;
                fuse(graph, host, tensors, *weights, self.0, budget)?
            }
            None => Report::default(),
        };
        let sites = report.sites.into_iter().map(|site| {
            let reason = site.refusal.map(|refusal| refusal.to_string());
            Place::new(graph, site.node, site.layer, reason)
        });
        Ok(Done {
            pass: self.name().to_owned(),
            sites: sites.collect(),
            nodes_before,
            nodes_after: graph.len(),
        })
    }
}

/// Folds batch norms into the layers beside them.
///
/// # Errors
/// If the graph refuses a change, which it does not for a graph that is well formed.
pub fn fuse(
    graph: &mut Graph,
    host: &dyn Host,
    tensors: &TensorFacts,
    weights: &mut dyn Weights,
    options: Options,
    budget: &mut Budget,
) -> Result<Report, PassError> {
    let mut report = plan(graph, host, tensors, options, budget)?;
    // What the weights of a layer are called after earlier folds.
    let mut current: FxHashMap<NodeId, LayerTensors> = FxHashMap::default();
    for index in 0..report.sites.len() {
        let site = &report.sites[index];
        let (None, Some(plan), Some(node)) = (&site.refusal, &site.plan, site.layer_node) else {
            continue;
        };
        let folded = weights.fold(&Fold {
            layer: site.layer.as_deref().unwrap_or_default(),
            norm: &site.norm,
            layer_tensors: current.get(&node).unwrap_or(&plan.layer),
            norm_tensors: &plan.norm,
            eps: plan.eps,
            side: plan.side,
            transposed: plan.transposed,
            groups: plan.groups,
        });
        match folded {
            Ok(result) => {
                current.insert(node, result.clone());
                report.settle(index, result);
            }
            Err(error) => report.refuse(index, error),
        }
    }
    report.apply(graph)?;
    Ok(report)
}

/// Every batch norm of the graph, with what it could be folded into or why not. Nothing changes.
///
/// # Errors
/// [`PassError::UsedBeforeDefined`] if a node uses one that comes after it.
pub fn plan(
    graph: &Graph,
    host: &dyn Host,
    tensors: &TensorFacts,
    options: Options,
    budget: &mut Budget,
) -> Result<Report, PassError> {
    let mut planner = Planner {
        graph,
        host,
        tensors,
        options,
        modules: Modules::of_graph(graph, host),
        folded: FxHashMap::default(),
        writes: None,
    };
    let mut report = Report::default();
    for node in graph.nodes() {
        let Some(norm) = Norm::read(graph, &planner.modules, node) else {
            continue;
        };
        let mut site = Site {
            norm: match &norm {
                Ok(norm) => norm.name.clone(),
                Err((name, _)) => name.clone(),
            },
            layer: None,
            node,
            layer_node: None,
            plan: None,
            refusal: None,
        };
        let decision = match norm {
            Ok(norm) => planner.decide(node, &norm)?,
            Err((_, refusal)) => Err((None, refusal)),
        };
        match decision {
            Ok((layer, _)) if !budget.take() => {
                site.layer = Some(layer.name);
                site.refusal = Some(Refusal::Budget);
            }
            Ok((layer, plan)) => {
                if plan.side == Side::After {
                    planner.folded.insert(node, layer.node);
                }
                site.layer = Some(layer.name);
                site.layer_node = Some(layer.node);
                site.plan = Some(plan);
            }
            Err((layer, refusal)) => {
                site.layer = layer;
                site.refusal = Some(refusal);
            }
        }
        report.sites.push(site);
    }
    Ok(report)
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

    /// Why the modules of a layer and a batch norm cannot be made one, if they cannot.
    fn refusal(
        &self,
        layer: &Layer,
        of_layer: Option<&ModuleInfo>,
        norm: &Norm,
        of_norm: Option<&ModuleInfo>,
    ) -> Option<Refusal> {
        if let Some(info) = of_layer {
            let calls = self.calls.get(&info.identity).copied().unwrap_or(0);
            if calls > 1 {
                let layer = layer.name.clone();
                return Some(Refusal::LayerIsShared { layer, calls });
            }
        }
        for (info, path) in [(of_norm, &norm.name), (of_layer, &layer.name)] {
            let Some(info) = info else { continue };
            let path = path.clone();
            if info.training {
                return Some(Refusal::Training { path });
            }
            if info.hooks || info.impure == Some(true) {
                return Some(Refusal::Hooks { path });
            }
            if let Some(attribute) = self.attribute_of.get(&info.identity) {
                let attribute = attribute.clone();
                return Some(Refusal::AttributeIsUsed { attribute });
            }
        }
        if of_norm.is_some_and(|info| !info.tracks_statistics) {
            let norm = norm.name.clone();
            return Some(Refusal::BatchStatistics { norm });
        }
        of_layer?;
        parents(&layer.name).find_map(|parent| {
            let identity = self.identities.get(parent)?;
            self.calls
                .contains_key(identity)
                .then(|| Refusal::PartOfCalled {
                    layer: layer.name.clone(),
                    parent: parent.to_owned(),
                })
        })
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

/// What a batch norm of this kind is folded into.
fn expected(norm: &Norm, options: Options) -> &'static str {
    match norm.dims {
        Some(1) if options.linear => "a 1-d convolution or a linear layer",
        Some(1) => "a 1-d convolution",
        Some(2) => "a 2-d convolution",
        Some(_) => "a 3-d convolution",
        None => "a convolution or a linear layer",
    }
}

type Decision = Result<(Layer, Plan), (Option<String>, Refusal)>;

/// What is known while batch norms are looked at, in graph order.
struct Planner<'a> {
    graph: &'a Graph,
    host: &'a dyn Host,
    tensors: &'a TensorFacts,
    options: Options,
    modules: Modules,
    /// What folded batch norms leave in their places.
    folded: FxHashMap<NodeId, NodeId>,
    /// The places of writes, found when somebody asks.
    writes: Option<Writes>,
}

/// Where a program writes.
struct Writes {
    /// The writing nodes with the classes that they write to, in order.
    places: Vec<(NodeId, Vec<ClassId>)>,
    analysis: Analysis,
}

impl Planner<'_> {
    /// The layer that the batch norm at `node` is folded into, and how.
    fn decide(&mut self, node: NodeId, norm: &Norm) -> Result<Decision, PassError> {
        let after = self.after_layer(node, norm)?;
        let Err((layer, refusal)) = after else {
            return Ok(after);
        };
        Ok(match self.before_layer(node, norm)? {
            Some(Ok(decided)) => Ok(decided),
            // Which of the two reasons says more: that of the layer before, if there is one.
            Some(Err(before)) if layer.is_none() => Err(before),
            Some(Err(_)) | None => Err((layer, refusal)),
        })
    }

    /// The layer whose result the batch norm normalises.
    fn after_layer(&mut self, node: NodeId, norm: &Norm) -> Result<Decision, PassError> {
        let layer_node = self.folded.get(&norm.input).copied().unwrap_or(norm.input);
        let layer = Layer::read(self.graph, &self.modules, layer_node);
        let Some(layer) = layer.filter(|layer| self.fits(norm, layer)) else {
            let input = self.graph.node(layer_node).name().to_owned();
            let expected = expected(norm, self.options);
            return Ok(Err((None, Refusal::NotAfterLayer { input, expected })));
        };
        // The layer's own, or that of a batch norm which becomes the layer's.
        let result = self.graph.node(norm.input);
        if result.num_users() > 1 {
            return Ok(Err(used(self.graph, &layer, result)));
        }
        Ok(self.check(node, norm, &layer, Side::After)?.map_or_else(
            || Ok((layer.clone(), plan_of(&layer, norm, Side::After))),
            |refusal| Err((Some(layer.name.clone()), refusal)),
        ))
    }

    /// The layer that alone uses what the batch norm computes; `None` if there is no such layer.
    fn before_layer(&mut self, node: NodeId, norm: &Norm) -> Result<Option<Decision>, PassError> {
        let graph = self.graph;
        let view = graph.node(node);
        let mut users = view.users();
        let (Some(user), None) = (users.next(), users.next()) else {
            return Ok(None);
        };
        let layer = Layer::read(graph, &self.modules, user);
        let Some(layer) = layer.filter(|l| l.input == node && self.fits(norm, l)) else {
            return Ok(None);
        };
        let name = layer.name.clone();
        let refusal = if matches!(layer.kind, LayerKind::ConvTranspose(_)) {
            Some(Refusal::Transposed { layer: name })
        } else if layer.zero_padded {
            Some(Refusal::Padded { layer: name })
        } else {
            self.check(node, norm, &layer, Side::Before)?
        };
        Ok(Some(match refusal {
            Some(refusal) => Err((Some(layer.name), refusal)),
            None => {
                let plan = plan_of(&layer, norm, Side::Before);
                Ok((layer, plan))
            }
        }))
    }

    /// Whether a batch norm of this kind normalises the channels of such a layer.
    fn fits(&self, norm: &Norm, layer: &Layer) -> bool {
        match layer.kind {
            LayerKind::Linear => {
                let flat = self.tensors.rank(norm.input) == Some(2);
                matches!(norm.dims, None | Some(1)) && (flat || self.options.linear)
            }
            LayerKind::Conv(dims) | LayerKind::ConvTranspose(dims) => {
                norm.dims.is_none_or(|norm| norm == dims)
            }
        }
    }

    /// Why the two cannot be one, if they cannot.
    fn check(
        &mut self,
        node: NodeId,
        norm: &Norm,
        layer: &Layer,
        side: Side,
    ) -> Result<Option<Refusal>, PassError> {
        let batched = match layer.kind {
            LayerKind::Linear => 2,
            LayerKind::Conv(dims) | LayerKind::ConvTranspose(dims) => usize::from(dims) + 2,
        };
        if let Some(rank) = self.tensors.rank(norm.input).filter(|&r| r != batched) {
            let layer = layer.name.clone();
            return Ok(Some(Refusal::Rank { layer, rank }));
        }
        let modules = &self.modules;
        let info = |path| modules.by_path.get(path);
        let of_layer = layer.tensors.module.as_deref().and_then(info);
        let of_norm = norm.tensors.module.as_deref().and_then(info);
        if let Some(refusal) = modules.refusal(layer, of_layer, norm, of_norm) {
            return Ok(Some(refusal));
        }
        // A module reads its input where it is called, and nothing can write to what is between
        // the two; a function's weights, and what is read later than before, may be written to.
        if side == Side::Before || !norm.is_module || layer.parameters.is_some() {
            let (from, to) = match side {
                Side::After => (layer.node, node),
                Side::Before => (node, layer.node),
            };
            if self.is_written(norm, from, to)? {
                let layer = layer.name.clone();
                return Ok(Some(Refusal::Written { layer }));
            }
        }
        Ok(None)
    }

    /// Whether the program writes to attributes anywhere, or to what is normalised between two
    /// nodes.
    fn is_written(&mut self, norm: &Norm, from: NodeId, to: NodeId) -> Result<bool, PassError> {
        let writes = match &mut self.writes {
            Some(writes) => writes,
            None => {
                let analysis = Analysis::of_graph(self.graph, self.host)?;
                let places = analysis.special().filter(|(_, effects)| effects.writes());
                let places = places.map(|(place, effects)| {
                    let written = effects.mutates.iter().map(|&n| analysis.classes.class(n));
                    let state = effects.writes_state.then_some(ClassId::OUTSIDE);
                    (
                        analysis.nodes[place as usize],
                        written.chain(state).collect(),
                    )
                });
                let places = places.collect();
                self.writes.insert(Writes { places, analysis })
            }
        };
        let input = writes.analysis.classes.class(norm.input);
        let graph = self.graph;
        Ok(writes.places.iter().any(|(at, classes)| {
            let between = graph.is_before(from, *at) && graph.is_before(*at, to);
            classes.contains(&ClassId::OUTSIDE) || (between && classes.contains(&input))
        }))
    }
}

fn used(graph: &Graph, layer: &Layer, result: Node<'_>) -> (Option<String>, Refusal) {
    let users = result.users().map(|u| graph.node(u).name().to_owned());
    let refusal = Refusal::LayerIsUsed {
        layer: layer.name.clone(),
        users: users.collect(),
    };
    (Some(layer.name.clone()), refusal)
}

fn plan_of(layer: &Layer, norm: &Norm, side: Side) -> Plan {
    Plan {
        layer: layer.tensors.clone(),
        norm: norm.tensors.clone(),
        eps: norm.eps,
        side,
        transposed: matches!(layer.kind, LayerKind::ConvTranspose(_)),
        groups: layer.groups,
        parameters: layer.parameters,
        result: None,
    }
}

#[cfg(test)]
mod tests;
