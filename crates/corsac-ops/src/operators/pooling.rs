//! Pooling and resampling.

use super::Precision::Single;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("_adaptive_avg_pool2d"),
    operator("_adaptive_avg_pool3d"),
    operator("_upsample_nearest_exact1d"),
    operator("_upsample_nearest_exact2d"),
    operator("adaptive_avg_pool1d").modules("AdaptiveAvgPool1d")
        .module_call("torch.adaptive_avg_pool1d", "output_size="),
    operator("adaptive_avg_pool2d").modules("AdaptiveAvgPool2d")
        .module_call("torch.nn.functional.adaptive_avg_pool2d", "output_size=").result_is_free(),
    operator("adaptive_avg_pool3d").modules("AdaptiveAvgPool3d")
        .module_call("torch.nn.functional.adaptive_avg_pool3d", "output_size=").autocast(Single),
    operator("adaptive_max_pool1d").modules("AdaptiveMaxPool1d"),
    operator("adaptive_max_pool2d").modules("AdaptiveMaxPool2d"),
    operator("adaptive_max_pool3d").modules("AdaptiveMaxPool3d"),
    operator("affine_grid"),
    operator("avg_pool1d").modules("AvgPool1d"),
    operator("avg_pool2d").modules("AvgPool2d")
        .module_call("torch._C._nn.avg_pool2d", "kernel_size= stride= padding= ceil_mode= count_include_pad= divisor_override=")
        .result_is_free(),
    operator("avg_pool3d").modules("AvgPool3d").autocast(Single),
    operator("grid_sample").autocast(Single),
    operator("grid_sampler").autocast(Single),
    operator("interpolate").modules("Upsample UpsamplingNearest2d UpsamplingBilinear2d")
        .module_call("torch.nn.functional.interpolate", "size= scale_factor= mode= align_corners= recompute_scale_factor="),
    operator("lp_pool1d").modules("LPPool1d"),
    operator("lp_pool2d").modules("LPPool2d"),
    operator("max_pool1d").modules("MaxPool1d")
        .module_call("torch.nn.functional.max_pool1d", "kernel_size= stride= padding= dilation= ceil_mode= return_indices="),
    operator("max_pool1d_with_indices"),
    operator("max_pool2d").modules("MaxPool2d")
        .module_call("torch.nn.functional.max_pool2d", "kernel_size= stride= padding= dilation= ceil_mode= return_indices="),
    operator("max_pool2d_with_indices"),
    operator("max_pool3d").modules("MaxPool3d"),
    operator("max_pool3d_with_indices"),
    operator("max_unpool2d").autocast(Single),
    operator("max_unpool3d").autocast(Single),
    operator("pixel_shuffle").modules("PixelShuffle").moves_elements(),
    operator("pixel_unshuffle").modules("PixelUnshuffle").moves_elements(),
    operator("upsample"),
    operator("upsample_bicubic2d"),
    operator("upsample_bilinear"),
    operator("upsample_bilinear2d"),
    operator("upsample_linear1d"),
    operator("upsample_nearest"),
    operator("upsample_nearest1d"),
    operator("upsample_nearest2d"),
    operator("upsample_nearest3d"),
    operator("upsample_trilinear3d"),
];
