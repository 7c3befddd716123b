"""Elements at places that are tensors, and places of elements."""

from __future__ import annotations

from dataclasses import replace
from operator import getitem
from typing import Any

import torch

from corsac.onnx import functions
from corsac.onnx._emitter import Emitter
from corsac.onnx._registry import reads
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Size, Value
from corsac.onnx.readers.elementwise import like
from corsac.onnx.readers.quantisation import dequantised


def _places(g: Emitter, indices: Value, input: Value, axis: int) -> Value:
    """Indices that are not negative, as int64 unless torch takes them."""
    if indices.constant is not None:
        found = indices.constant.to(torch.int64)
        if found.numel() and int(found.min()) < 0:
            size = g.size(input, axis)
            if isinstance(size, Size):
                wide = like(g, indices, torch.int64)
                return g.call(torch.remainder, wide, size)
            found = torch.where(found < 0, found + size, found)
        return g.literal(found)
    return indices if indices.dtype in (torch.int32, torch.int64) else like(g, indices, torch.int64)


@reads("Gather")
def gather(g: Emitter, input: Value, indices: Value, *, axis: int = 0) -> Value:
    axis %= max(input.rank, 1)
    number = indices.number
    if number is not None and indices.rank == 0:
        return g.call(torch.select, input, axis, int(number))
    places = _places(g, indices, input, axis)
    levels = input.facts.get("levels")
    if levels is not None and axis == 0 and levels.axis is None:
        # Of the rows that are looked up only.
        rows = g.call(torch.ops.aten.index.Tensor, levels.integers, [places])
        return dequantised(g, replace(levels, integers=rows))
    is_table = input.constant is not None or "levels" in input.facts
    if axis == 0 and input.rank == 2 and input.dtype.is_floating_point and is_table:
        return g.call(torch.nn.functional.embedding, places, input)
    if places.constant is not None and places.rank == 1:
        return g.call(torch.index_select, input, axis, places)
    return g.call(torch.ops.aten.index.Tensor, input, [*[None] * axis, places])


@reads("GatherElements", since=11)
def gather_elements(g: Emitter, input: Value, indices: Value, *, axis: int = 0) -> Value:
    return g.call(torch.gather, input, axis, _from_start(g, indices, input, axis))


def _from_start(g: Emitter, indices: Value, input: Value, axis: int) -> Value:
    """Indices as int64, counted from the start."""
    places = like(g, indices, torch.int64)
    if places.constant is not None and (
        not places.constant.numel() or int(places.constant.min()) >= 0
    ):
        return places
    return g.call(torch.remainder, places, g.size(input, axis))


@reads("GatherND", since=11)
def gather_nd(g: Emitter, input: Value, indices: Value, *, batch_dims: int = 0) -> Value:
    return g.call(functions.gather_nd, input, indices, batch_dims)


@reads("Scatter", "ScatterElements", since=9)
def scatter_elements(
    g: Emitter,
    input: Value,
    indices: Value,
    updates: Value,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Value:
    places = _from_start(g, indices, input, axis)
    if reduction == "none":
        return g.call(torch.scatter, input, axis, places, updates)
    name = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}.get(reduction)
    if name is None:
        raise Unsupported(f"the reduction {reduction!r}")
    return g.call(torch.scatter_reduce, input, axis, places, updates, name)


@reads("ScatterND", since=11)
def scatter_nd(
    g: Emitter, input: Value, indices: Value, updates: Value, *, reduction: str = "none"
) -> Value:
    if reduction not in ("none", "add", "mul", "max", "min"):
        raise Unsupported(f"the reduction {reduction!r}")
    width = indices.shape[-1]
    if width is None:
        raise Unsupported("places whose number of indices is not fixed")
    if reduction in ("none", "add"):
        columns = [g.call(torch.select, indices, -1, at) for at in range(width)]
        return g.call(torch.index_put, input, columns, updates, reduction == "add")
    samples = [torch.empty_like(own) for own in input.samples]
    return g.typed(
        "call_function", functions.scatter_nd, (input, indices, updates, reduction), {}, samples
    )


@reads("TensorScatter", since=24)
def tensor_scatter(
    g: Emitter,
    cache: Value,
    update: Value,
    places: Value | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Value:
    return g.call(functions.tensor_scatter, cache, update, places, axis, mode == "circular")


@reads("NonZero", since=9)
def nonzero(g: Emitter, input: Value) -> Value:
    return g.run(functions.nonzero, input, dtype=torch.int64, rank=2)


@reads("Compress", since=9)
def compress(g: Emitter, input: Value, condition: Value, *, axis: int | None = None) -> Value:
    rank = 1 if axis is None else input.rank
    return g.run(functions.compress, input, condition, axis, dtype=input.dtype, rank=rank)


@reads("ReverseSequence", since=10)
def reverse_sequence(
    g: Emitter, input: Value, lengths: Value, *, batch_axis: int = 1, time_axis: int = 0
) -> Value:
    return g.call(functions.reverse_sequence, input, lengths, batch_axis, time_axis)


@reads("Unique", since=11)
def unique(g: Emitter, input: Value, *, axis: int | None = None, sorted: int = 1) -> Any:
    found = g.graph.call_function(functions.unique, (g.node(input), axis, bool(sorted)))
    results = []
    for at, name in enumerate(g.outputs):
        declared = g.declared(name) if name else None
        if name and declared is None:
            raise Unsupported("a result whose type depends on the elements of a tensor")
        node = g.graph.call_function(getitem, (found, at)) if name else None
        results.append(None if node is None else Value(name, declared, node))
    return tuple(results)


@reads("TopK", since=10)
def top_k(
    g: Emitter, input: Value, k: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> Any:
    return g.call(functions.top_k, input, g.int(k), axis, bool(largest))


@reads("CumSum", since=11)
def cumsum(g: Emitter, input: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
    return _cumulative(g, input, axis, torch.cumsum, exclusive, reverse)


@reads("CumProd", since=26)
def cumprod(
    g: Emitter, input: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0
) -> Value:
    return _cumulative(g, input, axis, torch.cumprod, exclusive, reverse)


def _cumulative(
    g: Emitter, input: Value, axis: Value, function: Any, exclusive: int, reverse: int
) -> Value:
    along = g.int(axis)
    result = g.call(torch.flip, input, [along]) if reverse else input
    if exclusive:
        # The sums up to the elements before.
        if not isinstance(along, int):
            return g.run(
                functions.cumulative_before, function.__name__, result, along, bool(reverse), dtype=input.dtype,
                rank=input.rank,
            )  # fmt: skip
        first = g.call(torch.ops.aten.slice.Tensor, result, along, 0, 1, 1)
        rest = g.call(torch.ops.aten.slice.Tensor, result, along, 0, -1, 1)
        neutral = torch.zeros_like if function is torch.cumsum else torch.ones_like
        result = g.call(torch.cat, [g.call(neutral, first), rest], along)
    result = g.call(function, result, along, dtype=input.dtype)
    return g.call(torch.flip, result, [along]) if reverse else result
