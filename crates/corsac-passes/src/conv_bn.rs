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
//! dimensions, or is declared to with [`FoldBatchNorms::linear`].
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

mod operand;
mod planner;
mod tensors;

use corsac_ir::{Arg, EntityId, Graph, InsertPoint, NodeId, Op, ThinVec};
use corsac_ops::Host;
use corsac_ops::shape::Value;
use operand::Norm;
use planner::Planner;
use rustc_hash::FxHashMap;

use crate::budget::Budget;
use crate::edits::{Added, Edits};
use crate::error::PassError;
use crate::modules::Modules;
use crate::pass::{self, Context, Needs, Pass, Request, Setting, path};
use crate::report::{Refusal, Site};
use crate::tensors::TensorFacts;
pub use tensors::{LayerTensors, NormTensors, Side};

/// The host has named something else than a weight and a bias.
const NOT_NAMED: Refusal = Refusal::because("its weight and bias are not named");

/// The pass. The host computes the weights of each layer, in order, and names weight and bias. Where
/// it refuses a norm after a layer, it also refuses those that follow on the same layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoldBatchNorms {
    /// Whether to fold also into linear layers whose inputs are not known to have two dimensions,
    /// batch and features. They must have them.
    pub linear: bool,
}

impl Pass for FoldBatchNorms {
    fn name(&self) -> &'static str {
        "conv-bn fusion"
    }

    fn set(&mut self, option: &str, setting: Setting) -> bool {
        option == "linear" && setting.put_flag(&mut self.linear)
    }

    fn needs(&self) -> Needs {
        Needs {
            host: true,
            tensors: true,
            ..Needs::default()
        }
    }

    fn plan(&self, graph: &Graph, context: &mut Context<'_>) -> Result<pass::Plan, PassError> {
        let mut found = self.find(graph, context.host, context.tensors, context.budget)?;
        let sites = found.0.iter().map(|at| at.site.clone()).collect();
        let requests = found.planned();
        let requests = requests.map(|(site, at, plan)| Request::new(site, at.facts(plan)));
        let requests = requests.collect();
        let plan = pass::Plan::other(sites, Vec::new(), move |graph, _, sites, requests| {
            for request in requests {
                match request.names.try_into() {
                    Ok(names) => found.settle(request.site, names),
                    Err(_) => _ = sites[request.site].refusal.get_or_insert(NOT_NAMED),
                }
            }
            for (at, site) in found.0.iter_mut().zip(sites) {
                at.site.refusal.clone_from(&site.refusal);
            }
            found.apply(graph)
        });
        Ok(pass::Plan { requests, ..plan })
    }
}

impl FoldBatchNorms {
    /// Finds every batch norm of the graph, with the layer to fold it into or why there is none,
    /// without changing the graph.
    ///
    /// # Errors
    /// [`PassError::UsedBeforeDefined`] if a node uses one that comes after it.
    pub fn find(
        &self,
        graph: &Graph,
        host: &dyn Host,
        tensors: &TensorFacts,
        budget: &mut Budget,
    ) -> Result<BatchNorms, PassError> {
        let mut planner = Planner {
            graph,
            host,
            tensors,
            linear: self.linear,
            modules: Modules::of_graph(graph, host),
            folded: FxHashMap::default(),
            writes: None,
        };
        let mut found = BatchNorms::default();
        for node in graph.nodes() {
            let Some(norm) = Norm::read(graph, &planner.modules, node) else {
                continue;
            };
            let name = match &norm {
                Ok(norm) => norm.name.clone(),
                Err((name, _)) => name.clone(),
            };
            let decision = match norm {
                Ok(norm) => planner.decide(node, &norm)?,
                Err((_, refusal)) => Err((None, refusal)),
            };
            let granted = decision.and_then(|(layer, plan)| {
                let name = layer.name.clone();
                let granted = budget.grant((layer, plan));
                granted.map_err(|refusal| (Some(name), refusal))
            });
            let (layer, plan, other, refusal) = match granted {
                Ok((layer, plan)) => {
                    if plan.side == Side::After {
                        planner.folded.insert(node, layer.node);
                    }
                    (Some(layer.node), Some(plan), Some(layer.name), None)
                }
                Err((layer, refusal)) => (None, None, layer, Some(refusal)),
            };
            found.0.push(Candidate {
                norm: name,
                layer_node: layer,
                plan,
                site: Site::new(graph, node, refusal).with_other(other),
            });
        }
        Ok(found)
    }
}

