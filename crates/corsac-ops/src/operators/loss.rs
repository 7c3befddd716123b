//! Losses.

use super::Precision::Single;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("binary_cross_entropy").modules("BCELoss").autocast(Single),
    operator("binary_cross_entropy_with_logits").modules("BCEWithLogitsLoss").autocast(Single),
    operator("cosine_embedding_loss").modules("CosineEmbeddingLoss").autocast(Single),
    operator("cosine_similarity").modules("CosineSimilarity"),
    operator("cross_entropy").modules("CrossEntropyLoss").autocast(Single),
    operator("cross_entropy_loss").autocast(Single),
    operator("ctc_loss").autocast(Single),
    operator("gaussian_nll_loss").modules("GaussianNLLLoss"),
    operator("hinge_embedding_loss").modules("HingeEmbeddingLoss").autocast(Single),
    operator("huber_loss").modules("HuberLoss").autocast(Single),
    operator("kl_div").modules("KLDivLoss").autocast(Single),
    operator("l1_loss").modules("L1Loss").autocast(Single),
    operator("margin_ranking_loss").modules("MarginRankingLoss").autocast(Single),
    operator("mse_loss").modules("MSELoss").autocast(Single),
    operator("multi_margin_loss").modules("MultiMarginLoss").autocast(Single),
    operator("multilabel_margin_loss").modules("MultiLabelMarginLoss").autocast(Single),
    operator("multilabel_soft_margin_loss").modules("MultiLabelSoftMarginLoss").composed(),
    operator("nll_loss").modules("NLLLoss NLLLoss2d").autocast(Single),
    operator("pairwise_distance").modules("PairwiseDistance").module_attributes("p=norm"),
    operator("poisson_nll_loss").modules("PoissonNLLLoss").autocast(Single),
    operator("smooth_l1_loss").modules("SmoothL1Loss").autocast(Single),
    operator("soft_margin_loss").modules("SoftMarginLoss").autocast(Single),
    operator("triplet_margin_loss").modules("TripletMarginLoss").autocast(Single),
    operator("triplet_margin_with_distance_loss"),
];
