"""Conversions between numbers and quantised integers.

Where the parameters are known, they are ``QuantizeLinear`` and ``DequantizeLinear``, which runtimes fuse into products
of integers; else arithmetic. Weights stay integers in the file.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from corsac.onnx._builder import Builder, GroupedWeight, Tensor
from corsac.onnx._table import translates
from corsac.onnx._types import Unsupported, element_type, is_float, is_static, name_of, positive_dim

# Types of QuantizeLinear in every opset.
_BYTES = (torch.uint8, torch.int8)
# Sizes of groups for which runtimes have kernels of MatMulNBits.
_GROUPS = (32, 64, 128)
_FLOAT = torch.float32


def _numbers(g: Builder, tensor: Tensor) -> Tensor:
    if not is_float(tensor.dtype):
        raise Unsupported(f"numbers of {name_of(tensor.dtype)} to quantise")
    return g.cast(tensor, _FLOAT)


def _integers(tensor: Tensor, dtype: torch.dtype) -> None:
    if tensor.dtype != dtype:
        raise Unsupported(f"integers of {name_of(tensor.dtype)} where {name_of(dtype)} is expected")


def _zero_points(g: Builder, given: Any, dtype: torch.dtype) -> Tensor | None:
    """Zero points as constants of ``dtype``; None if they are not known, or none of its integers."""
    if not isinstance(given, Tensor):
        found = torch.tensor(given)
    else:
        elements = g.elements(given)
        if elements is None:
            return None
        found = elements
    whole = found.to(torch.int64)
    bounds = torch.iinfo(dtype)
    if not torch.equal(whole, found) or not bool(
        ((whole >= bounds.min) & (whole <= bounds.max)).all()
    ):
        return None
    name = f"{given.name}_{name_of(dtype)}" if isinstance(given, Tensor) else "zero_point"
    return g.known(whole.to(dtype), name)


def _clip(g: Builder, tensor: Tensor, quant_min: int, quant_max: int) -> Tensor:
    low, high = g.scalar(quant_min, tensor.dtype), g.scalar(quant_max, tensor.dtype)
    return g.op("Clip", tensor, low, high, shape=tensor.shape)


def _fits(quant_min: int, quant_max: int, dtype: torch.dtype) -> None:
    bounds = torch.iinfo(dtype)
    if not bounds.min <= quant_min <= quant_max <= bounds.max:
        raise Unsupported(f"{quant_min} to {quant_max} in {name_of(dtype)}")


def _quantised(
    g: Builder,
    input: Tensor,
    scales: Tensor,
    zero_points: Any,
    axis: int | None,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    """Quantise; with ``axis``, parameters are along it."""
    _fits(quant_min, quant_max, dtype)
    element_type(dtype)
    input, scales = _numbers(g, input), g.cast(scales, _FLOAT)
    shared = scales.rank == 0 or axis is not None
    known = _zero_points(g, zero_points, dtype) if dtype in _BYTES and shared else None
    if known is not None:
        levels = g.op(
            "QuantizeLinear", input, scales, known, axis=axis, dtype=dtype, shape=input.shape
        )
        bounds = torch.iinfo(dtype)
        # Saturation to all integers of the type is a part of QuantizeLinear.
        if (quant_min, quant_max) == (bounds.min, bounds.max):
            return levels
        return _clip(g, levels, quant_min, quant_max)
    scales = _along(g, scales, axis, input)
    zero_points = _along(g, g.tensor(zero_points, _FLOAT), axis, input)
    steps = g.op("Mul", input, g.op("Reciprocal", scales), shape=input.shape)
    rounded = g.op("Add", g.op("Round", steps), zero_points, shape=input.shape)
    return g.cast(_clip(g, rounded, quant_min, quant_max), dtype)


def _dequantised(
    g: Builder,
    input: Tensor,
    scales: Tensor,
    zero_points: Any,
    axis: int | None,
    dtype: torch.dtype,
    out_dtype: torch.dtype | None,
) -> Tensor:
    """Dequantise; with ``axis``, parameters are along it."""
    _integers(input, dtype)
    scales = g.cast(scales, _FLOAT)
    shared = scales.rank == 0 or axis is not None
    known = _zero_points(g, zero_points, dtype) if dtype in _BYTES and shared else None
    if known is not None:
        numbers = g.op(
            "DequantizeLinear", input, scales, known, axis=axis, dtype=_FLOAT, shape=input.shape
        )
    else:
        zero_points = _along(g, g.tensor(zero_points, _FLOAT), axis, input)
        levels = g.op("Sub", g.cast(input, _FLOAT), zero_points, shape=input.shape)
        numbers = g.op("Mul", levels, _along(g, scales, axis, input), shape=input.shape)
    return g.cast(numbers, out_dtype or _FLOAT)


def _along(g: Builder, parameters: Tensor, axis: int | None, input: Tensor) -> Tensor:
    """Parameters along ``axis``, to broadcast against ``input``."""
    if axis is None or parameters.rank == 0:
        return parameters
    shape = [1] * input.rank
    shape[axis] = parameters.shape[0]
    return g.reshape(parameters, shape)


def _channels(g: Builder, input: Tensor, scales: Tensor, zero_points: Any, axis: int) -> Any:
    """The axis of parameters of channels, and zero points for all of them."""
    axis = positive_dim(axis, input.rank)
    if scales.rank != 1 or scales.shape[0] != input.shape[axis]:
        raise Unsupported(f"scales of shape {list(scales.shape)} for dimension {axis}")
    if zero_points is None:
        zero_points = g.known(torch.zeros(scales.shape, dtype=torch.int32))
    return axis, zero_points


@translates("corsac.quantize_per_tensor")
def quantize_per_tensor(
    g: Builder,
    input: Tensor,
    scale: float,
    zero_point: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    """``clamp(round(input / scale) + zero_point, quant_min, quant_max)``."""
    if scale == 0:
        raise Unsupported("a scale of 0")
    scales = g.scalar(scale, _FLOAT)
    return _quantised(g, input, scales, zero_point, None, quant_min, quant_max, dtype)


@translates("corsac.dequantize_per_tensor")
def dequantize_per_tensor(
    g: Builder,
    input: Tensor,
    scale: float,
    zero_point: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """``(input - zero_point) * scale``."""
    return _dequantised(g, input, g.scalar(scale, _FLOAT), zero_point, None, dtype, out_dtype)


@translates("corsac.quantize_per_channel")
def quantize_per_channel(
    g: Builder,
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    """``quantize_per_tensor`` with a scale and a zero point for each index along ``axis``."""
    axis, zero_points = _channels(g, input, scales, zero_points, axis)
    return _quantised(g, input, scales, zero_points, axis, quant_min, quant_max, dtype)


@translates("corsac.dequantize_per_channel")
def dequantize_per_channel(
    g: Builder,
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """``dequantize_per_tensor`` with a scale and a zero point for each index along ``axis``."""
    axis, zero_points = _channels(g, input, scales, zero_points, axis)
    return _dequantised(g, input, scales, zero_points, axis, dtype, out_dtype)


@translates("corsac.choose_qparams_per_token")
def choose_qparams_per_token(
    g: Builder, input: Tensor, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """Scales and zero points for the range of each row and 0."""
    rows, zero = _numbers(g, input), g.scalar(0.0, _FLOAT)
    low = g.op("Min", g.reduce("ReduceMin", rows, [-1]), zero)
    high = g.op("Max", g.reduce("ReduceMax", rows, [-1]), zero)
    range_ = g.op("Sub", high, low)
    scales = g.op("Div", range_, g.scalar(quant_max - quant_min, _FLOAT))
    infinite = g.op("IsInf", scales, dtype=torch.bool)
    scales = g.op("Max", scales, g.scalar(torch.finfo(_FLOAT).tiny, _FLOAT))
    # A range that is not finite has no levels: its numbers become NaN.
    scales = g.op("Where", infinite, g.scalar(math.nan, _FLOAT), scales, dtype=_FLOAT)
    first = g.scalar(quant_min, _FLOAT)
    zero_points = g.op("Round", g.op("Sub", first, g.op("Div", low, scales)))
    zero_points = _clip(g, zero_points, quant_min, quant_max)
    no_number = g.op("IsNaN", scales, dtype=torch.bool)
    zero_points = g.op("Where", no_number, first, zero_points, dtype=_FLOAT)
    return scales, g.cast(zero_points, torch.int32)


@translates("corsac.quantize_per_token")
def quantize_per_token(
    g: Builder,
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    """``quantize_per_tensor`` with a scale and a zero point for each row."""
    return _quantised(g, input, scales, zero_points, None, quant_min, quant_max, dtype)


@translates("corsac.dequantize_per_token")
def dequantize_per_token(
    g: Builder,
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    output_dtype: torch.dtype = _FLOAT,
) -> Tensor:
    """``dequantize_per_tensor`` with a scale and a zero point for each row."""
    return _dequantised(g, input, scales, zero_points, None, dtype, output_dtype)


@translates("corsac.dequantize_per_channel_group")
def dequantize_per_channel_group(
    g: Builder,
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int = 128,
    output_dtype: torch.dtype = _FLOAT,
) -> Tensor:
    """``dequantize_per_tensor`` with a scale and a zero point for each group of a row's elements."""
    _integers(input, dtype)
    if input.rank != 2 or not is_static(input.shape):
        raise Unsupported(f"groups of a tensor of shape {list(input.shape)}")
    rows, columns = (int(size) for size in input.shape)
    if group_size < 1 or columns % group_size:
        raise Unsupported(f"{columns} columns in groups of {group_size}")
    groups = (rows, columns // group_size)
    scales = g.reshape(g.cast(scales, _FLOAT), groups)
    if zero_points is None:
        zero_points = g.known(torch.zeros(groups, dtype=torch.int32))
    zero_points = g.reshape(zero_points, groups)
    known = _zero_points(g, zero_points, dtype) if g.opset >= 21 and dtype in _BYTES else None
    if known is not None:
        numbers = g.op(
            "DequantizeLinear", input, scales, known, axis=1, block_size=group_size, dtype=_FLOAT,
            shape=input.shape,
        )  # fmt: skip
    else:
        levels = g.reshape(g.cast(input, _FLOAT), (*groups, group_size))
        levels = g.op("Sub", levels, g.reshape(g.cast(zero_points, _FLOAT), (*groups, 1)))
        levels = g.op("Mul", levels, g.reshape(scales, (*groups, 1)))
        numbers = g.reshape(levels, input.shape)
    result = g.cast(numbers, output_dtype)
    found = _grouped(g, input, scales, zero_points, quant_min, quant_max, group_size)
    if found is not None and output_dtype == _FLOAT:
        g.grouped[result.name] = found
    return result


@translates("corsac.unpack_int4")
def unpack_int4(g: Builder, input: Tensor) -> Tensor:
    """Integers from -8 to 7 of bytes with two each, the lower bits first."""
    _integers(input, torch.uint8)
    # Of 32 bits, in which all runtimes divide.
    number, sixteen, eight = (
        g.cast(input, torch.int32), g.scalar(16, torch.int32), g.scalar(8, torch.int32)
    )  # fmt: skip
    low, high = g.op("Mod", number, sixteen), g.op("Div", number, sixteen)
    last = g.ints([-1])
    halves = [g.op("Unsqueeze", half, last, shape=(*half.shape, 1)) for half in (low, high)]
    pairs = g.op("Concat", *halves, axis=-1, shape=(*input.shape, 2))
    whole = g.reshape(pairs, (*input.shape[:-1], input.shape[-1] * 2))
    # Those from 8 on stand for -8 to -1.
    levels = g.op("Sub", g.op("Mod", g.op("Add", whole, eight), sixteen), eight)
    result = g.cast(levels, torch.int8)
    packed = g.elements(input)
    if packed is not None:
        g.unpacked[result.name] = packed
    return result


# -- products with weights in groups ---------------------------------------------------------------


def _grouped(
    g: Builder,
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    group_size: int,
) -> GroupedWeight | None:
    """The weight as ``MatMulNBits`` takes it; None if its elements are not known, or do not fit."""
    packed = g.unpacked.get(input.name)
    integers = g.elements(input) if packed is None else torch.ops.corsac.unpack_int4(packed)
    steps, zeros = g.elements(scales), g.elements(zero_points)
    levels = 16 if quant_max - quant_min < 16 else 256
    if integers is None or steps is None or zeros is None or quant_max - quant_min >= levels:
        return None
    shifted = [tensor.to(torch.int64) - quant_min for tensor in (integers, zeros)]
    fit = all(bool(((own >= 0) & (own < levels)).all()) for own in shifted)
    if not fit or not torch.equal(zeros.to(torch.int64), zeros) or group_size not in _GROUPS:
        return None
    integers, zeros = (own.to(torch.uint8) for own in shifted)
    return GroupedWeight(integers, steps.to(_FLOAT), zeros, levels, group_size)


def grouped_product(g: Builder, input: Tensor, weight: Tensor) -> Tensor | None:
    """``input @ weight.T`` as ``MatMulNBits`` of com.microsoft; None if the weight is none that is dequantised in
    groups."""
    found = g.grouped.get(weight.name)
    if found is None or input.dtype != _FLOAT:
        return None
    rows, columns = found.integers.shape
    bits, groups = (4 if found.levels == 16 else 8), columns // found.group_size
    data = _nibbles(found.integers) if bits == 4 else found.integers
    blocks = g.known(data.reshape(rows, groups, -1), f"{weight.name}_blocks")
    scales = g.known(found.scales.reshape(rows * groups), f"{weight.name}_scales")
    zero_points = None
    if bool((found.zero_points != found.levels // 2).any()):
        own = _nibbles(found.zero_points) if bits == 4 else found.zero_points
        zero_points = g.known(own.reshape(-1), f"{weight.name}_zero_points")
    return g.op(
        "MatMulNBits", input, blocks, scales, zero_points, domain="com.microsoft", K=columns, N=rows,
        bits=bits, block_size=found.group_size, shape=(*input.shape[:-1], rows),
    )  # fmt: skip


def _nibbles(integers: torch.Tensor) -> torch.Tensor:
    """Two integers from 0 to 15 in each byte of a row, the first in the lower bits."""
    if integers.shape[-1] % 2:
        integers = torch.nn.functional.pad(integers, (0, 1))
    return integers[..., 0::2] | (integers[..., 1::2] << 4)
