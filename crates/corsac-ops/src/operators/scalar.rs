//! Functions of numbers, containers and types, and questions about tensors that return such.

use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("_assert"),
    operator("_check"),
    operator("dim"),
    operator("element_size"),
    operator("hasattr"),
    operator("is_complex"),
    operator("is_contiguous"),
    operator("is_floating_point"),
    operator("is_tensor"),
    operator("isinstance"),
    operator("issubclass"),
    operator("item"),
    operator("len __len__"),
    operator("list"),
    operator("ndimension"),
    operator("nelement"),
    operator("numel"),
    operator("print"),
    operator("Size"),
    operator("stride"),
    operator("sym_float"),
    operator("sym_int"),
    operator("sym_max"),
    operator("sym_min"),
    operator("sym_not"),
    operator("sym_numel"),
    operator("sym_size"),
    operator("sym_sqrt"),
    operator("sym_stride"),
    operator("sym_sum"),
    operator("tuple"),
];
