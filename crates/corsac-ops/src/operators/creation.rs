//! Creation, copies and conversion of tensors.

use super::InPlaceForm::{SameType, Update};
use super::Recompute::Copied;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("_to_copy").recompute(Copied),
    operator("arange").recompute(Copied),
    operator("clone").recompute(Copied).moves_elements(),
    operator("copy").in_place(Update).recompute(Copied),
    operator("empty").recompute(Copied),
    operator("empty_like").recompute(Copied),
    operator("empty_permuted").recompute(Copied),
    operator("empty_strided").recompute(Copied),
    operator("eye").recompute(Copied),
    operator("fill").in_place(SameType).recompute(Copied),
    operator("full").recompute(Copied),
    operator("full_like").recompute(Copied),
    operator("lift_fresh").recompute(Copied).moves_elements(),
    operator("lift_fresh_copy").recompute(Copied),
    operator("new_empty").recompute(Copied),
    operator("new_empty_strided").recompute(Copied),
    operator("new_full").recompute(Copied),
    operator("new_ones").recompute(Copied),
    operator("new_zeros").recompute(Copied),
    operator("ones").recompute(Copied),
    operator("ones_like").recompute(Copied),
    operator("scalar_tensor").recompute(Copied),
    operator("to").recompute(Copied),
    operator("type_as").recompute(Copied),
    operator("zeros").recompute(Copied),
    operator("zeros_like").recompute(Copied),
];
