"""Joins tensors, and splits them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corsac.onnx._builder import Builder, Tensor, integer
from corsac.onnx._table import translates
from corsac.onnx._types import Unsupported, common_dtype, positive_dim


@translates("cat")
def cat(g: Builder, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors joined along a dimension."""
    if any(not isinstance(tensor, Tensor) for tensor in tensors):
        raise Unsupported("something other than tensors to join")
    # Torch lets empty vectors be joined with any tensor.
    given = [tensor for tensor in tensors if tensor.shape != (0,)] or [tensors[0]]
    dtype = common_dtype(*tensors)
    given = [g.cast(tensor, dtype) for tensor in given]
    if len(given) == 1:
        return given[0]
    axis = positive_dim(dim, given[0].rank)
    return g.op("Concat", *given, axis=axis, shape=g.out.shape)


@translates("stack")
def stack(g: Builder, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors joined along a new dimension."""
    axis = positive_dim(dim, tensors[0].rank + 1)
    dtype = common_dtype(*tensors)
    apart = [
        g.reshape(g.cast(x, dtype), (*x.shape[:axis], 1, *x.shape[axis:])) for x in tensors
    ]  # fmt: skip
    return apart[0] if len(apart) == 1 else g.op("Concat", *apart, axis=axis, shape=g.out.shape)


@translates("hstack")
def hstack(g: Builder, tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the second dimension."""
    tensors = [g.reshape(x, (1,)) if x.rank == 0 else x for x in tensors]
    return cat(g, tensors, 0 if tensors[0].rank == 1 else 1)


@translates("vstack", "row_stack")
def vstack(g: Builder, tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the first dimension."""
    return cat(g, [g.reshape(x, (1, *(x.shape or (1,)))) if x.rank < 2 else x for x in tensors], 0)


def _apart(g: Builder, input: Tensor, dim: int) -> tuple[Tensor, ...]:
    """Split along ``dim`` into the sizes that analysis found."""
    axis = positive_dim(dim, input.rank)
    sizes = [integer(item.shape[axis]) for item in g.out]
    if len(sizes) == 1:
        return (input,)
    outputs = [(item.dtype, item.shape) for item in g.out]
    return tuple(g.ops("Split", input, g.ints(sizes), axis=axis, outputs=outputs))


@translates("split", "split_with_sizes", "chunk", "tensor_split")
def split(g: Builder, input: Tensor, dim: int = 0, **sizes: Any) -> tuple[Tensor, ...]:
    """Parts of a tensor along a dimension."""
    return _apart(g, input, dim)


@translates("unbind")
def unbind(g: Builder, input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """All slices along a dimension, which is removed."""
    axis = positive_dim(dim, input.rank)
    count = len(g.out)
    one = (*input.shape[:axis], 1, *input.shape[axis + 1 :])
    if count == 1:
        return (g.reshape(input, g.out[0].shape),)
    pieces = g.ops(
        "Split", input, g.ints([1] * count), axis=axis, outputs=[(input.dtype, one)] * count
    )  # fmt: skip
    return tuple(g.reshape(piece, item.shape) for piece, item in zip(pieces, g.out, strict=True))


@translates("meshgrid")
def meshgrid(
    g: Builder, tensors: Sequence[Tensor], indexing: str | None = None
) -> tuple[Tensor, ...]:
    """Coordinate grids of vectors."""
    swapped = indexing == "xy" and len(tensors) > 1
    results = []
    for at, (tensor, out) in enumerate(zip(tensors, g.out, strict=True)):
        place = 1 - at if swapped and at < 2 else at
        shape = [1] * len(tensors)
        shape[place] = tensor.shape[0] if tensor.rank else 1
        results.append(g.expand(g.reshape(tensor, shape), out.shape))
    return tuple(results)
