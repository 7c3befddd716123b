//! Embeddings.

use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("embedding").modules("Embedding").result_is_free(),
    operator("embedding_bag").modules("EmbeddingBag"),
];
