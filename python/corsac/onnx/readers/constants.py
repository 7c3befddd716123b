"""Constants and new tensors."""

from __future__ import annotations

from typing import Any

import torch

from corsac.onnx import functions
from corsac.onnx._emitter import Emitter
from corsac.onnx._model_reader import FEW_BITS, dtype_of
from corsac.onnx._registry import reads
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Size, Value


@reads("Constant")
def constant(
    g: Emitter,
    *,
    value: Any = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    value_string: str | None = None,
    value_strings: list[str] | None = None,
    sparse_value: Any = None,
) -> Value:
    if value is not None:
        made = g.literal(g.reading.model.tensor(value))
        if value.data_type in FEW_BITS:
            made.facts["bits"] = FEW_BITS[value.data_type]
        return made
    for given, dtype in (
        (value_float, torch.float32), (value_floats, torch.float32),
        (value_int, torch.int64), (value_ints, torch.int64),
    ):  # fmt: skip
        if given is not None:
            return g.literal(given, dtype)
    raise Unsupported("a constant that is no tensor of numbers")


def filler(g: Emitter, value: Any) -> tuple[Any, torch.dtype]:
    """The number and type in an attribute with a tensor of one element; zero by default."""
    if value is None:
        return 0.0, torch.float32
    tensor = g.reading.model.tensor(value)
    if tensor.numel() != 1:
        raise Unsupported(f"a value of {tensor.numel()} elements, expected 1")
    return tensor.item(), tensor.dtype


@reads("ConstantOfShape", since=9)
def constant_of_shape(g: Emitter, shape: Value, *, value: Any = None) -> Value:
    number, dtype = filler(g, value)
    known = g.known_ints(shape)
    if known is None:
        sizes = g.ints(shape)
        return g.run(functions.full, sizes, number, dtype, dtype=dtype, rank=len(sizes))
    if any(not isinstance(own, Size) and own < 0 for own in known):
        raise Unsupported(f"a tensor of shape {known}")
    return g.call(torch.full, known, number, dtype=dtype)


@reads("Range", since=11)
def range_(g: Emitter, start: Value, limit: Value, delta: Value, *, stash_type: int = 1) -> Value:
    numbers = [own.number for own in (start, limit, delta)]
    if all(own is not None for own in numbers):
        return g.call(torch.arange, *numbers, dtype=start.dtype)
    known = [g.known_ints(own) for own in (start, limit, delta)]
    if any(own is None for own in known):
        return g.run(functions.range_, start, limit, delta, dtype=start.dtype, rank=1)
    return g.call(torch.arange, *(own[0] for own in known), dtype=start.dtype)


@reads("EyeLike", since=9)
def eye_like(g: Emitter, input: Value, *, dtype: int | None = None, k: int = 0) -> Value:
    made = input.dtype if dtype is None else dtype_of(dtype)
    ones = g.call(torch.ones_like, input, dtype=made)
    return g.call(torch.triu, g.call(torch.tril, ones, k), k)


@reads("OneHot", since=9)
def one_hot(g: Emitter, indices: Value, depth: Value, values: Value, *, axis: int = -1) -> Value:
    number = depth.number
    if number is None:
        number = g.int(depth) if depth.numel == 1 and not depth.dtype.is_floating_point else None
    if number is None or isinstance(number, Size):
        rank = indices.rank + 1
        return g.run(functions.one_hot, indices, depth, values, axis, dtype=values.dtype, rank=rank)
    return g.call(functions.one_hot, indices, int(number), values, axis)


@reads(
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
)
def random(g: Emitter, *inputs: Value, **attributes: Any) -> Value:
    raise Unsupported("it uses random numbers")
