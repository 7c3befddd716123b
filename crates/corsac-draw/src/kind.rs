//! Kinds of operators, for the colours of nodes.

use corsac_ir::Op;
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

/// Names of operators, in lower case without underscores; a trailing `*` stands for any ending.
/// The first row that has a name decides.
const NAMES: &[(Kind, &[&str])] = &[
    (
        Kind::Dropout,
        &[
            "dropout*",
            "alphadropout",
            "featuredropout*",
            "featurealphadropout*",
            "stochasticdepth",
            "droppath",
        ],
    ),
    (
        Kind::Norm,
        &[
            "batchnorm*",
            "layernorm*",
            "groupnorm*",
            "instancenorm*",
            "rmsnorm*",
            "syncbatchnorm*",
            "localresponsenorm",
            "nativebatchnorm*",
            "nativelayernorm*",
            "nativegroupnorm*",
            "cudnnbatchnorm",
            "normalize",
            "frozenbatchnorm*",
            "lazybatchnorm*",
        ],
    ),
    (
        Kind::Convolution,
        &["conv*", "mkldnnconv*", "lazyconv*", "deformconv*"],
    ),
    (
        Kind::Matmul,
        &[
            "linear*",
            "lazylinear",
            "bilinear",
            "nondynamicallyquantizablelinear",
            "matmul",
            "mm",
            "bmm",
            "addmm",
            "baddbmm",
            "addbmm",
            "addmv",
            "mv",
            "dot",
            "vdot",
            "inner",
            "outer",
            "einsum",
            "tensordot",
            "chainmatmul",
            "multidot",
            "imatmul",
        ],
    ),
    (
        Kind::Activation,
        &[
            "relu*",
            "leakyrelu*",
            "prelu",
            "rrelu*",
            "elu*",
            "celu*",
            "selu*",
            "gelu*",
            "silu*",
            "swish",
            "mish*",
            "sigmoid*",
            "tanh*",
            "hardtanh*",
            "hardsigmoid*",
            "hardswish*",
            "hardshrink",
            "softmax*",
            "logsoftmax*",
            "softmin",
            "softplus",
            "softsign",
            "softshrink",
            "tanhshrink",
            "logsigmoid",
            "glu",
            "threshold*",
            "newgeluactivation",
            "quickgelu*",
        ],
    ),
    (
        Kind::Pool,
        &[
            "maxpool*",
            "avgpool*",
            "adaptiveavgpool*",
            "adaptivemaxpool*",
            "fractionalmaxpool*",
            "lppool*",
            "maxunpool*",
            "interpolate",
            "upsample*",
            "gridsample*",
            "pixelshuffle",
            "pixelunshuffle",
        ],
    ),
    (
        Kind::Embedding,
        &[
            "embedding*",
            "gather",
            "indexselect",
            "onehot",
            "takealongdim",
        ],
    ),
    (
        Kind::Reduction,
        &[
            "sum",
            "mean",
            "max",
            "min",
            "amax",
            "amin",
            "argmax",
            "argmin",
            "prod",
            "std",
            "var",
            "varmean",
            "stdmean",
            "norm",
            "logsumexp",
            "cumsum",
            "cumprod",
            "all",
            "any",
            "median",
            "topk",
            "sort",
            "argsort",
            "aminmax",
            "crossentropy*",
            "mseloss",
            "nllloss*",
        ],
    ),
    (
        Kind::Shape,
        &[
            "view*",
            "reshape*",
            "flatten",
            "unflatten",
            "permute*",
            "transpose*",
            "swapaxes",
            "t",
            "squeeze*",
            "unsqueeze*",
            "expand*",
            "contiguous",
            "clone",
            "detach*",
            "size",
            "dim",
            "shape",
            "getitem",
            "getattr",
            "cat",
            "concat*",
            "stack",
            "hstack",
            "vstack",
            "split*",
            "chunk",
            "unbind",
            "narrow",
            "select",
            "slice*",
            "repeat*",
            "tile",
            "roll",
            "flip",
            "movedim",
            "moveaxis",
            "to",
            "type*",
            "float",
            "half",
            "bfloat16",
            "double",
            "int",
            "long",
            "bool",
            "numel",
            "pad",
            "identity",
            "unfold",
            "fold",
            "copy*",
            "tocopy",
            "alias",
            "unsafeview",
            "asstrided",
            "zeropad*",
            "tuple",
            "list",
            "setitem",
            "diagonal",
            "device",
            "len",
            "mergemasks",
        ],
    ),
    (
        Kind::Elementwise,
        &[
            "add*",
            "iadd",
            "radd",
            "sub*",
            "isub",
            "rsub",
            "mul*",
            "imul",
            "rmul",
            "div*",
            "truediv",
            "itruediv",
            "floordiv",
            "ifloordiv",
            "truedivide",
            "pow",
            "ipow",
            "neg",
            "negative",
            "abs",
            "exp*",
            "log*",
            "sqrt",
            "rsqrt",
            "square",
            "sin",
            "cos",
            "erf",
            "clamp*",
            "clip*",
            "minimum",
            "maximum",
            "where",
            "maskedfill*",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "logical*",
            "bitwise*",
            "and",
            "or",
            "xor",
            "not",
            "invert",
            "floor",
            "ceil",
            "round",
            "sign",
            "reciprocal",
            "lerp",
            "mod",
            "remainder",
            "fmod",
            "scale",
            "addcmul",
            "addcdiv",
            "tril",
            "triu",
        ],
    ),
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
            Op::CallFunction | Op::CallMethod | Op::CallModule => Self::of_operator(operator),
        }
    }

    fn of_operator(operator: &str) -> Self {
        let plain: String = short_name(operator)
            .chars()
            .filter(|&c| c != '_')
            .flat_map(char::to_lowercase)
            .collect();
        let has = |names: &[&str]| {
            names.iter().any(|name| match name.strip_suffix('*') {
                Some(start) => plain.starts_with(start),
                None => plain == *name,
            })
        };
        if plain.contains("attention") {
            return Self::Attention;
        }
        let row = NAMES.iter().find(|(_, names)| has(names));
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
            ("view", Kind::Shape),
            ("mean", Kind::Reduction),
            ("torch.nn.modules.pooling.MaxPool2d", Kind::Pool),
            (
                "torchvision.ops.stochastic_depth.StochasticDepth",
                Kind::Dropout,
            ),
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
