//! Mixed precision: the operators that `torch.autocast("cpu")` casts for, and the types it casts
//! to.
//!
//! Source: docs.pytorch.org/docs/stable/amp.html, "CPU Op-Specific Behavior".

use corsac_ir::Op;

use crate::operators::{OperatorId, Precision};

/// Whether modules of this class of `torch.nn` call one operator of the lower precision on their
/// weights.
#[must_use]
pub fn is_layer(class: &str) -> bool {
    OperatorId::of_module(class).is_some_and(|operator| {
        let row = operator.row();
        row.module_call.is_some() && row.precision == Some(Precision::Lower)
    })
}

/// Whether modules of this class of `torch.nn` call no operator that autocast casts for.
#[must_use]
pub fn is_neutral(class: &str) -> bool {
    OperatorId::of_module(class).is_some_and(|operator| {
        let row = operator.row();
        row.precision.is_none() && !row.is_composed
    })
}

/// The precision of a call of `target` under autocast; `None` where it computes in the types of its
/// arguments.
///
/// ```
/// use corsac_ir::Op;
/// use corsac_ops::Precision;
/// use corsac_ops::autocast::precision;
///
/// let precision_of = |target| precision(Op::CallFunction, target);
/// assert_eq!(precision_of("operator.matmul"), Some(Precision::Lower));
/// assert_eq!(precision_of("torch.nn.functional.mse_loss"), Some(Precision::Single));
/// assert_eq!(precision_of("torch.concat"), Some(Precision::Widest));
/// assert_eq!(precision_of("torch.relu"), None);
/// ```
#[must_use]
pub fn precision(op: Op, target: &str) -> Option<Precision> {
    operator(op, target)?.row().precision
}

/// Whether a call of `target` calls operators inside that autocast casts for each in its own way.
#[must_use]
pub fn is_composed(op: Op, target: &str) -> bool {
    operator(op, target).is_some_and(|operator| operator.row().is_composed)
}

/// The operator, also by its name in `torch.linalg`.
fn operator(op: Op, target: &str) -> Option<OperatorId> {
    OperatorId::of(op, target).or_else(|| {
        let linalg = target.strip_prefix("torch.linalg.");
        OperatorId::named(linalg.filter(|_| op == Op::CallFunction)?)
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
                Some(Precision::LowerProducts),
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
        for composed in ["multi_head_attention_forward", "local_response_norm"] {
            let target = format!("torch.nn.functional.{composed}");
            assert!(is_composed(Op::CallFunction, &target), "{composed}");
        }
    }

    #[test]
    fn classes_of_modules() {
        assert!(is_layer("Linear") && is_layer("ConvTranspose2d"));
        assert!(!is_layer("LSTM") && !is_layer("LayerNorm"));
        assert!(is_neutral("LayerNorm") && is_neutral("RMSNorm"));
        // It calls a pooling in float32.
        assert!(!is_neutral("LocalResponseNorm") && !is_neutral("Linear"));
    }
}
