//! Convolutions.

use super::Precision::Lower;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("conv1d").modules("Conv1d").result_is_free().autocast(Lower),
    operator("conv2d").modules("Conv2d").result_is_free().autocast(Lower),
    operator("conv3d").modules("Conv3d").result_is_free().autocast(Lower),
    operator("conv_tbc").autocast(Lower),
    operator("conv_transpose1d").modules("ConvTranspose1d").result_is_free().autocast(Lower),
    operator("conv_transpose2d").modules("ConvTranspose2d").result_is_free().autocast(Lower),
    operator("conv_transpose3d").modules("ConvTranspose3d").result_is_free().autocast(Lower),
    operator("convolution").result_is_free(),
];
