//! Embeddings.

use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("_get_relative_position_bias"),
    operator("embedding").modules("Embedding")
        .module_call("torch.nn.functional.embedding", "weight padding_idx= max_norm= norm_type= scale_grad_by_freq= sparse=")
        .result_is_free(),
    operator("embedding_bag").modules("EmbeddingBag"),
    operator("one_hot"),
];
