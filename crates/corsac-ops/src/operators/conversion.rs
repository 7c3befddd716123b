//! Copies and conversions of tensors.

use super::InPlaceForm::Update;
use super::Recompute::Copied;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("_to_copy").recompute(Copied),
    operator("bfloat16"),
    operator("bool"),
    operator("byte"),
    operator("char"),
    operator("clone").recompute(Copied).moves_elements(),
    operator("prims.convert_element_type convert_element_type").recompute(Copied),
    operator("copy").in_place(Update).recompute(Copied),
    operator("copy_"),
    operator("cpu"),
    operator("double"),
    operator("float"),
    operator("half"),
    operator("int"),
    operator("lift_fresh").recompute(Copied).moves_elements(),
    operator("lift_fresh_copy").recompute(Copied),
    operator("long"),
    operator("short"),
    operator("to").recompute(Copied),
    operator("type"),
    operator("type_as").recompute(Copied),
];
