"""Shapes, and operators that only move elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from corsac.onnx import functions
from corsac.onnx._emitter import Emitter
from corsac.onnx._registry import reads, reads_sizes
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Size, Value


@reads("Shape")
def shape(g: Emitter, input: Value, *, start: int = 0, end: int | None = None) -> Value:
    return g.sizes(g.shape(input)[start:end])


@reads("Size")
def size(g: Emitter, input: Value) -> Value:
    return g.sizes(math.prod(g.shape(input)))


# -- views -----------------------------------------------------------------------------------------


@reads("Reshape", since=5)
def reshape(g: Emitter, input: Value, shape: Value, *, allowzero: int = 0) -> Value:
    known = g.known_ints(shape)
    if known is None:
        return g.run(
            functions.reshape,
            input,
            g.ints(shape),
            bool(allowzero),
            dtype=input.dtype,
            rank=shape.numel,
        )
    if not allowzero:
        known = [
            g.size(input, at) if isinstance(own, int) and own == 0 else own
            for at, own in enumerate(known)
        ]
    if input.shape == tuple(known) and input.constant is None:
        return input
    return g.call(torch.reshape, input, _with_rest(input, known))


def _with_rest(input: Value, sizes: list[Any]) -> list[Any]:
    """The sizes, with the only one that is not fixed left to be computed."""
    free = [at for at, own in enumerate(sizes) if isinstance(own, Size)]
    fixed = [own for own in sizes if not isinstance(own, Size)]
    if len(free) == 1 and -1 not in fixed and 0 not in fixed:
        return [-1 if at == free[0] else own for at, own in enumerate(sizes)]
    return sizes


@reads("Flatten")
def flatten(g: Emitter, input: Value, *, axis: int = 1) -> Value:
    if axis < 0:
        axis += input.rank
    if not input.rank:
        return g.call(torch.reshape, input, [1, 1])
    if axis == 1 and input.rank >= 2:
        return input if input.rank == 2 else g.call(torch.flatten, input, 1)
    sizes = g.shape(input)
    return g.call(torch.reshape, input, [math.prod(sizes[:axis]), math.prod(sizes[axis:])])


@reads("Squeeze", since=13)
def squeeze(g: Emitter, input: Value, axes: Value | None = None) -> Value:
    if axes is None:
        fixed = [at for at, own in enumerate(input.shape) if own == 1]
        return g.call(torch.squeeze, input, fixed)
    along = g.ints(axes)
    if axes.elements is None:
        return g.run(torch.squeeze, input, along, dtype=input.dtype, rank=input.rank - len(along))
    return g.call(torch.squeeze, input, along)


@reads("Squeeze", since=1)
def squeeze_1(g: Emitter, input: Value, *, axes: list[int] | None = None) -> Value:
    if axes is None:
        return squeeze(g, input)
    return g.call(torch.squeeze, input, axes)


@reads("Unsqueeze", since=13)
def unsqueeze(g: Emitter, input: Value, axes: Value) -> Value:
    known = g.fixed(axes, "axes") if g.known_ints(axes) is not None else None
    if known is None:
        along = g.ints(axes)
        return g.run(
            functions.unsqueeze, input, along, dtype=input.dtype, rank=input.rank + len(along)
        )
    return unsqueeze_1(g, input, axes=known)


@reads("Unsqueeze", since=1)
def unsqueeze_1(g: Emitter, input: Value, *, axes: list[int]) -> Value:
    rank = input.rank + len(axes)
    if len({axis % rank for axis in axes}) != len(axes):
        raise Unsupported(f"axes {list(axes)} for a tensor of rank {input.rank}")
    for axis in sorted(axis % rank for axis in axes):
        input = g.call(torch.unsqueeze, input, axis)
    return input


@reads("Transpose")
def transpose(g: Emitter, input: Value, *, perm: list[int] | None = None) -> Value:
    order = list(range(input.rank))[::-1] if perm is None else perm
    if order == list(range(input.rank)):
        return input
    result = g.call(torch.permute, input, order)
    if order == [1, 0]:
        result.facts["transposed"] = input
    return result


@reads("Expand", since=8)
def expand(g: Emitter, input: Value, shape: Value) -> Value:
    known = g.known_ints(shape)
    if known is None:
        sizes = g.ints(shape)
        return g.run(
            functions.expand, input, sizes, dtype=input.dtype, rank=max(input.rank, len(sizes))
        )
    own = g.shape(input)
    rank = max(len(own), len(known))
    own = [1] * (rank - len(own)) + own
    known = [1] * (rank - len(known)) + known
    sizes = [_broadcast(a, b) for a, b in zip(own, known, strict=True)]
    return input if input.shape == tuple(sizes) else g.call(torch.Tensor.expand, input, sizes)


def _broadcast(own: Any, given: Any) -> Any:
    if isinstance(given, int) and given == 1:
        return own
    return given if isinstance(own, int) and own == 1 else own


@reads("Tile", since=6)
def tile(g: Emitter, input: Value, repeats: Value) -> Value:
    if repeats.elements is None:
        return g.run(functions.tile, input, g.ints(repeats), dtype=input.dtype, rank=input.rank)
    return g.method("repeat", input, g.ints(repeats))


# -- parts and joins -------------------------------------------------------------------------------


@reads("Concat", since=4)
def concat(g: Emitter, *inputs: Value, axis: int) -> Value:
    return g.call(torch.cat, list(inputs), axis) if len(inputs) > 1 else inputs[0]


@reads("Split", since=13)
def split(
    g: Emitter, input: Value, sizes: Value | None = None, *, axis: int = 0, num_outputs: int = 0
) -> Any:
    if sizes is not None:
        return _split(g, input, g.ints(sizes), axis)
    count = num_outputs or len(g.outputs)
    whole = g.size(input, axis)
    if isinstance(whole, Size):
        return _split(g, input, [whole // count] * count, axis)
    each = -(-whole // count)
    return _split(g, input, [min(each, max(whole - at * each, 0)) for at in range(count)], axis)


@reads("Split", since=2)
def split_2(g: Emitter, input: Value, *, axis: int = 0, split: list[int] | None = None) -> Any:
    if split is None:
        whole = g.size(input, axis)
        split = [whole // len(g.outputs)] * len(g.outputs)
    return _split(g, input, split, axis)


def _split(g: Emitter, input: Value, sizes: list[Any], axis: int) -> Any:
    return g.call(torch.split, input, sizes, axis)


@reads("Slice", since=10)
def slice_(
    g: Emitter,
    input: Value,
    starts: Value,
    ends: Value,
    axes: Value | None = None,
    steps: Value | None = None,
) -> Value:
    known = [None if own is None else g.known_ints(own) for own in (starts, ends, axes, steps)]
    given = (starts, ends, axes, steps)
    if any(own is None and value is not None for own, value in zip(known, given, strict=True)):
        values = [None if own is None else g.ints(own) for own in given]
        return g.run(functions.slice_, input, *values, dtype=input.dtype, rank=input.rank)
    if axes is not None:
        g.fixed(axes, "axes")
    if steps is not None:
        g.fixed(steps, "steps")
    return _sliced(g, input, *known)


@reads("Slice", since=1)
def slice_1(
    g: Emitter, input: Value, *, starts: list[int], ends: list[int], axes: list[int] | None = None
) -> Value:
    return _sliced(g, input, starts, ends, axes, None)


def _sliced(
    g: Emitter, input: Value, starts: Any, ends: Any, axes: Any = None, steps: Any = None
) -> Value:
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step > 0:
            if isinstance(end, int) and end >= 2**31 - 1:
                end = 2**63 - 1
            if isinstance(start, int) and start == 0 and end == 2**63 - 1 and step == 1:
                continue
            input = g.call(torch.ops.aten.slice.Tensor, input, axis, start, end, step)
        elif (
            isinstance(start, int)
            and isinstance(end, int)
            and start == -1
            and step == -1
            and end < -(2**30)
        ):
            input = g.call(torch.flip, input, [axis])
        elif isinstance(start, int) and isinstance(end, int) and input.shape[axis] is not None:
            places = list(range(input.shape[axis]))[
                slice(start, None if end < -input.shape[axis] else end, step)
            ]
            input = g.call(torch.index_select, input, axis, g.literal(places, torch.int64))
        else:
            input = g.call(functions.slice_, input, [start], [end], [axis], [step])
    return input


@reads("Pad", since=11)
def pad(
    g: Emitter,
    input: Value,
    pads: Value,
    value: Value | None = None,
    axes: Value | None = None,
    *,
    mode: str = "constant",
) -> Value:
    known = g.known_ints(pads)
    along = None if axes is None else g.known_ints(axes)
    number = 0 if value is None else value.number
    if known is None or (axes is not None and along is None) or number is None:
        return g.run(
            functions.pad, input, g.ints(pads), mode, value if number is None else number,
            None if axes is None else g.ints(axes), dtype=input.dtype, rank=input.rank,
        )  # fmt: skip
    return padded(g, input, known, mode, number, along)


@reads("Pad", since=2)
def pad_2(
    g: Emitter, input: Value, *, pads: list[int], mode: str = "constant", value: float = 0.0
) -> Value:
    return padded(g, input, pads, mode, value, None)


def padded(
    g: Emitter, input: Value, pads: list[Any], mode: str, number: Any, axes: list[int] | None
) -> Value:
    """The input with elements added around it."""
    axes = list(range(input.rank)) if axes is None else [axis % input.rank for axis in axes]
    if len(pads) != 2 * len(axes):
        raise Unsupported(f"{len(pads)} pads for {len(axes)} dimensions")
    sides = {axis: (pads[at], pads[at + len(axes)]) for at, axis in enumerate(axes)}
    if mode == "constant":
        first = min((axis for axis, own in sides.items() if own != (0, 0)), default=None)
        if first is None:
            return input
        flat = [
            own for axis in reversed(range(first, input.rank)) for own in sides.get(axis, (0, 0))
        ]
        number = bool(number) if input.dtype == torch.bool else number
        return g.call(torch.nn.functional.pad, input, flat, "constant", number)
    name = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}.get(mode)
    last = [axis for axis, own in sides.items() if own != (0, 0)]
    flat = [
        own
        for axis in reversed(range(min(last, default=0), input.rank))
        for own in sides.get(axis, (0, 0))
    ]
    fits = len(flat) // 2 in (1, 2, 3) and input.rank - len(flat) // 2 in (1, 2)
    small = all(
        isinstance(own, int) and (input.shape[axis] is None or 0 <= own < input.shape[axis])
        for axis in last
        for own in sides[axis]
    )
    if name is not None and fits and small and input.dtype.is_floating_point and mode != "wrap":
        return g.call(torch.nn.functional.pad, input, flat, name)
    return g.call(functions.pad, input, pads, mode, number, axes)


@reads("DepthToSpace", since=1)
def depth_to_space(g: Emitter, input: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    if mode == "CRD":
        return g.call(torch.nn.functional.pixel_shuffle, input, blocksize)
    batch, channels, height, width = g.shape(input)
    inner = channels // (blocksize * blocksize)
    apart = g.call(torch.reshape, input, [batch, blocksize, blocksize, inner, height, width])
    moved = g.call(torch.permute, apart, [0, 3, 4, 1, 5, 2])
    return g.call(torch.reshape, moved, [batch, inner, height * blocksize, width * blocksize])


@reads("SpaceToDepth", since=1)
def space_to_depth(g: Emitter, input: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    batch, channels, height, width = g.shape(input)
    rows, columns = height // blocksize, width // blocksize
    apart = g.call(torch.reshape, input, [batch, channels, rows, blocksize, columns, blocksize])
    order = [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4]
    moved = g.call(torch.permute, apart, order)
    return g.call(torch.reshape, moved, [batch, channels * blocksize * blocksize, rows, columns])


@reads("Trilu", since=14)
def trilu(g: Emitter, input: Value, k: Value | None = None, *, upper: int = 1) -> Value:
    diagonal = 0 if k is None else g.int(k)
    return g.call(torch.triu if upper else torch.tril, input, diagonal)


# -- on sizes --------------------------------------------------------------------------------------


@reads_sizes("Reshape")
def reshape_sizes(g: Emitter, input: Any, shape: Any, allowzero: int = 0) -> Any:
    if _has_sizes(shape):
        return None
    sizes = [
        input.shape[at] if own == 0 and not allowzero else int(own) for at, own in enumerate(shape)
    ]
    return np.reshape(input, sizes)


def _has_sizes(array: Any) -> bool:
    return any(isinstance(own, Size) for own in array.flat)


@reads_sizes("Flatten")
def flatten_sizes(g: Emitter, input: Any, axis: int = 1) -> Any:
    return input.reshape(1, -1) if axis == 0 else None


@reads_sizes("Squeeze")
def squeeze_sizes(g: Emitter, input: Any, axes: Any = None) -> Any:
    return (
        input.reshape(()) if input.size == 1 and (axes is None or len(axes) == input.ndim) else None
    )


@reads_sizes("Unsqueeze")
def unsqueeze_sizes(g: Emitter, input: Any, axes: Any) -> Any:
    return np.expand_dims(input, tuple(int(own) for own in np.asarray(axes).reshape(-1)))


@reads_sizes("Concat")
def concat_sizes(g: Emitter, *inputs: Any, axis: int) -> Any:
    return np.concatenate(inputs, axis)


@reads_sizes("Gather")
def gather_sizes(g: Emitter, input: Any, indices: Any, axis: int = 0) -> Any:
    if _has_sizes(indices):
        return None
    return np.take(input, np.asarray(indices, dtype=np.int64), axis)


@reads_sizes("Slice")
def slice_sizes(
    g: Emitter, input: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None
) -> Any:
    if input.ndim != 1 or _has_sizes(starts) or _has_sizes(ends):
        return None
    return input[slice(int(starts[0]), int(ends[0]), 1 if steps is None else int(steps[0]))]


@reads_sizes("Split")
def split_sizes(
    g: Emitter, input: Any, sizes: Any = None, axis: int = 0, num_outputs: int = 0
) -> Any:
    if sizes is None or _has_sizes(sizes):
        return None
    return tuple(np.split(input, np.cumsum([int(own) for own in sizes])[:-1]))


@reads_sizes("ReduceProd")
def product_of_sizes(
    g: Emitter, input: Any, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Any:
    if input.ndim != 1 or (noop_with_empty_axes if axes is None else len(axes) != 1):
        return None
    found = math.prod(input.reshape(-1).tolist())
    return np.array([found] if keepdims else found, dtype=object)
