//! Batch norms and layers as a graph calls them: modules, or functions of attributes.

use corsac_ir::{Arg, Graph, Node, NodeId, Op};
use corsac_ops::{ModuleInfo, OperatorId, is_operator};

use super::{LayerTensors, Modules, NormTensors, batch_statistics, in_training, other_arguments};
use crate::report::Refusal;

/// The kind of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerKind {
    /// `x @ weight.T + bias`.
    Linear,
    /// A convolution over this many dimensions.
    Conv(u8),
    /// A transposed convolution over this many dimensions.
    ConvTranspose(u8),
}

/// A call of a layer.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub(super) node: NodeId,
    /// Its path, or the name of the node where it is no module.
    pub(super) name: String,
    pub(super) kind: LayerKind,
    pub(super) groups: usize,
    /// Whether it pads its input with zeros.
    pub(super) zero_padded: bool,
    pub(super) input: NodeId,
    pub(super) tensors: LayerTensors,
    /// The nodes of weight and bias, where it is a function.
    pub(super) parameters: Option<(NodeId, Option<NodeId>)>,
}

/// A call of a batch norm in evaluation.
#[derive(Clone, Debug)]
pub(super) struct Norm {
    /// Its path, or the name of the node where it is no module.
    pub(super) name: String,
    /// The dimensions behind batch and channels; `None` for a function, which takes any.
    pub(super) dims: Option<u8>,
    pub(super) input: NodeId,
    pub(super) eps: f64,
    pub(super) tensors: NormTensors,
    pub(super) is_module: bool,
}

/// The argument at `position`, or with the keyword `name`. An argument `None` counts as missing.
fn argument<'g>(node: Node<'g>, position: usize, name: &str) -> Option<&'g Arg> {
    let arg = node.args().get(position).or_else(|| node.kwarg(name));
    arg.filter(|arg| !matches!(arg, Arg::None))
}

/// The only argument of a call that has no other.
pub(super) fn only_argument(node: Node<'_>) -> Option<NodeId> {
    match (node.args(), node.kwargs()) {
        ([arg], []) => arg.as_node(),
        ([], [(_, arg)]) => node.kwarg("input").and(arg.as_node()),
        _ => None,
    }
}

/// The kind of the layer that an operator computes.
fn kind_of(operator: OperatorId) -> Option<LayerKind> {
    Some(match operator.name() {
        "linear" => LayerKind::Linear,
        "conv1d" => LayerKind::Conv(1),
        "conv2d" => LayerKind::Conv(2),
        "conv3d" => LayerKind::Conv(3),
        "conv_transpose1d" => LayerKind::ConvTranspose(1),
        "conv_transpose2d" => LayerKind::ConvTranspose(2),
        "conv_transpose3d" => LayerKind::ConvTranspose(3),
        _ => return None,
    })
}

/// The node and qualified name of the attribute that an argument is, if it is one.
fn attribute(graph: &Graph, arg: &Arg) -> Option<(NodeId, String)> {
    let node = graph.node(arg.as_node()?);
    (node.op() == Op::GetAttr).then(|| (node.id(), node.target_name().to_owned()))
}

impl Layer {
    /// The layer that `node` calls; `None` if it is none that a batch norm could be folded into.
    pub(super) fn read(graph: &Graph, modules: &Modules, node: NodeId) -> Option<Layer> {
        let view = graph.node(node);
        match view.op() {
            Op::CallModule => Self::of_module(view, modules.by_path.get(view.target_name())?),
            Op::CallFunction => Self::of_function(graph, view),
            Op::CallMethod | Op::GetAttr | Op::Placeholder | Op::Output => None,
        }
    }

    fn of_module(node: Node<'_>, info: &ModuleInfo) -> Option<Self> {
        let kind = kind_of(OperatorId::of_module(info.torch_class()?)?)?;
        let path = node.target_name();
        Some(Self {
            node: node.id(),
            name: path.to_owned(),
            kind,
            groups: info.groups.max(1),
            zero_padded: info.zero_padded,
            input: only_argument(node)?,
            tensors: LayerTensors::of_module(path),
            parameters: None,
        })
    }

