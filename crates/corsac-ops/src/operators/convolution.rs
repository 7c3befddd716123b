//! Convolutions.

use super::Precision::Lower;
use super::Requirement::ZeroPadding;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("_convolution"),
    operator("conv1d").modules("Conv1d")
        .module_call("torch.conv1d", "weight bias stride= padding= dilation= groups=").requires(ZeroPadding)
        .result_is_free().autocast(Lower).relative_cost(50.0),
    operator("conv2d").modules("Conv2d")
        .module_call("torch.conv2d", "weight bias stride= padding= dilation= groups=").requires(ZeroPadding)
        .result_is_free().autocast(Lower).relative_cost(50.0),
    operator("conv3d").modules("Conv3d")
        .module_call("torch.conv3d", "weight bias stride= padding= dilation= groups=").requires(ZeroPadding)
        .result_is_free().autocast(Lower).relative_cost(50.0),
    operator("conv_tbc").autocast(Lower).relative_cost(50.0),
    operator("conv_transpose1d").modules("ConvTranspose1d")
        .module_call("torch.conv_transpose1d", "weight bias stride= padding= output_padding= groups= dilation=")
        .requires(ZeroPadding).result_is_free().autocast(Lower).relative_cost(50.0),
    operator("conv_transpose2d").modules("ConvTranspose2d")
        .module_call("torch.conv_transpose2d", "weight bias stride= padding= output_padding= groups= dilation=")
        .requires(ZeroPadding).result_is_free().autocast(Lower).relative_cost(50.0),
    operator("conv_transpose3d").modules("ConvTranspose3d")
        .module_call("torch.conv_transpose3d", "weight bias stride= padding= output_padding= groups= dilation=")
        .requires(ZeroPadding).result_is_free().autocast(Lower).relative_cost(50.0),
    operator("convolution").result_is_free().relative_cost(50.0),
];
