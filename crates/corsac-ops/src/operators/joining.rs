//! Joining of tensors.

use super::Precision::Widest;
use super::Recompute::Copied;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("cartesian_prod").repeats_elements(),
    operator("cat concat concatenate").signature("tensors dim=0").result_is_free().autocast(Widest)
        .recompute(Copied).moves_elements(),
    operator("column_stack").moves_elements(),
    operator("dstack").moves_elements(),
    operator("hstack").moves_elements(),
    operator("meshgrid").repeats_elements().view(),
    operator("row_stack").moves_elements(),
    operator("stack").signature("tensors dim=0").result_is_free().autocast(Widest).recompute(Copied).moves_elements(),
    operator("vstack").moves_elements(),
];
