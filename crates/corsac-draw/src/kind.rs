//! Kinds of operators, for the colours of nodes.

use corsac_ir::Op;
use corsac_ops::{Family, OperatorId};
use serde::Serialize;

/// The kind of operator of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An input of the program.
    Input,
    /// Its result.
    Output,
    /// A parameter, buffer or other attribute.
    Parameter,
    /// Convolutions.
    Convolution,
    /// Linear layers and products of matrices.
    Matmul,
    /// Attention as one operator.
    Attention,
    /// Normalisation.
    Norm,
    /// Activation functions.
    Activation,
    /// Pooling and resizing.
    Pool,
    /// Arithmetic, element by element.
    Elementwise,
    /// Sums, means, extrema.
    Reduction,
    /// Lookups in a table.
    Embedding,
    /// Operators that only change the shape, or split and join tensors.
    Shape,
    /// Dropout.
    Dropout,
    /// Anything else.
    Other,
}

/// Beginnings of the names of modules and functions that are no operators of PyTorch, in lower case
/// without underscores, after the prefixes.
const BEGINNINGS: &[(Kind, &[&str])] = &[
    (Kind::Dropout, &["dropout", "droppath", "stochasticdepth"]),
    (
        Kind::Norm,
        &[
            "batchnorm",
            "layernorm",
            "groupnorm",
            "instancenorm",
            "rmsnorm",
        ],
    ),
    (Kind::Convolution, &["conv"]),
    (Kind::Matmul, &["linear", "matmul"]),
    (
        Kind::Activation,
        &[
            "relu",
            "rrelu",
            "elu",
            "gelu",
            "silu",
            "swish",
            "sigmoid",
            "tanh",
            "hardtanh",
            "hardsigmoid",
            "softmax",
            "logsoftmax",
            "threshold",
        ],
    ),
    (
        Kind::Pool,
        &[
            "maxpool",
            "avgpool",
            "adaptiveavgpool",
            "adaptivemaxpool",
            "fractionalmaxpool",
            "lppool",
            "maxunpool",
            "upsample",
            "gridsample",
        ],
    ),
    (Kind::Embedding, &["embedding"]),
    (Kind::Reduction, &["crossentropy", "nllloss"]),
    (
        Kind::Shape,
        &[
            "view",
            "slice",
            "split",
            "copy",
            "identity",
            "zeropad",
            "shape",
            "device",
            "mergemasks",
        ],
    ),
    (
        Kind::Elementwise,
        &[
            "add", "sub", "mul", "div", "truediv", "floordiv", "logical", "bitwise",
        ],
    ),
];

/// Beginnings of variants of modules and functions.
const PREFIXES: &[&str] = &[
    "native", "cudnn", "mkldnn", "lazy", "deform", "sync", "frozen", "new", "quick",
];

impl Kind {
    /// All kinds, in the order in which a legend lists them.
    pub const ALL: [Self; 15] = [
        Self::Input,
        Self::Output,
        Self::Parameter,
        Self::Convolution,
        Self::Matmul,
        Self::Attention,
        Self::Norm,
        Self::Activation,
        Self::Pool,
        Self::Elementwise,
        Self::Reduction,
        Self::Embedding,
        Self::Shape,
        Self::Dropout,
        Self::Other,
    ];

    /// The kind of a node with this opcode that calls `operator`: the class of a module, or the
    /// name of a function or method, qualified or not.
    ///
    /// ```
    /// use corsac_draw::Kind;
    /// use corsac_ir::Op;
    ///
    /// assert_eq!(Kind::of(Op::CallModule, "torch.nn.modules.conv.Conv2d"), Kind::Convolution);
    /// assert_eq!(Kind::of(Op::CallFunction, "torch.ops.aten.add.Tensor"), Kind::Elementwise);
    /// assert_eq!(Kind::of(Op::Placeholder, "x"), Kind::Input);
    /// ```
    #[must_use]
    pub fn of(op: Op, operator: &str) -> Self {
        match op {
            Op::Placeholder => Self::Input,
            Op::GetAttr => Self::Parameter,
            Op::Output => Self::Output,
            Op::CallFunction | Op::CallMethod | Op::CallModule => Self::of_call(op, operator),
        }
    }

    fn of_call(op: Op, target: &str) -> Self {
        let name = short_name(target);
        let known = OperatorId::of(op, target)
            // Primitives by the name of the operator.
            .filter(|operator| operator.family() != Family::Prims)
            .or_else(|| OperatorId::of_module(name))
            .or_else(|| OperatorId::named(name))
            .or_else(|| variant(name))
            // Modules of libraries (`Permute`, `Concat`).
            .or_else(|| OperatorId::named(&name.to_lowercase()));
        known.map_or_else(|| Self::of_other(name), Self::of_operator)
    }

    fn of_operator(operator: OperatorId) -> Self {
        match operator.family() {
            Family::Activation => Self::Activation,
            Family::Arithmetic | Family::Comparison | Family::Quantisation => Self::Elementwise,
            Family::Attention => Self::Attention,
            Family::Convolution => Self::Convolution,
            Family::LinearAlgebra => Self::Matmul,
            Family::Loss | Family::Reduction => Self::Reduction,
            Family::Normalisation => Self::Norm,
            Family::Pooling => Self::Pool,
            Family::Dropout => Self::Dropout,
            Family::Conversion | Family::Joining | Family::Scalar | Family::View => Self::Shape,
            Family::Embedding | Family::Indexing => Self::Embedding,
            Family::Creation
            | Family::Prims
            | Family::Random
            | Family::Control
            | Family::Recurrent
            | Family::Spectral => Self::Other,
        }
    }

