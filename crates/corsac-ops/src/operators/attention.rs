//! Attention.

use super::Precision::Lower;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("multi_head_attention_forward").modules("MultiheadAttention").composed(),
    operator("scaled_dot_product_attention").autocast(Lower),
    operator("transformer_encoder").modules("TransformerEncoder TransformerEncoderLayer").composed(),
];
