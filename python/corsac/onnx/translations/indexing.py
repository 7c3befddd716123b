"""Indexing, slicing, gathering and scattering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from corsac.analysis import Dim
from corsac.onnx._builder import Builder, Tensor
from corsac.onnx._table import translates
from corsac.onnx._types import Unsupported, broadcast, positive_dim

#: An index beyond the end of any dimension.
END = 2**62


def index_tensor(g: Builder, input: Tensor, index: Any) -> Tensor:
    """``input[index]``."""
    items = list(index) if isinstance(index, tuple) else [index]
    items = [g.known(torch.tensor(i)) if isinstance(i, list) else i for i in items]
    consumed = sum(item is not None and item is not Ellipsis for item in items)
    if any(isinstance(item, (bool, float, str)) for item in items):
        raise Unsupported("an index that is neither a number, a slice nor a tensor")
    filler = [slice(None)] * (input.rank - consumed)
    if Ellipsis in [item for item in items if not isinstance(item, Tensor)]:
        at = next(n for n, item in enumerate(items) if item is Ellipsis)
        items[at : at + 1] = filler
    else:
        items += filler
    tensors: list[tuple[int, Tensor]] = []
    axis = 0
    for item in items:
        if item is None:
            input = g.reshape(input, (*input.shape[:axis], 1, *input.shape[axis:]))
            axis += 1
        elif isinstance(item, slice):
            input = _slice(g, input, axis, item)
            axis += 1
        elif isinstance(item, (int, Dim)):
            input = _select(g, input, axis, item)
        elif isinstance(item, Tensor):
            if item.dtype == torch.bool or item.dtype == torch.uint8:
                raise Unsupported("a result whose size depends on the elements")
            tensors.append((axis, item))
            axis += 1
        else:
            raise Unsupported(f"an index that is a {type(item).__name__}")
    return _gather(g, input, tensors) if tensors else input


def _slice(g: Builder, input: Tensor, axis: int, item: slice) -> Tensor:
    start = 0 if item.start is None else item.start
    end = END if item.stop is None else item.stop
    step = 1 if item.step is None else item.step
    if any(not isinstance(number, (int, Dim)) for number in (start, end, step)):
        raise Unsupported("a slice by tensors")
    if (start, end, step) == (0, END, 1):
        return input
    size = input.shape[axis]
    return g.slice(input, axis, start, end, step, length=sliced_length(size, start, end, step))


def sliced_length(size: Any, start: Any, end: Any, step: Any) -> Any:
    """The number of elements of a slice, where it can be determined."""
    if all(isinstance(number, int) for number in (size, start, end, step)):
        return len(range(*slice(start, end, step).indices(size)))
    if step == 1 and end is END and isinstance(start, int):
        return size - start if start >= 0 else -start
    if step == 1 and start == 0 and isinstance(end, int) and end < 0:
        return size + end
    if step == 1 and start == 0 and end == size:
        return size
    raise Unsupported(f"{start}:{end}:{step} of {size} elements, a number that is not known")


def _select(g: Builder, input: Tensor, axis: int, index: Any) -> Tensor:
    shape = [size for at, size in enumerate(input.shape) if at != axis]
    return g.op("Gather", input, g.scalar(index, torch.int64), axis=axis, shape=shape)


def _gather(g: Builder, input: Tensor, tensors: Sequence[tuple[int, Tensor]]) -> Tensor:
    """Index by tensors at the given dimensions."""
    if len(tensors) == 1:
        axis, index = tensors[0]
        shape = (*input.shape[:axis], *index.shape, *input.shape[axis + 1 :])
        return g.op("Gather", input, g.cast(index, torch.int64), axis=axis, shape=shape)
    axes = [axis for axis, _ in tensors]
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    rest = [at for at in range(input.rank) if at not in axes]
    first = g.permute(input, [*axes, *rest])
    common = broadcast(*(index.shape for _, index in tensors))
    places = [
        g.reshape(g.expand(g.cast(index, torch.int64), common), (*common, 1))
        for _, index in tensors
    ]
    place = g.op("Concat", *places, axis=-1, shape=(*common, len(places)))
    result = g.op("GatherND", first, place, shape=(*common, *(input.shape[at] for at in rest)))
    if not together or axes[0] == 0:
        return result
    # The new dimensions take the place of the indexed ones.
    n, before = len(common), axes[0]
    order = [*range(n, n + before), *range(n), *range(n + before, result.rank)]
    return g.permute(result, order)


@translates("index", "_unsafe_index")
def index(g: Builder, input: Tensor, indices: Sequence[Any]) -> Tensor:
    """The elements at index tensors, for some dimensions."""
    given = tuple(slice(None) if item is None else item for item in indices)
    return index_tensor(g, input, given)


@translates("select")
def select(g: Builder, input: Tensor, dim: int, index: Any) -> Tensor:
    """One index of a dimension, which is removed."""
    return _select(g, input, positive_dim(dim, input.rank), index)


@translates("slice", "slice_copy")
def slice_(
    g: Builder, input: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """A range of a dimension."""
    end = None if isinstance(end, int) and end >= 2**62 else end
    return _slice(g, input, positive_dim(dim, input.rank), slice(start, end, step))


@translates("narrow", "narrow_copy")
def narrow(g: Builder, input: Tensor, dim: int, start: Any, length: Any) -> Tensor:
    """``length`` elements of a dimension, from ``start``."""
    axis = positive_dim(dim, input.rank)
    if isinstance(start, int) and start < 0:
        start = start + input.shape[axis]
    return g.slice(input, axis, start, start + length, length=length)


@translates("index_select")
def index_select(g: Builder, input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The given indices of a dimension."""
    if input.rank == 0 or index.rank != 1:
        raise Unsupported("an index that is no vector")
    return _gather(g, input, [(positive_dim(dim, input.rank), index)])


