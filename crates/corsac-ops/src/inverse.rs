//! Inverses of operators: functions that compute an operand from the result.

/// The functions that invert the operator `name` ([`crate::operator_name`]) of one tensor, in the
/// order in which they are applied to its result. Exact up to rounding, where the operator is
/// invertible.
///
/// ```
/// use corsac_ops::inverse_of_unary;
///
/// assert_eq!(inverse_of_unary("exp"), Some(["torch.log"].as_slice()));
/// assert_eq!(inverse_of_unary("relu"), None);
/// ```
#[must_use]
pub fn inverse_of_unary(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "neg" => &["torch.neg"],
        "exp" => &["torch.log"],
        "log" => &["torch.exp"],
        "exp2" => &["torch.log2"],
        "log2" => &["torch.exp2"],
        "expm1" => &["torch.log1p"],
        "log1p" => &["torch.expm1"],
        "tanh" => &["torch.atanh"],
        "atanh" | "arctanh" => &["torch.tanh"],
        "sinh" => &["torch.asinh"],
        "asinh" | "arcsinh" => &["torch.sinh"],
        "sigmoid" => &["torch.logit"],
        "reciprocal" => &["torch.reciprocal"],
        "sqrt" => &["torch.square"],
        "rsqrt" => &["torch.square", "torch.reciprocal"],
        "t" => &["torch.t"],
        _ => return None,
    })
}

/// The inverse of a binary operator: computes one operand from its result and the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryInverse {
    /// The function of the result and the other operand.
    OfResult(&'static str),
    /// The function of the other operand and the result.
    OfOther(&'static str),
}

/// The inverse that computes the operand at `position`, 0 or 1, of the operator `name` from its
/// result and the other operand.
#[must_use]
pub fn inverse_of_binary(name: &str, position: usize) -> Option<BinaryInverse> {
    use BinaryInverse::{OfOther, OfResult};
    Some(match (name, position) {
        ("add", 0 | 1) => OfResult("operator.sub"),
        ("mul", 0 | 1) => OfResult("operator.truediv"),
        ("sub", 0) => OfResult("operator.add"),
        ("div", 0) => OfResult("operator.mul"),
        // c - x and c / x are their own inverses.
        ("sub", 1) => OfOther("operator.sub"),
        ("div", 1) => OfOther("operator.truediv"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_and_quotients_from_a_constant_undo_themselves() {
        let other = BinaryInverse::OfOther("operator.sub");
        assert_eq!(inverse_of_binary("sub", 1), Some(other));
        let result = BinaryInverse::OfResult("operator.add");
        assert_eq!(inverse_of_binary("sub", 0), Some(result));
        assert_eq!(inverse_of_binary("add", 2), None);
        assert_eq!(inverse_of_binary("pow", 0), None);
    }
}
