//! Comparisons, logic and choices, element by element.

use super::InPlaceForm::Promoted;
use super::Recompute::Copied;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("bitwise_and __and__").in_place(Promoted).commutes().recompute(Copied),
    operator("bitwise_left_shift"),
    operator("bitwise_not").in_place(Promoted).recompute(Copied),
    operator("bitwise_or __or__").in_place(Promoted).commutes().recompute(Copied),
    operator("bitwise_right_shift"),
    operator("bitwise_xor __xor__").in_place(Promoted).commutes().recompute(Copied),
    operator("eq").recompute(Copied).rounds_numbers().jumps(),
    operator("ge greater_equal").recompute(Copied).rounds_numbers().jumps(),
    operator("gt greater").recompute(Copied).rounds_numbers().jumps(),
    operator("is_"),
    operator("is_not"),
    operator("isclose"),
    operator("isfinite"),
    operator("isinf").recompute(Copied),
    operator("isnan").recompute(Copied),
    operator("isneginf"),
    operator("isposinf"),
    operator("isreal"),
    operator("le less_equal").recompute(Copied).rounds_numbers().jumps(),
    operator("logical_and").in_place(Promoted).recompute(Copied).jumps(),
    operator("logical_not").in_place(Promoted).recompute(Copied).jumps(),
    operator("logical_or").in_place(Promoted).recompute(Copied).jumps(),
    operator("logical_xor").in_place(Promoted).jumps(),
    operator("lt less").recompute(Copied).rounds_numbers().jumps(),
    operator("masked_fill").in_place(Promoted).recompute(Copied),
    operator("maximum").signature("input other").recompute(Copied).converts_operands(),
    operator("minimum").signature("input other").recompute(Copied).converts_operands(),
    operator("ne not_equal").recompute(Copied).rounds_numbers().jumps(),
    operator("not_"),
    operator("signbit"),
    operator("truth"),
    operator("where").signature("condition input other").recompute(Copied),
];
