//! Creation of tensors.

use super::InPlaceForm::SameType;
use super::Recompute::Copied;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("arange").recompute(Copied),
    operator("as_tensor"),
    operator("complex"),
    operator("empty").recompute(Copied),
    operator("empty_like").recompute(Copied).reads_only_type(),
    operator("empty_permuted").recompute(Copied),
    operator("empty_strided").recompute(Copied),
    operator("eye").recompute(Copied),
    operator("fill").in_place(SameType).recompute(Copied),
    operator("full").recompute(Copied),
    operator("full_like").recompute(Copied).reads_only_type(),
    operator("linspace"),
    operator("logspace"),
    operator("new_empty").recompute(Copied).reads_only_type(),
    operator("new_empty_strided").recompute(Copied),
    operator("new_full").recompute(Copied).reads_only_type(),
    operator("new_ones").recompute(Copied).reads_only_type(),
    operator("new_zeros").recompute(Copied).reads_only_type(),
    operator("ones").recompute(Copied),
    operator("ones_like").recompute(Copied).reads_only_type(),
    operator("scalar_tensor").recompute(Copied),
    operator("tensor"),
    operator("zero"),
    operator("zero_"),
    operator("zeros").recompute(Copied),
    operator("zeros_like").recompute(Copied).reads_only_type(),
];
