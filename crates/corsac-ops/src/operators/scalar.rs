//! Functions of numbers, containers and types, and questions about tensors that return such.

use super::Layout::{Places, Strides};
use super::Numbers::{Elements, Sizes};
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("_assert"),
    operator("_check"),
    operator("data_ptr").layout(Places),
    operator("dim").numbers(Sizes),
    operator("element_size"),
    operator("hasattr"),
    operator("is_complex"),
    operator("is_contiguous").layout(Strides),
    operator("is_floating_point"),
    operator("is_non_overlapping_and_dense").layout(Strides),
    operator("is_set_to").layout(Strides),
    operator("is_tensor"),
    operator("isinstance"),
    operator("issubclass"),
    operator("item").numbers(Elements),
    operator("len __len__").numbers(Sizes),
    operator("list"),
    operator("ndimension").numbers(Sizes),
    operator("nelement").numbers(Sizes),
    operator("numel").numbers(Sizes),
    operator("print"),
    operator("Size"),
    operator("storage").layout(Strides),
    operator("storage_offset").layout(Strides),
    operator("stride").layout(Strides).numbers(Sizes),
    operator("sym_float"),
    operator("sym_int"),
    operator("sym_is_contiguous").layout(Strides),
    operator("sym_max"),
    operator("sym_min"),
    operator("sym_not"),
    operator("sym_numel").numbers(Sizes),
    operator("sym_size").numbers(Sizes),
    operator("sym_sqrt"),
    operator("sym_storage_offset").layout(Strides),
    operator("sym_stride").numbers(Sizes).layout(Strides),
    operator("sym_sum"),
    operator("tolist").numbers(Elements),
    operator("tuple"),
    operator("untyped_storage").layout(Strides),
];