@translates("gather")
def gather(
    g: Builder, input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False
) -> Tensor:
    """For each element of the index, the element of the input there along a dimension."""
    if input.rank == 0:
        raise Unsupported("a tensor without dimensions")
    axis = positive_dim(dim, input.rank)
    # Elements outside the index's extent are not read, and runtimes need them cut off.
    for at, (have, wanted) in enumerate(zip(input.shape, index.shape, strict=True)):
        if at != axis and have != wanted:
            input = g.slice(input, at, 0, wanted, length=wanted)
    return g.op("GatherElements", input, index, axis=axis, shape=index.shape)


@translates("take_along_dim")
def take_along_dim(g: Builder, input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """``gather``, with the other dimensions broadcast."""
    if dim is None:
        input = g.op("Reshape", input, g.ints([-1]), shape=(-1,))
        indices = g.op("Reshape", indices, g.ints([-1]), shape=g.out.shape)
        return g.op("GatherElements", input, indices, axis=0, shape=g.out.shape)
    axis = positive_dim(dim, input.rank)
    out = broadcast(
        [1 if at == axis else size for at, size in enumerate(input.shape)],
        [1 if at == axis else size for at, size in enumerate(indices.shape)],
    )
    resized = [
        g.expand(tensor, [tensor.shape[axis] if at == axis else s for at, s in enumerate(out)])
        for tensor in (input, indices)
    ]
    return gather(g, resized[0], axis, resized[1])


@translates("embedding")
def embedding(
    g: Builder,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of a table, by index."""
    if max_norm is not None:
        raise Unsupported("max_norm, which writes to the table")
    return g.op("Gather", weight, input, axis=0, shape=(*input.shape, *weight.shape[1:]))


@translates("one_hot")
def one_hot(g: Builder, input: Tensor, num_classes: int = -1) -> Tensor:
    """One-hot vectors of the indices."""
    if num_classes < 0:
        raise Unsupported("a result whose size depends on the elements")
    classes = g.known(torch.arange(num_classes))
    apart = g.reshape(input, (*input.shape, 1))
    return g.cast(g.op("Equal", apart, classes, dtype=torch.bool), torch.int64)


# -- replacing elements ------------------------------------------------------------------------


@translates("slice_scatter")
def slice_scatter(
    g: Builder,
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Tensor:
    """The tensor, with a range of a dimension replaced by another tensor."""
    axis = positive_dim(dim, input.rank)
    size = input.shape[axis]
    if step != 1 or not all(isinstance(x, (int, type(None))) for x in (size, start, end)):
        raise Unsupported("places in steps, or a size that is not known")
    first, last, _ = slice(start, end).indices(size)
    parts = [g.cast(src, input.dtype)]
    if first > 0:
        parts.insert(0, g.slice(input, axis, 0, first))
    if last < size:
        parts.append(g.slice(input, axis, max(first, last), size))
    if len(parts) == 1:
        return parts[0]
    return g.op("Concat", *parts, axis=axis, shape=input.shape)


@translates("select_scatter")
def select_scatter(g: Builder, input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """The tensor, with one index of a dimension replaced by another tensor."""
    axis = positive_dim(dim, input.rank)
    if index < 0:
        index = index + input.shape[axis]
    apart = g.reshape(src, (*input.shape[:axis], 1, *input.shape[axis + 1 :]))
    return slice_scatter(g, input, apart, axis, index, index + 1)


@translates("copy", "copy_")
def copy(g: Builder, input: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """The elements of another tensor."""
    return g.expand(g.cast(src, input.dtype), input.shape)
