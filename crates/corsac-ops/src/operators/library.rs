//! Functions of torchvision that its models are traced with as one call.

use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("_get_relative_position_bias"),
    operator("_patch_merging_pad"),
    operator("shifted_window_attention"),
    operator("stochastic_depth"),
];
