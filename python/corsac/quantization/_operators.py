"""Operators of quantisation, `torch.ops.corsac`: conversions between numbers and integers.

Signatures and numbers are those of `torch.ops.quantized_decomposed`, which PyTorch is going to remove; only
quantisation per token computes its parameters in the type of the tensor. The functions are PyTorch's operators, so
that they also run on fake and meta tensors; natively they are fused into products.
"""

from __future__ import annotations

import math

import torch

from corsac._pytorch import quantised
from corsac.quantization import _graph_state  # noqa: F401  makes scales a part of the state of graphs

LIBRARY = torch.library.Library("corsac", "DEF")

# Bounds of what an integer type can hold.
_BOUNDS = {
    torch.uint8: (0, 255),
    torch.int8: (-128, 127),
    torch.uint16: (0, 2**16 - 1),
    torch.int16: (-(2**15), 2**15 - 1),
    torch.int32: (-(2**31), 2**31 - 1),
}


def _operator(schema: str):
    """Defines an operator that is computed by the decorated function on all devices."""

    def define(function):
        LIBRARY.define(schema)
        LIBRARY.impl(schema.partition("(")[0], function, "CompositeExplicitAutograd")
        return function

    return define


def _checked(quant_min: int, quant_max: int, dtype: torch.dtype) -> None:
    if dtype not in _BOUNDS:
        raise ValueError(f"quantised integers are one of {[*_BOUNDS]}, not {dtype}")
    low, high = _BOUNDS[dtype]
    if not low <= quant_min <= quant_max <= high:
        raise ValueError(f"{dtype} holds {low} to {high}, not {quant_min} to {quant_max}")


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Floating-point numbers as float32."""
    if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(
            f"numbers to quantise are of float32, bfloat16 or float16, not {tensor.dtype}"
        )
    return tensor.to(torch.float32)


def _of_type(tensor: torch.Tensor, dtype: torch.dtype) -> None:
    if tensor.dtype != dtype:
        raise ValueError(f"quantised integers of {dtype} were expected, not of {tensor.dtype}")


def _along(parameters: torch.Tensor, axis: int, tensor: torch.Tensor) -> torch.Tensor:
    """A parameter for each index along `axis`, to broadcast against `tensor`."""
    if parameters.numel() != tensor.shape[axis]:
        raise ValueError(f"{parameters.numel()} parameters for {tensor.shape[axis]} channels")
    shape = [1] * tensor.dim()
    shape[axis] = -1
    return parameters.reshape(shape)


@_operator(
    "quantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype)"
    " -> Tensor"
)
def quantize_per_tensor(input, scale, zero_point, quant_min, quant_max, dtype):
    """`clamp(round(input / scale) + zero_point, quant_min, quant_max)`, ties to even."""
    _checked(quant_min, quant_max, dtype)
    if scale == 0:
        raise ValueError("a scale of 0")
    levels = torch.round(_numbers(input) * (1.0 / scale)) + zero_point
    return torch.clamp(levels, quant_min, quant_max).to(dtype)


@_operator(
    "dequantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max,"
    " ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor"
)
def dequantize_per_tensor(input, scale, zero_point, quant_min, quant_max, dtype, *, out_dtype=None):
    """`(input - zero_point) * scale`, as float32 or `out_dtype`."""
    _checked(quant_min, quant_max, dtype)
    _of_type(input, dtype)
    return (input.to(out_dtype or torch.float32) - zero_point) * scale


@_operator(
    "quantize_per_channel(Tensor input, Tensor scales, Tensor? zero_points, int axis, int quant_min, int quant_max,"
    " ScalarType dtype) -> Tensor"
)
def quantize_per_channel(input, scales, zero_points, axis, quant_min, quant_max, dtype):
    """`quantize_per_tensor` with a scale and a zero point for each index along `axis`."""
    _checked(quant_min, quant_max, dtype)
    levels = torch.round(_numbers(input) * (1.0 / _along(scales, axis, input)))
    if zero_points is not None:
        levels = levels + _along(zero_points, axis, input)
    return torch.clamp(levels, quant_min, quant_max).to(dtype)


@_operator(
    "dequantize_per_channel(Tensor input, Tensor scales, Tensor? zero_points, int axis, int quant_min,"
    " int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor"
)
def dequantize_per_channel(
    input,
    scales,
    zero_points,
    axis,
    quant_min,
    quant_max,
    dtype,
    *,
    out_dtype=None,
):
    """`dequantize_per_tensor` with a scale and a zero point for each index along `axis`."""
    _checked(quant_min, quant_max, dtype)
    _of_type(input, dtype)
    levels = input.to(torch.float32)
    if zero_points is not None:
        levels = levels - _along(zero_points, axis, input)
    return (levels * _along(scales, axis, input)).to(out_dtype or torch.float32)


def _define_with_tensors() -> None:
    """The operators whose parameters are tensors, for a whole tensor at each call."""
    choose = "(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype)"
    schemas = {
        "choose_qparams.tensor": f"{choose} -> (Tensor scale, Tensor zero_point)",
        "choose_qparams_symmetric.tensor": f"{choose} -> (Tensor scale, Tensor zero_point)",
        "quantize_per_tensor.tensor": "(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max,"
        " ScalarType dtype) -> Tensor",
        "dequantize_per_tensor.tensor": "(Tensor input, Tensor scale, Tensor zero_point, int quant_min,"
        " int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor",
    }
    for name, schema in schemas.items():
        _operator(name + schema)(quantised.FUNCTIONS[name])


_define_with_tensors()


@_operator(
    "choose_qparams_per_token(Tensor input, int quant_min, int quant_max) -> (Tensor scales, Tensor zero_points)"
)
def choose_qparams_per_token(input, quant_min, quant_max):
    """Scales (float32) and zero points (int32), of shape `[..., 1]`, for the range of each row and 0."""
    rows = _numbers(input)
    low = torch.clamp(torch.amin(rows, dim=-1, keepdim=True), max=0.0)
    high = torch.clamp(torch.amax(rows, dim=-1, keepdim=True), min=0.0)
    scales = torch.clamp(
        (high - low) / (quant_max - quant_min), min=torch.finfo(torch.float32).tiny
    )
    # A range that is not finite has no levels: its numbers become NaN.
    scales = torch.where(torch.isfinite(scales), scales, torch.nan)
    zero_points = torch.clamp(torch.round(quant_min - low / scales), quant_min, quant_max)
    return scales, torch.nan_to_num(zero_points, nan=quant_min).to(torch.int32)


@_operator(
    "quantize_per_token(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max,"
    " ScalarType dtype) -> Tensor"
)
def quantize_per_token(input, scales, zero_points, quant_min, quant_max, dtype):
    """`quantize_per_tensor` with a scale and a zero point for each row."""
    _checked(quant_min, quant_max, dtype)
    levels = torch.round(_numbers(input) * (1.0 / scales)) + zero_points
    return torch.clamp(levels, quant_min, quant_max).to(dtype)


@_operator(
    "dequantize_per_token(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max,"
    " ScalarType dtype, ScalarType output_dtype) -> Tensor"
)
def dequantize_per_token(input, scales, zero_points, quant_min, quant_max, dtype, output_dtype):
    """`dequantize_per_tensor` with a scale and a zero point for each row."""
    _checked(quant_min, quant_max, dtype)
    _of_type(input, dtype)
    return ((input.to(torch.float32) - zero_points) * scales).to(output_dtype)


@_operator(
    "dequantize_per_channel_group(Tensor input, Tensor scales, Tensor? zero_points, int quant_min, int quant_max,"
    " ScalarType dtype, int group_size=128, ScalarType output_dtype=float32) -> Tensor"
)
def dequantize_per_channel_group(
    input,
    scales,
    zero_points,
    quant_min,
    quant_max,
    dtype,
    group_size=128,
    output_dtype=torch.float32,
):
    """`dequantize_per_tensor` of a matrix with a scale (and zero point) for each `group_size` integers of a row."""
    _checked(quant_min, quant_max, dtype)
    _of_type(input, dtype)
    if input.dim() != 2 or group_size < 1 or input.shape[1] % group_size:
        raise ValueError(f"a matrix of shape {list(input.shape)} in groups of {group_size}")
    groups = input.to(torch.float32).reshape(-1, group_size)
    if zero_points is not None:
        groups = groups - zero_points.reshape(-1, 1)
    return (groups * scales.reshape(-1, 1)).reshape(input.shape).to(output_dtype)


@_operator(
    "fake_quantize(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max,"
    " Tensor? enabled=None) -> Tensor"
)
def fake_quantize(input, scale, zero_point, quant_min, quant_max, enabled=None):
    """`torch.fake_quantize_per_tensor_affine` of float32, with a scale and a zero point that broadcast; `input` where
    `enabled`, a bool, is false."""
    # The level of NaN is the lowest, as PyTorch's.
    ordered = torch.where(input == input, input, -math.inf)
    levels = torch.clamp(_levels(ordered, scale, zero_point), quant_min, quant_max)
    numbers = (levels - zero_point) * scale
    return numbers if enabled is None else torch.where(enabled, numbers, input)


def _levels(input, scale, zero_point):
    return torch.round(input * torch.reciprocal(scale)) + zero_point


def _keep_for_gradient(ctx, inputs, output):
    input, scale, zero_point, *ctx.bounds, enabled = inputs
    ctx.save_for_backward(input, scale, zero_point, enabled)


def _gradient_of_fake_quantize(ctx, grad):
    *parameters, enabled = ctx.saved_tensors
    levels = _levels(*parameters)
    # Where the clamp does nothing. One comparison takes half of the time of two.
    passes = levels == torch.clamp(levels, *ctx.bounds)
    if enabled is not None:
        passes = torch.logical_or(passes, torch.logical_not(enabled))
    return torch.where(passes, grad, 0.0), None, None, None, None, None


torch.library.register_autograd(
    "corsac::fake_quantize", _gradient_of_fake_quantize, setup_context=_keep_for_gradient
)


@_operator(
    "moving_average_qparams(Tensor low, Tensor high, Tensor observing, Tensor enabled, Tensor min_val, Tensor max_val,"
    " Tensor scale, Tensor zero_point, float averaging_constant, int quant_min, int quant_max, bool symmetric)"
    " -> (Tensor, Tensor, Tensor, Tensor)"
)
def moving_average_qparams(
    low,
    high,
    observing,
    enabled,
    min_val,
    max_val,
    scale,
    zero_point,
    averaging_constant,
    quant_min,
    quant_max,
    symmetric,
):
    """`torch.fused_moving_avg_obs_fake_quant` without the rounding, given the ends of the range of its operand.

    Returns:
        The moving averages of both ends, and the scale and the zero point of them, all of float32: the former are what
        they were where `observing` is false, the latter where `enabled` is.
    """
    least = torch.where(observing, _moved(min_val, low, averaging_constant), min_val)
    most = torch.where(observing, _moved(max_val, high, averaging_constant), max_val)
    own_scale, own_zero_point = _parameters(least, most, quant_min, quant_max, symmetric)
    return (
        least,
        most,
        torch.where(enabled, own_scale, scale),
        torch.where(enabled, own_zero_point, zero_point),
    )


def _moved(average, value, constant):
    moved = average + (value - average) * constant
    return torch.where(torch.isinf(average), value, moved)


#: Smallest scale, a number of float32.
_SMALL_SCALE = torch.tensor(6.1e-5).item()


def _parameters(least, most, low, high, symmetric):
    """A scale and a zero point, of float32: `ChooseQuantizationParams` of PyTorch (`QuantUtils.h`), which computes
    in double precision, but keeps the ends of the range in single."""
    if symmetric:
        below, above = -((high - low) // 2 + 1), (high - low) // 2
        widest = torch.maximum(torch.abs(least / below), torch.abs(most / above))
        widest = widest.to(torch.float64)
        has_both = torch.logical_and(least < 0, most > 0)
        least = torch.where(has_both, (widest * below).to(torch.float32), least)
        most = torch.where(has_both, (widest * above).to(torch.float32), most)
    least, most = torch.clamp(least, max=0.0), torch.clamp(most, min=0.0)
    scale = (most.to(torch.float64) - least.to(torch.float64)) / (high - low)
    single = scale.to(torch.float32)
    nothing = torch.logical_or(single == 0.0, torch.isinf(torch.reciprocal(single)))
    scale = torch.where(nothing, 0.1, scale)
    is_small = scale < _SMALL_SCALE
    # The range is widened to that of the smallest scale.
    factor = _SMALL_SCALE / scale.to(torch.float32)
    widest = _SMALL_SCALE * (high - low)
    alone = torch.where(most == 0.0, -widest, least * factor)
    own_least = torch.where(least == 0.0, least, alone)
    alone = torch.where(most == 0.0, most, most * factor)
    own_most = torch.where(least == 0.0, widest, alone)
    least, most = (
        torch.where(is_small, own_least, least).to(torch.float64),
        torch.where(is_small, own_most, most).to(torch.float64),
    )
    scale = torch.where(is_small, _SMALL_SCALE, scale)
    under, over = least / scale, most / scale
    is_from_least = abs(low) - torch.abs(under) < abs(high) - torch.abs(over)
    zero_point = torch.where(is_from_least, low - under, high - over)
    if symmetric:
        has_both = torch.logical_and(least < 0, most > 0)
        zero_point = torch.where(has_both, (low + high) / 2, zero_point)
    zero_point = torch.round(torch.clamp(zero_point, low, high))
    return scale.to(torch.float32), zero_point.to(torch.float32)


@_operator("unpack_int4(Tensor packed) -> Tensor")
def unpack_int4(packed):
    """Integers from -8 to 7 (int8) of bytes (uint8) with two each, the lower bits first: `[..., n]` to `[..., 2 n]`."""
    _of_type(packed, torch.uint8)
    signed = packed.to(torch.int8)
    halves = torch.stack([(signed << 4) >> 4, signed >> 4], dim=-1)
    return halves.flatten(-2)


def pack_int4(integers: torch.Tensor) -> torch.Tensor:
    """Bytes (uint8) with two integers from -8 to 7 each, the lower bits first: `[..., 2 n]` to `[..., n]`."""
    if integers.shape[-1] % 2:
        raise ValueError(f"{integers.shape[-1]} integers of 4 bits fill no whole bytes")
    pairs = integers.to(torch.int8).unflatten(-1, (-1, 2))
    return ((pairs[..., 0] & 15) | (pairs[..., 1] << 4)).view(torch.uint8)
