//! Folds batch norms into the weights of the layers beside them.
//!
//! A batch norm in evaluation multiplies each channel by a number and adds another. Where only the
//! batch norm uses the result of a convolution, transposed convolution or linear layer, the layer's
//! weights are changed so that it computes both, and the batch norm is removed. Likewise where only
//! such a layer uses the result of the batch norm, unless the layer pads its input with zeros or is
//! a transposed convolution: the number added would then be missing at the border. Layers and batch
//! norms may be modules, or functions whose weights are attributes; a function gets new attributes,
//! so that others may share the old ones.
//!
//! Needs: weights that do not change from now on; inputs with a batch dimension, since an unbatched
//! input is normalised over another dimension. Where the number of dimensions is known
//! ([`TensorFacts`]), it decides. A linear layer is folded where its input is known to have two
//! dimensions, or is declared to with [`Options::linear`].
//!
//! Preserves: order, names and metadata of the nodes that stay. Results differ in rounding only.
//!
//! ```text
//! conv1 = self.conv1(x)
//! bn1 = self.bn1(conv1)     →   conv1 = self.conv1(x)
//! relu = self.relu(bn1)         relu = self.relu(conv1)
//! ```
//!
//! Reference: `torch.fx.experimental.optimization.fuse`, which also folds where the convolution is
//! called twice or its weight is read elsewhere, and then computes another result.

mod modules;
mod operand;
mod planner;
mod refusal;

use corsac_ir::{Arg, EntityId, Graph, InsertPoint, NodeId, Op, ThinVec};
use corsac_ops::Host;
use modules::Modules;
use operand::Norm;
use planner::Planner;
use rustc_hash::FxHashMap;

use crate::budget::Budget;
use crate::edits::Added;
use crate::error::PassError;
use crate::pass::{Context, Pass};
use crate::report::{Report as Done, Site as Place};
use crate::tensors::TensorFacts;
use crate::weights::{Fold, LayerTensors, NormTensors, Side, Weights, WeightsError};

pub use refusal::Refusal;

/// Options of the fusion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to fold also into linear layers whose inputs are not known to have two dimensions,
    /// batch and features. They must have them.
    pub linear: bool,
}

/// A batch norm, with the outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// The qualified name of the batch norm, or the name of the node where it is no module.
    pub norm: String,
    /// The name of the layer it was, or could have been, folded into.
    pub layer: Option<String>,
    /// The node of the batch norm, erased where it was folded.
    pub node: NodeId,
    /// The node of the layer.
    pub layer_node: Option<NodeId>,
    /// The change of the weights, where there is one.
    pub plan: Option<Plan>,
    /// Why it was not folded, if it was not.
    pub refusal: Option<Refusal>,
}

impl Site {
    /// Whether it is folded into a layer before it.
    fn is_after_layer(&self) -> bool {
        let plan = self.plan.as_ref();
        plan.is_some_and(|plan| plan.side == Side::After)
    }
}

/// The change of the weights of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The layer's weights.
    pub layer: LayerTensors,
    /// The batch norm's.
    pub norm: NormTensors,
    /// The epsilon that the batch norm adds to the variance.
    pub eps: f64,
    /// The order of the two operations.
    pub side: Side,
    /// Whether the first dimension of the weight is that of the input channels.
    pub transposed: bool,
    /// Number of groups of the layer's channels.
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

/// Added and erased nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// New nodes, each with the one that it replaces, or, for a bias where there was none, with the
    /// weight.
    pub added: Vec<Added>,
    /// Nodes erased.
    pub erased: Vec<NodeId>,
}

impl Report {
    /// Whether the graph has changed.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.folded() > 0
    }

    /// Number of batch norms folded.
    #[must_use]
    pub fn folded(&self) -> usize {
        self.planned().count()
    }

    /// The sites to fold, with their indices.
    pub fn planned(&self) -> impl Iterator<Item = (usize, &Site, &Plan)> {
        let sites = self.sites.iter().enumerate();
        sites.filter_map(|(index, site)| match (&site.refusal, &site.plan) {
            (None, Some(plan)) => Some((index, site, plan)),
            _ => None,
        })
    }

    /// Records the new names of the weights of a planned site.
    ///
    /// # Panics
    /// If there is no site `index`.
    pub fn settle(&mut self, index: usize, result: LayerTensors) {
        if let Some(plan) = &mut self.sites[index].plan {
            plan.result = Some(result);
        }
    }

    /// Records that the weights of a planned site could not be changed. If it comes after its
    /// layer, batch norms that would have been folded into the same layer through it stay too.
    ///
    /// # Panics
    /// If there is no site `index`.
    pub fn refuse(&mut self, index: usize, error: WeightsError) {
        let layer = self.sites[index].layer_node;
        let input = self.sites[index].norm.clone();
        self.sites[index].refusal = Some(error.into());
        if !self.sites[index].is_after_layer() {
            return;
        }
        for site in &mut self.sites[index + 1..] {
            if site.layer_node == layer && site.is_after_layer() && site.refusal.is_none() {
                let (input, expected) = (input.clone(), "a layer");
                site.refusal = Some(Refusal::NotAfterLayer { input, expected });
            }
        }
    }

    /// Applies the plan to the graph: the layer replaces the batch norm, which is removed. The
    /// weights must have been changed before.
    ///
    /// # Errors
    /// If the graph is not the one that the plan was made for.
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

/// Makes the function call `layer` use new attributes.
fn give_parameters(
    graph: &mut Graph,
    layer: NodeId,
    (weight, bias): (NodeId, Option<NodeId>),
    result: &LayerTensors,
    applied: &mut Applied,
) -> Result<(), PassError> {
    let before = graph.set_insert_point(InsertPoint::Before(layer))?;
    let mut attribute = |graph: &mut Graph, name: &str, root: NodeId, has_its_value: bool| {
        let node = graph.get_attr(name)?;
        graph.set_origin(node, graph.origin(root));
        applied.added.push(Added {
            node,
            root,
            has_its_value,
        });
        Ok::<_, PassError>(node)
    };
    let made = attribute(graph, &result.weight, weight, true).and_then(|new_weight| {
        let name = result.bias.as_deref().unwrap_or_default();
        let new_bias = attribute(graph, name, bias.unwrap_or(weight), bias.is_some())?;
        Ok((new_weight, new_bias))
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
    // Names of the weights of a layer after earlier folds.
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

/// Finds every batch norm of the graph, with the layer to fold it into or why there is none,
/// without changing the graph.
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

#[cfg(test)]
mod tests;
