"""Pools."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from corsac.onnx import functions
from corsac.onnx._emitter import Emitter
from corsac.onnx._registry import reads
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Size, Value
from corsac.onnx.readers.convolutions import around, innermost_first, symmetric
from corsac.onnx.readers.elementwise import like

_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_MAX_WITH_PLACES = {
    1: torch.ops.aten.max_pool1d_with_indices, 2: torch.ops.aten.max_pool2d_with_indices.default,
    3: torch.ops.aten.max_pool3d_with_indices.default,
}  # fmt: skip
_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def _windows(
    g: Emitter,
    input: Value,
    kernel: list[int],
    strides: Any,
    dilations: Any,
    pads: Any,
    auto_pad: str,
    ceil: int,
) -> tuple[list[int], list[int], list[Any], list[int]]:
    """Strides, dilations, pads and the elements that windows reach beyond the pads, for ``ceil_mode``."""
    rank = len(kernel)
    if input.rank != rank + 2 or rank not in _MAX:
        raise Unsupported(f"windows of {rank} dimensions for a tensor of rank {input.rank}")
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pads = around(g, input, kernel, strides, dilations, pads, auto_pad)
    beyond = [0] * rank
    if ceil and auto_pad in ("NOTSET", "VALID"):
        for at in range(rank):
            size = g.size(input, 2 + at)
            if isinstance(size, Size):
                if strides[at] != 1:
                    raise Unsupported("windows whose number depends on a size, rounded up")
                continue
            reach = (kernel[at] - 1) * dilations[at] + 1
            padded = size + pads[at] + pads[at + rank]
            count = -(-(padded - reach) // strides[at]) + 1
            # The last window begins in the input or the padding before it.
            if (count - 1) * strides[at] >= size + pads[at]:
                count -= 1
            beyond[at] = max((count - 1) * strides[at] + reach - padded, 0)
    return strides, dilations, pads, beyond


@reads("MaxPool")
def max_pool(
    g: Emitter,
    input: Value,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
) -> Any:
    rank = len(kernel_shape)
    strides, dilations, around_, beyond = _windows(
        g, input, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    ends = [own + more for own, more in zip(around_[rank:], beyond, strict=True)]
    around_ = around_[:rank] + ends
    dtype, shape = input.dtype, g.shape(input)
    if dtype in (torch.uint8, torch.int8) and len(g.outputs) == 1:
        input = like(g, input, torch.float32)
    fits = all(own * 2 <= window for own, window in zip(around_, kernel_shape * 2, strict=True))
    lowest = -math.inf if input.dtype.is_floating_point else torch.iinfo(input.dtype).min
    if fits:
        input, sides = symmetric(g, input, around_, lowest)
    else:
        flat = innermost_first(around_)
        input, sides = g.call(F.pad, input, flat, "constant", lowest), [0] * rank
    if len(g.outputs) > 1 and g.outputs[1]:
        if sides == [0] * rank and any(around_):
            raise Unsupported("places of the largest elements with padding of this kind")
        return _with_places(g, input, kernel_shape, strides, sides, dilations, shape, storage_order)
    result = g.call(_MAX[rank], input, kernel_shape, strides, sides, dilations)
    return like(g, result, dtype)


def _with_places(
    g: Emitter,
    input: Value,
    kernel: Any,
    strides: Any,
    sides: Any,
    dilations: Any,
    shape: list[Any],
    order: int,
) -> Any:
    rank = len(kernel)
    values, places = g.call(
        functions.max_pool_with_places, input, kernel, strides, sides, dilations, rank
    )
    inner = math.prod(shape[2:])
    # ONNX counts from the beginning of the whole tensor, torch in each channel.
    if order and rank == 2:
        row = g.call(torch.div, places, shape[3], rounding_mode="floor")
        column = g.call(torch.remainder, places, shape[3])
        places = g.call(torch.add, g.call(torch.mul, column, shape[2]), row)
    count = math.prod(shape[:2])
    channels = g.call(torch.reshape, g.call(torch.arange, count), [*shape[:2], *[1] * rank])
    return values, g.call(torch.add, places, g.call(torch.mul, channels, inner))


@reads("AveragePool")
def average_pool(
    g: Emitter,
    input: Value,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value:
    rank = len(kernel_shape)
    strides, dilations, around_, beyond = _windows(
        g, input, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    begins, ends = around_[:rank], around_[rank:]
    plain = dilations == [1] * rank and begins == ends and not any(beyond)
    if plain and all(own * 2 <= window for own, window in zip(begins, kernel_shape, strict=True)):
        return g.call(
            _AVERAGE[rank], input, kernel_shape, strides, begins, False, bool(count_include_pad)
        )
    # Sums of windows, divided by the number of elements in them that count.
    ones = g.call(torch.ones, [1, 1, *g.shape(input)[2:]], dtype=input.dtype)
    flat = innermost_first(around_)
    input = g.call(F.pad, input, flat)
    ones = g.call(F.pad, ones, flat, "constant", float(bool(count_include_pad)))
    if any(beyond):
        more = innermost_first([*[0] * rank, *beyond])
        input, ones = g.call(F.pad, input, more), g.call(F.pad, ones, more)
    sums = g.call(functions.window_sums, input, kernel_shape, strides, dilations)
    return g.call(
        torch.div, sums, g.call(functions.window_sums, ones, kernel_shape, strides, dilations)
    )


@reads("LpPool", since=2)
def lp_pool(
    g: Emitter,
    input: Value,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    p: int = 2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value:
    rank = len(kernel_shape)
    strides, dilations, around_, beyond = _windows(
        g, input, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    ends = [own + more for own, more in zip(around_[rank:], beyond, strict=True)]
    flat = innermost_first([*around_[:rank], *ends])
    powers = g.call(F.pad, g.call(torch.pow, g.call(torch.abs, input), p), flat)
    sums = g.call(functions.window_sums, powers, kernel_shape, strides, dilations)
    return g.call(torch.pow, sums, 1 / p)


@reads("MaxUnpool", since=9)
def max_unpool(
    g: Emitter,
    input: Value,
    places: Value,
    output_shape: Value | None = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Value:
    rank = len(kernel_shape)
    strides, pads = strides or [1] * rank, pads or [0] * (2 * rank)
    own = g.shape(input)
    usual = own[:2] + [
        (size - 1) * strides[at] - pads[at] - pads[at + rank] + kernel_shape[at]
        for at, size in enumerate(own[2:])
    ]
    if output_shape is None:
        return g.call(functions.max_unpool, input, places, usual)
    return g.call(functions.max_unpool_to, input, places, usual, g.ints(output_shape))
