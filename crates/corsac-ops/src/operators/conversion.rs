//! Copies and conversions of tensors.

use corsac_ir::DType::{
    BFloat16, Bool, Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8,
};

use super::InPlaceForm::Update;
use super::Recompute::Copied;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("_to_copy").recompute(Copied).converts(),
    operator("bfloat16").converts_to(BFloat16),
    operator("bool").converts_to(Bool),
    operator("byte").converts_to(UInt8),
    operator("char").converts_to(Int8),
    operator("clone").recompute(Copied).moves_elements(),
    operator("prims.convert_element_type convert_element_type").recompute(Copied).converts(),
    operator("copy").in_place(Update).recompute(Copied),
    operator("copy_"),
    operator("cpu"),
    operator("double").converts_to(Float64),
    operator("float").converts_to(Float32),
    operator("half").converts_to(Float16),
    operator("int").converts_to(Int32),
    operator("lift_fresh").recompute(Copied).moves_elements().view(),
    operator("lift_fresh_copy").recompute(Copied),
    operator("long").converts_to(Int64),
    operator("short").converts_to(Int16),
    operator("to").recompute(Copied).converts(),
    operator("to_dense").converts(),
    operator("type").converts(),
    operator("type_as").recompute(Copied).converts(),
];
