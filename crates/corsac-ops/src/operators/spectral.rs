//! Fourier transforms.

use super::Precision::Single;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("stft").autocast(Single),
];
