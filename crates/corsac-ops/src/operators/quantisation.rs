//! Conversions between numbers and quantised integers. corsac's operators have the signatures and
//! numbers of `torch.ops.quantized_decomposed` where they share a row.

use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("corsac.choose_qparams_per_token"),
    operator("corsac.dequantize_per_channel quantized_decomposed.dequantize_per_channel").expands(),
    operator("corsac.dequantize_per_channel_group quantized_decomposed.dequantize_per_channel_group").expands(),
    operator("corsac.dequantize_per_tensor quantized_decomposed.dequantize_per_tensor").expands(),
    operator("corsac.dequantize_per_token").expands(),
    operator("corsac.fake_quantize"),
    operator("corsac.moving_average_qparams"),
    operator("corsac.quantize_per_channel quantized_decomposed.quantize_per_channel"),
    operator("corsac.quantize_per_tensor quantized_decomposed.quantize_per_tensor"),
    operator("corsac.quantize_per_token"),
    operator("corsac.unpack_int4").expands(),
];
