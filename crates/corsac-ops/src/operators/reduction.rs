//! Reductions, scans and sorting.

use super::Precision::Single;
use super::Recompute::Copied;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("_grad_sum_to_size").recompute(Copied),
    operator("all").recompute(Copied),
    operator("amax").signature("input dim=None keepdim=False").recompute(Copied),
    operator("amin").signature("input dim=None keepdim=False").recompute(Copied),
    operator("any").recompute(Copied),
    operator("argmax").recompute(Copied),
    operator("argmin").recompute(Copied),
    operator("cumsum").relative_cost(4.0),
    operator("logsumexp").converts_operands(),
    operator("max").recompute(Copied),
    operator("mean").signature("input dim=None keepdim=False dtype=None").recompute(Copied),
    operator("min").recompute(Copied),
    operator("nanquantile").autocast(Single),
    operator("prod").autocast(Single),
    operator("quantile").autocast(Single),
    operator("sort").relative_cost(4.0),
    operator("std").signature("input dim=None unbiased=None keepdim=False correction=None").recompute(Copied),
    operator("sum").signature("input dim=None keepdim=False dtype=None").recompute(Copied),
    operator("sum_to_size").recompute(Copied),
    operator("topk").relative_cost(4.0),
    operator("var").signature("input dim=None unbiased=None keepdim=False correction=None").recompute(Copied),
    operator("var_mean").recompute(Copied),
];
