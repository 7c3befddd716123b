//! Attention.

use super::Precision::Lower;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("_scaled_dot_product_flash_attention_for_cpu"),
    operator("multi_head_attention_forward").modules("MultiheadAttention").composed(),
    operator("MultiheadAttention"),
    operator("scaled_dot_product_attention")
        .signature("query key value attn_mask=None dropout_p=0.0 is_causal=False scale=None enable_gqa=False")
        .autocast(Lower).relative_cost(50.0),
    operator("shifted_window_attention"),
    operator("transformer_encoder").modules("TransformerEncoder TransformerEncoderLayer").composed(),
    operator("TransformerEncoder"),
    operator("TransformerEncoderLayer"),
];
