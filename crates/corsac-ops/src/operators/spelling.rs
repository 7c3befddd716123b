//! One operator, many spellings: `torch.add`, `operator.add`, `Tensor.add` and
//! `torch.ops.aten.add.Tensor` are all `add`.

use corsac_ir::Op;

use super::OperatorId;

/// The name of the operator that a call of `target` computes, whatever its spelling: the one of
/// PyTorch's operator schemas, without overload. `None` for a target that spells no operator of
/// PyTorch, for in-place spellings of Python (`operator.iadd`) and for reflected ones that are no
/// operator (`__radd__`).
///
/// ```
/// use corsac_ir::Op;
/// use corsac_ops::operator_name;
///
/// for add in ["torch.add", "operator.add", "torch.ops.aten.add.Tensor"] {
///     assert_eq!(operator_name(Op::CallFunction, add), Some("add"));
/// }
/// assert_eq!(operator_name(Op::CallMethod, "subtract"), Some("sub"));
/// assert_eq!(operator_name(Op::CallFunction, "mine.add"), None);
/// ```
#[must_use]
pub fn operator_name(op: Op, target: &str) -> Option<&str> {
    spelled(op, target).map(canonical)
}

/// The name of that operator as it is spelled: one of several.
pub(crate) fn spelled(op: Op, target: &str) -> Option<&str> {
    match op {
        Op::CallMethod => method(target),
        Op::CallFunction => function(target),
        Op::Placeholder | Op::GetAttr | Op::CallModule | Op::Output => None,
    }
}

/// Libraries of operators whose rows are named with the library.
const LIBRARIES: &[&str] = &["corsac", "higher_order", "prims", "quantized_decomposed"];

/// The name of an operator of one of these libraries: `prims.sum` for `torch.ops.prims.sum.default`.
pub(crate) fn of_library(op: Op, target: &str) -> Option<&str> {
    let operator = target.strip_prefix("torch.ops.")?;
    let (library, packet) = operator.split_once('.')?;
    let len = library.len() + 1 + packet.find('.').unwrap_or(packet.len());
    (op == Op::CallFunction && LIBRARIES.contains(&library)).then(|| &operator[..len])
}

fn function(target: &str) -> Option<&str> {
    if let Some(operator) = target.strip_prefix("torch.ops.") {
        let packet = operator.strip_prefix("aten.")?;
        return Some(packet.split('.').next().unwrap_or(packet));
    }
    let (module, own) = target.rsplit_once('.').unwrap_or(("builtins", target));
    match module {
        "operator" | "_operator" => of_python(own),
        "builtins" => matches!(own, "abs" | "getattr").then_some(own),
        "torch.Tensor" | "torch._tensor.Tensor" | "torch._C.TensorBase" => method(own),
        "torch"
        | "torch.functional"
        | "torch.nn.functional"
        | "torch._VF"
        | "torch._C._VariableFunctions"
        | "torch._C._nn"
        | "torch._C._linalg" => Some(own),
        "torch.special" | "torch._C._special" => of_special(own),
        "torch.linalg" => of_linalg(own),
        "torchvision.ops.stochastic_depth" => Some(own),
        _ => None,
    }
}

/// The name of the operator of which a call of `target` is the form in place: `add` for `add_` and
/// `operator.iadd`.
pub(crate) fn in_place(op: Op, target: &str) -> Option<&str> {
    let own = match op {
        Op::CallMethod => target
            .strip_prefix("__i")
            .and_then(|own| own.strip_suffix("__")),
        _ => target.strip_prefix("operator.i"),
    };
    own.and_then(of_python)
        .or_else(|| spelled(op, target)?.strip_suffix('_'))
}

fn method(name: &str) -> Option<&str> {
    match name.strip_prefix("__").and_then(|n| n.strip_suffix("__")) {
        Some(own) => of_python(own),
        None => Some(name),
    }
}

/// The operator behind a function of Python's `operator`, or the method of that name.
pub(crate) fn of_python(own: &str) -> Option<&str> {
    Some(match own {
        "add" | "sub" | "mul" | "pow" | "neg" | "abs" | "matmul" | "lt" | "le" | "eq" | "ne"
        | "ge" | "gt" | "getitem" | "pos" | "rsub" => own,
        "truediv" | "div" => "div",
        "floordiv" => "floor_divide",
        "mod" => "remainder",
        "invert" | "inv" => "bitwise_not",
        "and_" | "and" => "bitwise_and",
        "or_" | "or" => "bitwise_or",
        "xor" => "bitwise_xor",
        _ => return None,
    })
}

fn of_special(own: &str) -> Option<&str> {
    Some(match own.strip_prefix("special_").unwrap_or(own) {
        "expit" => "sigmoid",
        own @ ("exp2" | "expm1" | "erf" | "erfc" | "log1p" | "logsumexp" | "softmax"
        | "log_softmax" | "round") => own,
        _ => return None,
    })
}

fn of_linalg(own: &str) -> Option<&str> {
    Some(match own {
        "matmul" => own,
        "norm" => "linalg_norm",
        "vector_norm" => "linalg_vector_norm",
        _ => return None,
    })
}

/// The first of several names of one operator.
pub(crate) fn canonical(own: &str) -> &str {
    match OperatorId::named(own) {
        Some(operator) => operator.name(),
        None => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_operator_share_its_name() {
        let cases = [
            (Op::CallFunction, "operator.truediv", Some("div")),
            (Op::CallFunction, "torch.true_divide", Some("div")),
            (Op::CallMethod, "__truediv__", Some("div")),
            (Op::CallMethod, "divide", Some("div")),
            (Op::CallFunction, "torch.ops.aten.div.Tensor", Some("div")),
            (Op::CallFunction, "torch.nn.functional.relu", Some("relu")),
            (Op::CallFunction, "torch._C._nn.gelu", Some("gelu")),
            (Op::CallFunction, "torch.special.expit", Some("sigmoid")),
            (Op::CallFunction, "torch.linalg.norm", Some("linalg_norm")),
            (Op::CallFunction, "operator.iadd", None),
            (Op::CallMethod, "__radd__", None),
            (Op::CallFunction, "torch.ops.mine.add", None),
            (Op::CallFunction, "math.sqrt", None),
            (Op::CallModule, "add", None),
        ];
        for (op, target, expected) in cases {
            assert_eq!(operator_name(op, target), expected, "{target}");
        }
    }
}
