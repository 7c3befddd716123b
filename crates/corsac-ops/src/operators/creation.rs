//! Creation, copies and conversion of tensors.

use super::InPlaceForm::{SameType, Update};
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("copy").in_place(Update),
    operator("fill").in_place(SameType),
];
