//! Arithmetic and functions of numbers, element by element.

use super::BinaryInverse::{OfOther, OfResult};
use super::InPlaceForm::{Promoted, SameType};
use super::Recompute::Copied;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("abs absolute").signature("input").in_place(Promoted).recompute(Copied),
    operator("acos arccos").in_place(Promoted).converts_operands(),
    operator("acosh arccosh").in_place(Promoted).converts_operands(),
    operator("add").signature("input other alpha=1").in_place(Promoted).commutes().result_is_free()
        .operand_inverses(OfResult("operator.sub"), OfResult("operator.sub")).recompute(Copied).converts_operands().rounds_numbers(),
    operator("addcdiv").in_place(Promoted).converts_operands(),
    operator("addcmul").in_place(Promoted).recompute(Copied).converts_operands(),
    operator("arctan2"),
    operator("asin arcsin").in_place(Promoted).converts_operands(),
    operator("asinh arcsinh").in_place(Promoted).inverse(&["torch.sinh"]).converts_operands(),
    operator("atan arctan").in_place(Promoted).converts_operands(),
    operator("atan2").in_place(Promoted),
    operator("atanh arctanh").in_place(Promoted).inverse(&["torch.tanh"]).converts_operands(),
    operator("bessel_j0"),
    operator("bessel_j1"),
    operator("ceil").in_place(SameType).recompute(Copied).jumps(),
    operator("clamp clip").signature("input min=None max=None").in_place(Promoted).recompute(Copied),
    operator("clamp_max").signature("input max").in_place(Promoted).recompute(Copied),
    operator("clamp_min").signature("input min").in_place(Promoted).recompute(Copied),
    operator("conj_physical"),
    operator("copysign").in_place(Promoted),
    operator("cos").in_place(Promoted).relative_cost(2.0).converts_operands(),
    operator("cosh").in_place(Promoted).converts_operands(),
    operator("deg2rad"),
    operator("digamma").in_place(Promoted),
    operator("div divide true_divide").signature("input other rounding_mode=None").in_place(Promoted)
        .operand_inverses(OfResult("operator.mul"), OfOther("operator.truediv")).recompute(Copied)
        .relative_cost(2.0).converts_operands(),
    operator("entr"),
    operator("erf").signature("input").in_place(Promoted).relative_cost(2.0).converts_operands(),
    operator("erfc").in_place(Promoted),
    operator("erfcx"),
    operator("erfinv").in_place(Promoted),
    operator("exp").signature("input").in_place(Promoted).inverse(&["torch.log"]).relative_cost(2.0)
        .converts_operands(),
    operator("exp2").in_place(Promoted).inverse(&["torch.log2"]).converts_operands(),
    operator("expit"),
    operator("expm1").in_place(Promoted).inverse(&["torch.log1p"]).converts_operands(),
    operator("fabs"),
    operator("float_power"),
    operator("floor").in_place(SameType).recompute(Copied).jumps(),
    operator("floor_divide").in_place(Promoted).jumps(),
    operator("fmax"),
    operator("fmin"),
    operator("fmod").in_place(Promoted).jumps().rounds_numbers(),
    operator("frac").in_place(SameType).jumps(),
    operator("gammaln"),
    operator("gcd"),
    operator("hypot").in_place(Promoted),
    operator("i0").in_place(Promoted),
    operator("i0e"),
    operator("i1"),
    operator("i1e"),
    operator("lcm"),
    operator("lerp").in_place(Promoted),
    operator("lgamma").in_place(Promoted),
    operator("log").signature("input").in_place(Promoted).inverse(&["torch.exp"]).relative_cost(2.0)
        .converts_operands(),
    operator("log10").in_place(Promoted).converts_operands(),
    operator("log1p").in_place(Promoted).inverse(&["torch.expm1"]).converts_operands(),
    operator("log2").in_place(Promoted).inverse(&["torch.exp2"]).converts_operands(),
    operator("log_ndtr"),
    operator("logaddexp"),
    operator("logaddexp2"),
    operator("logit").in_place(Promoted),
    operator("lshift __lshift__"),
    operator("mul multiply").signature("input other").in_place(Promoted).commutes().result_is_free()
        .operand_inverses(OfResult("operator.truediv"), OfResult("operator.truediv")).recompute(Copied)
        .converts_operands(),
    operator("nan_to_num").in_place(Promoted).jumps(),
    operator("ndtr"),
    operator("ndtri"),
    operator("neg negative").signature("input").in_place(SameType).result_is_free().inverse(&["torch.neg"])
        .recompute(Copied),
    operator("nextafter"),
    operator("pow").signature("input exponent").in_place(Promoted).relative_cost(2.0).converts_operands().rounds_numbers(),
    operator("psi"),
    operator("rad2deg"),
    operator("radd"),
    operator("reciprocal").signature("input").in_place(Promoted).inverse(&["torch.reciprocal"]).relative_cost(2.0)
        .converts_operands(),
    operator("remainder").in_place(Promoted).jumps().rounds_numbers(),
    operator("rmul"),
    operator("round").signature("input decimals=0").in_place(SameType).jumps(),
    operator("rshift __rshift__"),
    operator("rsqrt").signature("input").in_place(Promoted).inverse(&["torch.square", "torch.reciprocal"])
        .relative_cost(2.0).converts_operands(),
    operator("rsub").recompute(Copied).converts_operands().rounds_numbers(),
    operator("rtruediv"),
    operator("sgn").in_place(SameType).jumps(),
    operator("sign").in_place(SameType).recompute(Copied).jumps(),
    operator("sin").in_place(Promoted).relative_cost(2.0).converts_operands(),
    operator("sinc").in_place(Promoted),
    operator("sinh").in_place(Promoted).inverse(&["torch.asinh"]).converts_operands(),
    operator("special_zeta"),
    operator("sqrt").signature("input").in_place(Promoted).inverse(&["torch.square"]).relative_cost(2.0)
        .converts_operands(),
    operator("square").signature("input").in_place(Promoted),
    operator("sub subtract").signature("input other alpha=1").in_place(Promoted).result_is_free()
        .operand_inverses(OfResult("operator.add"), OfOther("operator.sub")).recompute(Copied).converts_operands().rounds_numbers(),
    operator("tan").in_place(Promoted).relative_cost(2.0).converts_operands(),
    operator("trunc fix").in_place(SameType).jumps(),
    operator("xlog1py"),
    operator("xlogy").in_place(Promoted),
];
