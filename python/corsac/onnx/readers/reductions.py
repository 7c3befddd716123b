"""Sums, means, extrema and their places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from corsac.onnx import functions
from corsac.onnx._emitter import Emitter
from corsac.onnx._registry import reads
from corsac.onnx._values import Size, Value, is_whole

#: Reductions that are one function of torch for floating-point numbers.
_DIRECT = {
    "ReduceSum": torch.sum,
    "ReduceMean": torch.mean,
    "ReduceMax": torch.amax,
    "ReduceMin": torch.amin,
    "ReduceLogSumExp": torch.logsumexp,
}


def _reduced(
    g: Emitter, kind: str, input: Value, axes: list[Any] | None, keepdims: int, of_none: int
) -> Value:
    if not axes and of_none and kind in functions.KEEPING:
        return input
    known = axes is not None and not any(isinstance(own, Size) for own in axes)
    if axes and not known:
        rank = input.rank if keepdims else input.rank - len(axes)
        return g.run(
            functions.reduce,
            kind,
            input,
            axes,
            bool(keepdims),
            bool(of_none),
            dtype=input.dtype,
            rank=rank,
        )
    if input.rank and (axes or not of_none) and not is_whole(input.dtype) and 0 not in input.shape:
        along = axes or list(range(input.rank))
        if kind in _DIRECT:
            return g.call(_DIRECT[kind], input, along, bool(keepdims))
        inner = {"ReduceL1": torch.abs, "ReduceL2": torch.square, "ReduceSumSquare": torch.square}
        if kind in inner or kind == "ReduceLogSum":
            terms = g.call(inner[kind], input) if kind in inner else input
            total = g.call(torch.sum, terms, along, bool(keepdims))
            outer = {"ReduceL2": torch.sqrt, "ReduceLogSum": torch.log}.get(kind)
            return total if outer is None else g.call(outer, total)
    return g.call(functions.reduce, kind, input, axes or None, bool(keepdims), bool(of_none))


def _by_input(kind: str) -> Callable[..., Any]:
    def read(
        g: Emitter,
        input: Value,
        axes: Value | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Value:
        along = None if axes is None else g.ints(axes)
        return _reduced(g, kind, input, along, keepdims, noop_with_empty_axes)

    return read


def _by_attribute(kind: str) -> Callable[..., Any]:
    def read(
        g: Emitter, input: Value, *, axes: list[int] | None = None, keepdims: int = 1
    ) -> Value:
        return _reduced(g, kind, input, axes, keepdims, 0)

    return read


for _kind in (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
):  # fmt: skip
    reads(_kind, since=1)(_by_attribute(_kind))
    reads(_kind, since=13 if _kind == "ReduceSum" else 18)(_by_input(_kind))


def _place(function: Callable[..., Any]) -> Callable[..., Any]:
    def read(
        g: Emitter, input: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Value:
        if not select_last_index:
            return g.call(function, input, axis, bool(keepdims))
        # The first one from the end.
        found = g.call(function, g.call(torch.flip, input, [axis]), axis, bool(keepdims))
        return g.call(torch.rsub, found, g.size(input, axis) - 1)

    return read


reads("ArgMax")(_place(torch.argmax))
reads("ArgMin")(_place(torch.argmin))


@reads("LpNormalization")
def lp_normalization(g: Emitter, input: Value, *, axis: int = -1, p: int = 2) -> Value:
    norm = g.call(torch.linalg.vector_norm, input, p, axis, True)
    zero = g.call(torch.eq, norm, 0)
    return g.call(torch.div, input, g.call(torch.where, zero, g.call(torch.ones_like, norm), norm))


@reads("GlobalAveragePool")
def global_average_pool(g: Emitter, input: Value) -> Value:
    return g.call(torch.mean, input, list(range(2, input.rank)), True)


@reads("GlobalMaxPool")
def global_max_pool(g: Emitter, input: Value) -> Value:
    return g.call(torch.amax, input, list(range(2, input.rank)), True)


@reads("GlobalLpPool", since=2)
def global_lp_pool(g: Emitter, input: Value, *, p: int = 2) -> Value:
    return g.call(torch.linalg.vector_norm, input, p, list(range(2, input.rank)), True)


@reads("Det", since=11)
def det(g: Emitter, input: Value) -> Value:
    return g.call(torch.linalg.det, input)


@reads("MeanVarianceNormalization", since=9)
def mean_variance_normalization(
    g: Emitter, input: Value, *, axes: list[int] | None = None
) -> Value:
    along = [0, 2, 3] if axes is None else axes
    apart = g.call(torch.sub, input, g.call(torch.mean, input, along, True))
    variance = g.call(torch.mean, g.call(torch.square, apart), along, True)
    return g.call(torch.div, apart, g.call(torch.add, g.call(torch.sqrt, variance), 1e-9))
