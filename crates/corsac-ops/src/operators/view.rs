//! Views and other operators that only move elements.

use super::Precision::Single;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("channel_shuffle").modules("ChannelShuffle"),
    operator("flatten").modules("Flatten").module_call("torch.flatten", "start_dim= end_dim="),
    operator("flip"),
    operator("fold").modules("Fold"),
    operator("identity").modules("Identity"),
    operator("pad").modules("ConstantPad1d ConstantPad2d ConstantPad3d ZeroPad1d ZeroPad2d ZeroPad3d")
        .module_attributes("pad=padding"),
    operator("permute"),
    operator("pixel_shuffle").modules("PixelShuffle"),
    operator("pixel_unshuffle").modules("PixelUnshuffle"),
    operator("t").inverse(&["torch.t"]),
    operator("transpose swapaxes swapdims"),
    operator("unflatten").modules("Unflatten").module_attributes("sizes=unflattened_size"),
    operator("unfold").modules("Unfold"),
    operator("view_as_complex").autocast(Single),
];
