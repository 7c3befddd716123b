//! Fourier transforms.

use super::Precision::Single;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("fft"),
    operator("fft2"),
    operator("fftn"),
    operator("fftshift"),
    operator("hfft"),
    operator("ifft"),
    operator("ifft2"),
    operator("ifftn"),
    operator("ifftshift"),
    operator("ihfft"),
    operator("irfft"),
    operator("irfft2"),
    operator("irfftn"),
    operator("rfft"),
    operator("rfft2"),
    operator("rfftn"),
    operator("stft").autocast(Single),
];
