//! Mixed precision: the operators that `torch.autocast("cpu")` casts for, and the types it casts
//! to.
//!
//! Source: docs.pytorch.org/docs/stable/amp.html, "CPU Op-Specific Behavior".

use corsac_ir::Op;

use crate::spelling::operator_name;

/// The precision of an operator under autocast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// The requested lower precision: bfloat16 or float16.
    Lower,
    /// float32.
    Single,
    /// The widest type among its tensors.
    Widest,
}

/// Operators that run in the lower precision, by the names of [`operator_name`].
pub const LOWER_PRECISION: &[&str] = &[
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "conv_tbc",
    "linear",
    "matmul",
    "mm",
    "bmm",
    "baddbmm",
    "addmm",
    "addbmm",
    "prelu",
    "scaled_dot_product_attention",
];

/// Functions that are composed of operators that run in the lower precision: all their arithmetic
/// is in matrix products.
pub const PRODUCTS: &[&str] = &["einsum", "tensordot", "chain_matmul", "multi_dot", "inner"];

/// Operators that run in float32; `cross_entropy` and `grid_sample` are functions that call one.
pub const SINGLE_PRECISION: &[&str] = &[
    "adaptive_avg_pool3d",
    "avg_pool3d",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cdist",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "cosine_embedding_loss",
    "cross_entropy",
    "cross_entropy_loss",
    "ctc_loss",
    "grid_sample",
    "grid_sampler",
    "hinge_embedding_loss",
    "huber_loss",
    "inverse",
    "kl_div",
    "l1_loss",
    "lu_solve",
    "margin_ranking_loss",
    "max_unpool2d",
    "max_unpool3d",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "nanquantile",
    "nll_loss",
    "orgqr",
    "ormqr",
    "pinverse",
    "poisson_nll_loss",
    "polar",
    "prod",
    "quantile",
    "smooth_l1_loss",
    "soft_margin_loss",
    "stft",
    "trace",
    "triplet_margin_loss",
    "view_as_complex",
];

/// Operators that run in the widest type among their tensors.
pub const WIDEST: &[&str] = &["cat", "index_copy", "stack"];

/// Classes of `torch.nn` that call one operator of the lower precision on their weights.
pub const LAYERS: &[&str] = &[
    "Linear",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
];

/// Classes of `torch.nn` that call no operator that autocast casts for.
pub const NEUTRAL: &[&str] = &[
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "ELU",
    "Embedding",
    "Flatten",
    "GELU",
    "GroupNorm",
    "Hardsigmoid",
    "Hardswish",
    "Identity",
    "LayerNorm",
    "LeakyReLU",
    "LogSoftmax",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
];

/// Functions that call operators of several kinds inside.
const COMPOSED: &[&str] = &[
    "bilinear",
    "gru",
    "gru_cell",
    "lstm",
    "lstm_cell",
    "multi_head_attention_forward",
    "multilabel_soft_margin_loss",
    "rnn_relu",
    "rnn_relu_cell",
    "rnn_tanh",
    "rnn_tanh_cell",
];

/// The precision of a call of `target` under autocast; `None` where it computes in the types of its
/// arguments.
///
/// ```
/// use corsac_ir::Op;
/// use corsac_ops::autocast::{Precision, precision};
///
/// let precision_of = |target| precision(Op::CallFunction, target);
/// assert_eq!(precision_of("operator.matmul"), Some(Precision::Lower));
/// assert_eq!(precision_of("torch.nn.functional.mse_loss"), Some(Precision::Single));
/// assert_eq!(precision_of("torch.concat"), Some(Precision::Widest));
/// assert_eq!(precision_of("torch.relu"), None);
/// ```
#[must_use]
pub fn precision(op: Op, target: &str) -> Option<Precision> {
    let name = name(op, target)?;
    if LOWER_PRECISION.contains(&name) || PRODUCTS.contains(&name) {
        Some(Precision::Lower)
    } else if SINGLE_PRECISION.contains(&name) {
        Some(Precision::Single)
    } else {
        WIDEST.contains(&name).then_some(Precision::Widest)
    }
}

/// Whether a call of `target` calls operators inside that autocast casts for each in its own way.
#[must_use]
pub fn is_composed(op: Op, target: &str) -> bool {
    name(op, target).is_some_and(|name| COMPOSED.contains(&name))
}

fn name(op: Op, target: &str) -> Option<&str> {
    operator_name(op, target).or_else(|| {
        let linalg = target.strip_prefix("torch.linalg.");
        linalg.filter(|_| op == Op::CallFunction)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_counts_and_other_libraries_do_not() {
        let cases = [
            (
                Op::CallFunction,
                "torch._C._nn.linear",
                Some(Precision::Lower),
            ),
            (
                Op::CallFunction,
                "torch.ops.aten.addmm.default",
                Some(Precision::Lower),
            ),
            (
                Op::CallFunction,
                "torch.functional.einsum",
                Some(Precision::Lower),
            ),
            (
                Op::CallFunction,
                "torch.linalg.multi_dot",
                Some(Precision::Lower),
            ),
            (Op::CallMethod, "__matmul__", Some(Precision::Lower)),
            (Op::CallMethod, "prod", Some(Precision::Single)),
            (Op::CallFunction, "torch.stack", Some(Precision::Widest)),
            (Op::CallFunction, "mine.linear", None),
            (Op::CallFunction, "torch.ops.mine.linear", None),
            (Op::CallModule, "linear", None),
        ];
        for (op, target, expected) in cases {
            assert_eq!(precision(op, target), expected, "{target}");
        }
        assert!(is_composed(
            Op::CallFunction,
            "torch.nn.functional.multi_head_attention_forward"
        ));
    }

    #[test]
    fn no_name_is_in_two_lists() {
        let lists = [
            LOWER_PRECISION,
            PRODUCTS,
            SINGLE_PRECISION,
            WIDEST,
            COMPOSED,
        ];
        let mut names: Vec<&str> = lists.concat();
        names.extend(LAYERS);
        names.extend(NEUTRAL);
        let len = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), len);
    }
}
