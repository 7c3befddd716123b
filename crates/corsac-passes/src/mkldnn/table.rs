//! Targets supported in a oneDNN subgraph, and those that a layer can be fused with.

use corsac_ir::{Arg, Graph, Node, Op};
use corsac_ops::{ModuleInfo, OperatorId};

/// Classes of modules that run on any memory layout and keep it, by qualified Python name.
///
/// The first seven are torch.fx's; it leaves the others to plain kernels because its opaque
/// tensors have no kernels for them. On channels-last tensors all of them work.
pub const MODULES: &[&str] = &[
    "torch.nn.modules.conv.Conv2d",
    "torch.nn.modules.linear.Linear",
    "torch.nn.modules.batchnorm.BatchNorm2d",
    "torch.nn.modules.activation.ReLU",
    "torch.nn.modules.pooling.MaxPool2d",
    "torch.nn.modules.pooling.AvgPool2d",
    "torch.nn.modules.pooling.AdaptiveAvgPool2d",
    "torch.nn.modules.activation.ReLU6",
    "torch.nn.modules.activation.Hardtanh",
    "torch.nn.modules.activation.Hardswish",
    "torch.nn.modules.activation.Hardsigmoid",
    "torch.nn.modules.activation.LeakyReLU",
    "torch.nn.modules.activation.Sigmoid",
    "torch.nn.modules.activation.Tanh",
    "torch.nn.modules.activation.SiLU",
    "torch.nn.modules.activation.GELU",
    "torch.nn.modules.activation.ELU",
    "torch.nn.modules.activation.Mish",
    "torch.nn.modules.linear.Identity",
];

/// Functions of the same kind. The first six are torch.fx's.
pub const FUNCTIONS: &[&str] = &[
    "torch.relu",
    "torch.transpose",
    "torch.sigmoid",
    "torch.nn.functional.relu",
    "torch._C._nn.avg_pool2d",
    "torch.nn.functional.adaptive_avg_pool2d",
    "torch.nn.functional.max_pool2d",
    "torch.nn.functional.relu6",
    "torch.nn.functional.hardtanh",
    "torch.nn.functional.hardswish",
    "torch.nn.functional.hardsigmoid",
    "torch.nn.functional.leaky_relu",
    "torch.nn.functional.silu",
    "torch._C._nn.gelu",
    "torch.tanh",
];

/// Functions that may have nothing to do with tensors: they belong to a subgraph if one of their
/// operands does. The first two are torch.fx's.
pub const FUNCTIONS_WITH_OPERAND: &[&str] = &[
    "operator.add",
    "operator.mul",
    "operator.iadd",
    "operator.imul",
    "operator.sub",
    "torch.add",
    "torch.mul",
    "torch.cat",
];

/// An activation that is applied to a result before it is written to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `min(max(x, 0), 6)`
    Relu6,
    /// Clamp to two bounds, which the module has.
    Hardtanh,
    /// `x * relu6(x + 3) / 6`
    Hardswish,
    /// `relu6(x + 3) / 6`
    Hardsigmoid,
    /// Leaky relu with a slope that the module has.
    LeakyRelu,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `x * sigmoid(x)`
    Silu,
    /// Gaussian error linear unit; the module has its approximation.
    Gelu,
}

impl Activation {
    const ALL: [Self; 10] = [
        Self::Relu,
        Self::Relu6,
        Self::Hardtanh,
        Self::Hardswish,
        Self::Hardsigmoid,
        Self::LeakyRelu,
        Self::Sigmoid,
        Self::Tanh,
        Self::Silu,
        Self::Gelu,
    ];

    /// Its name, as in `torch.nn.functional`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::Relu6 => "relu6",
            Self::Hardtanh => "hardtanh",
            Self::Hardswish => "hardswish",
            Self::Hardsigmoid => "hardsigmoid",
            Self::LeakyRelu => "leaky_relu",
            Self::Sigmoid => "sigmoid",
            Self::Tanh => "tanh",
            Self::Silu => "silu",
            Self::Gelu => "gelu",
        }
    }

    /// The activation that a module of this class is.
    #[must_use]
    pub fn of_module(info: &ModuleInfo) -> Option<Self> {
        Self::of_operator(OperatorId::of_module(info.torch_class()?)?)
    }

    fn of_operator(operator: OperatorId) -> Option<Self> {
        let name = operator.name();
        Self::ALL.into_iter().find(|own| own.as_str() == name)
    }

    /// The activation that a call of a function is, if its only arguments are its operand and
    /// `inplace`: others change its result.
    #[must_use]
    pub fn of_function(node: Node<'_>) -> Option<Self> {
        let graph = node.graph();
        if node.op() != Op::CallFunction {
            return None;
        }
        let operator = OperatorId::of(node.op(), node.target_name())?;
        let plain = match node.args() {
            [Arg::Node(_)] => node
                .kwargs()
                .iter()
                .all(|(k, _)| graph.text(*k) == "inplace"),
            [Arg::Node(_), Arg::Bool(_)] => {
                node.kwargs().is_empty() && operator.row().inplace_parameter == Some(1)
            }
            _ => false,
        };
        let found = Self::of_operator(operator).filter(|_| plain)?;
        // A module has the constants of these.
        (!matches!(found, Self::Hardtanh | Self::LeakyRelu)).then_some(found)
    }
}

/// An operation that combines a result with another value before it is written to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Binary {
    /// The sum of both.
    Add,
    /// The product of both.
    Mul,
}

impl Binary {
    /// Its name, as oneDNN's operators in PyTorch call it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Mul => "mul",
        }
    }

    /// The combination of two values that a call of a function is.
    #[must_use]
    pub fn of_function(graph: &Graph, node: Node<'_>) -> Option<Self> {
        let two = matches!(node.args(), [Arg::Node(a), Arg::Node(b)] if a != b);
        if !two || !node.kwargs().is_empty() || node.op() != Op::CallFunction {
            return None;
        }
        debug_assert!(graph.contains(node.id()), "a node of this graph");
        let (op, target) = (node.op(), node.target_name());
        let operator =
            OperatorId::of(op, target).or_else(|| OperatorId::of_in_place(op, target))?;
        match operator.name() {
            "add" => Some(Self::Add),
            "mul" => Some(Self::Mul),
            _ => None,
        }
    }
}
