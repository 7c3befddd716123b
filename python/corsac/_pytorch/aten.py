"""Effects of PyTorch's operators, from their schemas and tags, and properties of tensors."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from corsac._core import storage_of, storages_in, tensors_in

#: Names of tensor attributes that are marks for Dynamo, besides those that begin with ``_dynamo_``.
_MARKS = ("_specialize_on", "_has_dynamo_dim_marking")
IS_RANDOM = "uses random numbers"
#: Reasons for operators on whose values the rest of the program may depend.
READS_VALUES = frozenset(["reads a value", "gives a tensor whose size depends on values"])


@functools.cache
def what_it_does(func: Any) -> tuple[str | None, tuple[int, ...], bool]:
    """Reason why an operator cannot be recorded, indices of the arguments it writes to, and whether its results are
    new memory."""
    reason = None
    if torch.Tag.nondeterministic_seeded in func.tags:
        reason = IS_RANDOM
    elif torch.Tag.data_dependent_output in func.tags:
        reason = "reads a value"
    elif torch.Tag.dynamic_output_shape in func.tags:
        reason = "gives a tensor whose size depends on values"
    arguments = func._schema.arguments
    written = (
        number
        for number, own in enumerate(arguments)
        if own.alias_info is not None and own.alias_info.is_write
    )
    is_new = all(own.alias_info is None for own in func._schema.returns)
    return reason, tuple(written), is_new


def written_tensors(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[torch.Tensor]:
    """The tensors among the arguments that an operator writes to."""
    for number in what_it_does(func)[1]:
        name = func._schema.arguments[number].name
        value = args[number] if number < len(args) else kwargs.get(name)
        yield from tensors_in(value)


#: Metadata of a recorded node: number of its results, if they are a tuple or a list.
SEVERAL = "several"


def is_taking_places(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether elements are taken by integer indices: with a mask, their number depends on values."""
    masks = (torch.bool, torch.uint8)
    return func is torch.ops.aten.index.Tensor and not any(
        own is not None and own.dtype in masks for own in args[1]
    )


def has_attributes(own: torch.Tensor) -> bool:
    """Whether a tensor has attributes that programs may read, other than Dynamo's marks of dynamic dimensions, which
    models set on their caches."""
    return bool(own.__dict__) and not all(
        name.startswith("_dynamo_") or name in _MARKS for name in own.__dict__
    )


def key_of_tensor(own: torch.Tensor) -> tuple[Any, ...]:
    """Key of the programs for a tensor: dtype, sizes, class, and memory layout as far as the layout of results depends
    on it."""
    # Nested tensors have no sizes.
    shape = None if own.is_nested else own.shape
    order = _order_of(own) if own.layout is torch.strided and shape is not None else None
    return own.dtype, shape, type(own), has_attributes(own), order


def dense_strides(order: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor without gaps whose dimensions, by decreasing stride, are in ``order``."""
    strides, length = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = length
        length *= max(shape[dim], 1)
    return tuple(strides)


def _order_of(own: torch.Tensor) -> tuple[Any, ...] | None:
    """Memory layout, as far as the layout of results depends on it; None if contiguous. Slices of rows are equal
    whatever their gaps."""
    if own.is_contiguous():
        # Convolutions look at the strides of dimensions of one element, too.
        if own.dim() < 4 or 1 not in own.shape:
            return None
        is_plain = own.stride() == dense_strides(range(own.dim()), own.shape)
        return None if is_plain else own.stride()
    dims = [
        (size, stride) for size, stride in zip(own.shape, own.stride(), strict=True) if size != 1
    ]
    return (
        tuple(sorted(range(len(dims)), key=lambda dim: -dims[dim][1])),
        tuple(stride == 0 for _, stride in dims),
        # Adjacent dimensions that can be merged: they decide whether `reshape` copies.
        tuple(
            stride == size * following
            for (_, stride), (size, following) in itertools.pairwise(dims)
        ),
    )


__all__ = [
    "IS_RANDOM",
    "READS_VALUES",
    "dense_strides",
    "has_attributes",
    "is_taking_places",
    "key_of_tensor",
    "storage_of",
    "storages_in",
    "tensors_in",
    "what_it_does",
    "written_tensors",
]
