"""Convolutions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from corsac.onnx import windows
from corsac.onnx._emitter import Emitter
from corsac.onnx._registry import reads
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Size, Value

_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def same_pads(
    g: Emitter,
    input: Value,
    kernel: list[int],
    strides: list[int],
    dilations: list[int],
    lower: bool,
) -> list[Any]:
    """Pads, all beginnings before all ends, for which a size becomes that divided by the stride, rounded up."""
    begins, ends = [], []
    for at, (window, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
        size = g.size(input, 2 + at)
        reach = (window - 1) * dilation + 1
        if isinstance(size, Size):
            if stride != 1:
                raise Unsupported("padding that depends on a size")
            total = reach - 1
        else:
            total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        begins.append(total - total // 2 if lower else total // 2)
        ends.append(total - begins[-1])
    return begins + ends


def around(
    g: Emitter,
    input: Value,
    kernel: list[int],
    strides: list[int],
    dilations: list[int],
    pads: list[int] | None,
    auto_pad: str,
) -> list[Any]:
    """The pads of an operator with windows."""
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return same_pads(g, input, kernel, strides, dilations, auto_pad == "SAME_LOWER")
    if auto_pad == "VALID" or pads is None:
        return [0] * (2 * len(kernel))
    if len(pads) != 2 * len(kernel):
        raise Unsupported(f"{len(pads)} pads for windows of {len(kernel)} dimensions")
    return list(pads)


def innermost_first(pads: list[Any]) -> list[Any]:
    """Pads, all beginnings before all ends, as ``F.pad`` takes them: a pair for each dimension, the last one first."""
    half = len(pads) // 2
    return [pads[at + side] for at in reversed(range(half)) for side in (0, half)]


def symmetric(
    g: Emitter, input: Value, pads: list[Any], number: float = 0.0
) -> tuple[Value, list[Any]]:
    """The input and pads that are equal at both sides."""
    half = len(pads) // 2
    if pads[:half] == pads[half:] and min(pads, default=0) >= 0:
        return input, pads[:half]
    return g.call(F.pad, input, innermost_first(pads), "constant", number), [0] * half


@reads("Conv")
def conv(
    g: Emitter,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value:
    rank = input.rank - 2
    function = _CONVOLUTIONS.get(rank)
    if function is None:
        raise Unsupported(f"a convolution of {rank} dimensions")
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    kernel = kernel_shape or list(weight.shape[2:])
    pads = around(g, input, kernel, strides, dilations, pads, auto_pad)
    input, sides = symmetric(g, input, pads)
    return g.call(function, input, weight, bias, strides, sides, dilations, group)


@reads("ConvTranspose")
def conv_transpose(
    g: Emitter,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value:
    rank = input.rank - 2
    function = _TRANSPOSED.get(rank)
    if function is None:
        raise Unsupported(f"a convolution of {rank} dimensions")
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    extra = list(output_padding or [0] * rank)
    kernel = kernel_shape or list(weight.shape[2:])
    reach = [(own - 1) * dilation + 1 for own, dilation in zip(kernel, dilations, strict=True)]
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        pads = [0] * (2 * rank)
        for at in range(rank):
            size = g.size(input, 2 + at)
            if isinstance(size, Size):
                raise Unsupported("padding that depends on a size")
            wanted = output_shape[-rank:][at] if output_shape is not None else size * strides[at]
            total = strides[at] * (size - 1) + extra[at] + reach[at] - wanted
            if total < 0:
                extra[at], total = extra[at] - total, 0
            small, large = total // 2, total - total // 2
            first = small if auto_pad == "SAME_UPPER" else large
            pads[at], pads[at + rank] = first, total - first
    pads = list(pads or [0] * (2 * rank))
    begins, ends = pads[:rank], pads[rank:]
    sides = [min(pair) for pair in zip(begins, ends, strict=True)]
    # More output at an end is padding of the output; less is cut off.
    cut_begin = [own - side for own, side in zip(begins, sides, strict=True)]
    cut_end = [own - side for own, side in zip(ends, sides, strict=True)]
    for at in range(rank):
        if extra[at] and extra[at] >= max(strides[at], dilations[at]):
            # torch has no such padding: elements of the bias, or zeros, at the end.
            cut_end[at] -= extra[at]
            extra[at] = 0
    if any(own < 0 for own in cut_end) and bias is not None:
        bias_later, bias = bias, None
    else:
        bias_later = None
    result = g.call(function, input, weight, bias, strides, sides, extra, group, dilations)
    if any(cut_begin) or any(cut_end):
        cut = [-own for own in (*cut_begin, *cut_end)]
        result = g.call(F.pad, result, innermost_first(cut))
    if bias_later is not None:
        result = g.call(torch.add, result, g.call(torch.reshape, bias_later, [-1] + [1] * rank))
    return result


@reads("Col2Im", since=18)
def col2im(
    g: Emitter,
    input: Value,
    image_shape: Value,
    block_shape: Value,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value:
    rank = block_shape.numel or 0
    pads = pads or [0] * (2 * rank)
    return g.call(
        windows.col2im, input, g.ints(image_shape), g.ints(block_shape), dilations or [1] * rank, pads,
        strides or [1] * rank,
    )  # fmt: skip


@reads("DeformConv", since=19)
def deform_conv(
    g: Emitter,
    input: Value,
    weight: Value,
    offset: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value:
    rank = input.rank - 2
    if rank != 2:
        raise Unsupported(f"a deformed convolution of {rank} dimensions")
    return g.call(
        windows.deform_conv, input, weight, offset, bias, mask, strides or [1, 1], pads or [0] * 4,
        dilations or [1, 1], group, offset_group,
    )  # fmt: skip
