//! Control flow that depends on elements.

use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("higher_order.cond"),
    operator("higher_order.scan"),
    operator("higher_order.while_loop"),
];