    fn of_function(graph: &Graph, node: Node<'_>) -> Option<Self> {
        // The result is also what `out` gave.
        if node.kwarg("out").is_some() {
            return None;
        }
        // Of most calls this is known before their operator.
        let (weight_node, weight) = attribute(graph, argument(node, 1, "weight")?)?;
        let kind = kind_of(OperatorId::of(node.op(), node.target_name())?)?;
        let groups = match kind {
            LayerKind::Linear => None,
            LayerKind::Conv(_) | LayerKind::ConvTranspose(_) => argument(node, 6, "groups"),
        };
        let groups = match groups {
            None => 1,
            Some(Arg::Int(groups)) => usize::try_from(*groups).ok()?,
            Some(_) => return None,
        };
        let padding = match kind {
            LayerKind::Linear => None,
            LayerKind::Conv(_) | LayerKind::ConvTranspose(_) => argument(node, 4, "padding"),
        };
        let zero_padded = match padding {
            None | Some(Arg::Int(0)) => false,
            Some(Arg::Str(mode)) => graph.text(*mode) != "valid",
            Some(arg) => arg
                .as_items()
                .is_none_or(|items| items.iter().any(|i| *i != Arg::Int(0))),
        };
        let input = node.args().first().or_else(|| node.kwarg("input"))?;
        let bias = match argument(node, 2, "bias") {
            Some(arg) => Some(attribute(graph, arg)?),
            None => None,
        };
        let (bias_node, bias) = bias.unzip();
        Some(Self {
            node: node.id(),
            name: node.name().to_owned(),
            kind,
            groups,
            zero_padded,
            input: input.as_node()?,
            tensors: LayerTensors {
                module: None,
                weight,
                bias,
            },
            parameters: Some((weight_node, bias_node)),
        })
    }
}

impl Norm {
    /// The batch norm that `node` calls; `None` if it calls none.
    pub(super) fn read(
        graph: &Graph,
        modules: &Modules,
        node: NodeId,
    ) -> Option<Result<Self, (String, Refusal)>> {
        let view = graph.node(node);
        match view.op() {
            Op::CallModule => Self::of_module(view, modules.by_path.get(view.target_name())?),
            Op::CallFunction => Self::of_function(graph, view),
            Op::CallMethod | Op::GetAttr | Op::Placeholder | Op::Output => None,
        }
    }

    fn of_module(node: Node<'_>, info: &ModuleInfo) -> Option<Result<Self, (String, Refusal)>> {
        let dims = match info.torch_class()? {
            "BatchNorm1d" => 1,
            "BatchNorm2d" => 2,
            "BatchNorm3d" => 3,
            _ => return None,
        };
        let path = node.target_name().to_owned();
        let Some(input) = only_argument(node) else {
            let refusal = other_arguments(&path);
            return Some(Err((path, refusal)));
        };
        Some(Ok(Self {
            tensors: NormTensors::of_module(&path),
            name: path,
            dims: Some(dims),
            input,
            eps: info.eps,
            is_module: true,
        }))
    }

    fn of_function(graph: &Graph, node: Node<'_>) -> Option<Result<Self, (String, Refusal)>> {
        if node.args().len() + node.kwargs().len() < 3 {
            return None;
        }
        let operator = OperatorId::of(node.op(), node.target_name())?;
        if !is_operator!(operator, "batch_norm") {
            return None;
        }
        let by_name = node.target_name() == "torch.nn.functional.batch_norm";
        // Positions of mean and variance, and of gamma and beta.
        let (statistics, affine) = if by_name {
            ((1, 2), (3, 4))
        } else {
            ((3, 4), (1, 2))
        };
        let (training, eps) = (5, 7);
        let name = node.name().to_owned();
        let refuse = |refusal| Some(Err((name.clone(), refusal)));
        match argument(node, training, "training") {
            Some(Arg::Bool(false)) => {}
            None if by_name => {}
            _ => return refuse(in_training(&name)),
        }
        let eps = match argument(node, eps, "eps") {
            Some(Arg::Float(eps)) => *eps,
            Some(Arg::Int(eps)) => *eps as f64,
            None if by_name => 1e-5,
            _ => return refuse(other_arguments(&name)),
        };
        let arguments = [
            (statistics.0, "running_mean"),
            (statistics.1, "running_var"),
            (affine.0, "weight"),
            (affine.1, "bias"),
        ];
        let mut names = [const { None }; 4];
        for (slot, (position, keyword)) in names.iter_mut().zip(arguments) {
            let Some(arg) = argument(node, position, keyword) else {
                continue;
            };
            match attribute(graph, arg) {
                Some((_, attribute)) => *slot = Some(attribute),
                None => {
                    return refuse(format!("its {keyword} is no attribute").into());
                }
            }
        }
        let [mean, variance, gamma, beta] = names;
        let (Some(mean), Some(variance)) = (mean, variance) else {
            return refuse(batch_statistics(&name));
        };
        let input = node.args().first().or_else(|| node.kwarg("input"));
        let Some(input) = input.and_then(Arg::as_node) else {
            return refuse(other_arguments(&name));
        };
        Some(Ok(Self {
            name,
            dims: None,
            input,
            eps,
            tensors: NormTensors {
                module: None,
                mean,
                variance,
                gamma,
                beta,
            },
            is_module: false,
        }))
    }
}
