//! Indexing, and updates of indexed elements.

use super::InPlaceForm::{Promoted, Update};
use super::Precision::Widest;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("as_strided_scatter").writes_view("as_strided.default"),
    operator("diagonal_scatter").writes_view("diagonal.default"),
    operator("index_add").in_place(Update),
    operator("index_copy").in_place(Update).autocast(Widest),
    operator("index_fill").in_place(Update),
    operator("index_put").in_place(Update),
    operator("masked_fill").in_place(Promoted),
    operator("scatter").in_place(Update),
    operator("scatter_add").in_place(Update),
    operator("select_scatter").writes_view("select.int"),
    operator("slice_scatter").writes_view("slice.Tensor"),
];
