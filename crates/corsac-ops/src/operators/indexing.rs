//! Indexing, and updates of indexed elements.

use super::InPlaceForm::Update;
use super::Layout::Places;
use super::Precision::Widest;
use super::Recompute::Copied;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("_unsafe_index"),
    operator("argwhere"),
    operator("as_strided_scatter").writes_view("as_strided.default").layout(Places),
    operator("bincount"),
    operator("bucketize"),
    operator("diagonal_scatter").writes_view("diagonal.default"),
    operator("gather").recompute(Copied),
    operator("index").recompute(Copied),
    operator("index_add").in_place(Update),
    operator("index_copy").in_place(Update).autocast(Widest),
    operator("index_fill").in_place(Update),
    operator("index_put").in_place(Update),
    operator("index_select").recompute(Copied),
    operator("masked_scatter"),
    operator("masked_select"),
    operator("nonzero"),
    operator("scatter").in_place(Update),
    operator("scatter_add").in_place(Update),
    operator("scatter_reduce"),
    operator("select_scatter").writes_view("select.int").recompute(Copied),
    operator("take"),
    operator("take_along_dim"),
];
