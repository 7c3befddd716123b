//! Reductions, scans and sorting.

use super::Precision::Single;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("nanquantile").autocast(Single),
    operator("prod").autocast(Single),
    operator("quantile").autocast(Single),
];