/// A batch norm, with the outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The qualified name of the batch norm, or the name of the node where it is no module.
    pub norm: String,
    /// The node of the layer.
    pub layer_node: Option<NodeId>,
    /// The change of the weights, where there is one.
    pub plan: Option<Plan>,
    /// Its place, with the name of the layer it is, or could have been, folded into.
    pub site: Site,
}

impl Candidate {
    /// Facts for the host, which computes the weights.
    fn facts(&self, plan: &Plan) -> Vec<(&'static str, Value)> {
        let (layer, norm) = (plan.layer.clone(), plan.norm.clone());
        let number = |number: usize| Value::int(i64::try_from(number).unwrap_or(i64::MAX));
        let key = self
            .layer_node
            .map_or(Value::None, |node| number(node.index()));
        vec![
            ("key", key),
            ("layer", path(self.site.other.clone())),
            ("norm", path(Some(self.norm.clone()))),
            ("layer_module", path(layer.module)),
            ("weight", path(Some(layer.weight))),
            ("bias", path(layer.bias)),
            ("norm_module", path(norm.module)),
            ("mean", path(Some(norm.mean))),
            ("variance", path(Some(norm.variance))),
            ("gamma", path(norm.gamma)),
            ("beta", path(norm.beta)),
            ("eps", Value::Float(plan.eps)),
            ("after", Value::Bool(plan.side == Side::After)),
            ("transposed", Value::Bool(plan.transposed)),
            ("groups", number(plan.groups)),
        ]
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
    /// The names of the new weight and bias, where the layer is a function.
    pub result: Option<[String; 2]>,
}

/// Every batch norm of the graph, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchNorms(pub Vec<Candidate>);

impl BatchNorms {
    /// Number of batch norms folded.
    #[must_use]
    pub fn folded(&self) -> usize {
        self.planned().count()
    }

    /// Those to fold, with their indices.
    pub fn planned(&self) -> impl Iterator<Item = (usize, &Candidate, &Plan)> {
        let candidates = self.0.iter().enumerate();
        candidates.filter_map(|(index, at)| match (&at.site.refusal, &at.plan) {
            (None, Some(plan)) => Some((index, at, plan)),
            _ => None,
        })
    }

    /// Records the new names of weight and bias of a planned fold.
    ///
    /// # Panics
    /// If there is no batch norm `index`.
    pub fn settle(&mut self, index: usize, names: [String; 2]) {
        if let Some(plan) = &mut self.0[index].plan {
            plan.result = Some(names);
        }
    }

    /// Applies the plan to the graph: the layer replaces the batch norm, which is removed. The
    /// weights must have been changed before.
    ///
    /// # Errors
    /// If the graph is not the one that the plan was made for.
    pub fn apply(&self, graph: &mut Graph) -> Result<Edits, PassError> {
        let mut applied = Edits::default();
        let mut orphans = Vec::new();
        for (_, at, plan) in self.planned() {
            let Some(layer) = at.layer_node else {
                continue;
            };
            orphans.extend(
                graph
                    .inputs(at.site.node)
                    .filter(|&n| is_attribute(graph, n)),
            );
            match plan.side {
                Side::After => {
                    graph.replace_all_uses(at.site.node, layer)?;
                }
                Side::Before => {
                    let input = graph.inputs(at.site.node).next().unwrap_or(at.site.node);
                    graph.replace_input(layer, at.site.node, input)?;
                }
            }
            graph.erase(at.site.node)?;
            applied.erased.push(at.site.node);
        }
        let mut results: FxHashMap<NodeId, &Plan> = FxHashMap::default();
        for (_, at, plan) in self.planned() {
            if let Some(layer) = at.layer_node
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
    [new_weight, new_bias]: &[String; 2],
    applied: &mut Edits,
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
    let made = attribute(graph, new_weight, weight, true).and_then(|new_weight| {
        let new_bias = attribute(graph, new_bias, bias.unwrap_or(weight), bias.is_some())?;
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

/// The refusal of a batch norm whose input is computed by something else.
fn not_after(input: &str, expected: &str) -> Refusal {
    format!("its input {input} is not the result of {expected}").into()
}

fn other_arguments(path: &str) -> Refusal {
    format!("{path} is called with other arguments than one tensor").into()
}

fn in_training(path: &str) -> Refusal {
    format!("{path} is in training mode").into()
}

/// It computes them from each batch.
fn batch_statistics(norm: &str) -> Refusal {
    let reason = "normalises with the statistics of each batch: it keeps no running ones";
    format!("{norm} {reason}").into()
}

#[cfg(test)]
mod tests;
