//! Joining of tensors.

use super::Precision::Widest;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("cat concat concatenate").result_is_free().autocast(Widest),
    operator("stack").result_is_free().autocast(Widest),
];
