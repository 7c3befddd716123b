//! Comparisons, logic and choices, element by element.

use super::InPlaceForm::Promoted;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("bitwise_and").in_place(Promoted).commutes(),
    operator("bitwise_not").in_place(Promoted),
    operator("bitwise_or").in_place(Promoted).commutes(),
    operator("bitwise_xor").in_place(Promoted).commutes(),
    operator("ge greater_equal"),
    operator("gt greater"),
    operator("le less_equal"),
    operator("logical_and").in_place(Promoted),
    operator("logical_not").in_place(Promoted),
    operator("logical_or").in_place(Promoted),
    operator("logical_xor").in_place(Promoted),
    operator("lt less"),
    operator("ne not_equal"),
];