    /// The kind of a module or function that is no operator of PyTorch, by its name.
    fn of_other(name: &str) -> Self {
        let plain = name.replace('_', "").to_lowercase();
        if plain.contains("attention") {
            return Self::Attention;
        }
        let mut rest = plain.as_str();
        while let Some(after) = PREFIXES.iter().find_map(|prefix| rest.strip_prefix(prefix)) {
            rest = after;
        }
        let begins = |names: &[&str]| names.iter().any(|name| rest.starts_with(name));
        let row = BEGINNINGS.iter().find(|(_, names)| begins(names));
        row.map_or(Self::Other, |(kind, _)| *kind)
    }

    /// Its name in a legend.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Input => "Input",
            Self::Output => "Output",
            Self::Parameter => "Parameter",
            Self::Convolution => "Convolution",
            Self::Matmul => "Matmul",
            Self::Attention => "Attention",
            Self::Norm => "Norm",
            Self::Activation => "Activation",
            Self::Pool => "Pooling",
            Self::Elementwise => "Elementwise",
            Self::Reduction => "Reduction",
            Self::Embedding => "Embedding",
            Self::Shape => "Shape only",
            Self::Dropout => "Dropout",
            Self::Other => "Other",
        }
    }

    /// The name in style sheets and in the page's data.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::Parameter => "parameter",
            Self::Convolution => "convolution",
            Self::Matmul => "matmul",
            Self::Attention => "attention",
            Self::Norm => "norm",
            Self::Activation => "activation",
            Self::Pool => "pool",
            Self::Elementwise => "elementwise",
            Self::Reduction => "reduction",
            Self::Embedding => "embedding",
            Self::Shape => "shape",
            Self::Dropout => "dropout",
            Self::Other => "other",
        }
    }
}

/// The operator of which a function is the form in place (`relu_`, `operator.iadd`), with reversed
/// operands (`__rpow__`), of a copy or of the backward pass.
fn variant(name: &str) -> Option<OperatorId> {
    let plain = name.trim_matches('_');
    let of_python = |own: &str| OperatorId::of(Op::CallFunction, &format!("operator.{own}"));
    let suffixes = ["_copy", "_forward", "_backward"];
    let mut endings = suffixes.iter().filter_map(|end| plain.strip_suffix(end));
    OperatorId::named(plain)
        .or_else(|| of_python(plain))
        .or_else(|| of_python(plain.strip_prefix(['i', 'r'])?))
        .or_else(|| endings.find_map(OperatorId::named))
}

/// The last word of a qualified name; of an operator overload, the operator.
pub(crate) fn short_name(qualified: &str) -> &str {
    if let Some(overload) = qualified.strip_prefix("torch.ops.") {
        return overload.split('.').nth(1).unwrap_or(overload);
    }
    match qualified.rsplit_once('.') {
        Some((_, name)) if !name.is_empty() => name,
        _ => qualified,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_known_by_name() {
        let cases = [
            ("torch.conv2d", Kind::Convolution),
            ("torch.nn.modules.conv.ConvTranspose2d", Kind::Convolution),
            ("torch.nn.functional.batch_norm", Kind::Norm),
            ("torch.nn.modules.batchnorm.BatchNorm2d", Kind::Norm),
            ("torch.nn.modules.activation.ReLU", Kind::Activation),
            (
                "torch.nn.modules.activation.MultiheadAttention",
                Kind::Attention,
            ),
            ("torch._C._nn.scaled_dot_product_attention", Kind::Attention),
            ("torch._C._nn.gelu", Kind::Activation),
            ("torch.ops.aten.relu_.default", Kind::Activation),
            ("torch.ops.aten.mm.default", Kind::Matmul),
            ("operator.iadd", Kind::Elementwise),
            ("_operator.getitem", Kind::Shape),
            ("torch.flatten", Kind::Shape),
            ("torch.ops.prims.add.default", Kind::Elementwise),
            ("torch.ops.prims.sum.default", Kind::Reduction),
            ("view", Kind::Shape),
            ("mean", Kind::Reduction),
            ("torch.nn.modules.pooling.MaxPool2d", Kind::Pool),
            (
                "torchvision.ops.stochastic_depth.StochasticDepth",
                Kind::Dropout,
            ),
            ("torchvision.ops.misc.Permute", Kind::Shape),
            ("torch.nn.AdaptiveLogSoftmaxWithLoss", Kind::Other),
            ("my.package.mystery", Kind::Other),
            ("", Kind::Other),
        ];
        for (operator, kind) in cases {
            assert_eq!(Kind::of(Op::CallFunction, operator), kind, "{operator}");
        }
    }

    #[test]
    fn the_class_is_what_serde_writes() {
        for kind in Kind::ALL {
            let written = serde_json::to_string(&kind).expect("a string");
            assert_eq!(written, format!("\"{}\"", kind.class()));
        }
    }
}
