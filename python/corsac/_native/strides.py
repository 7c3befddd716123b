"""Memory layouts of results: contiguous in native programs, often in the order of the inputs in PyTorch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from corsac._native.panic import EngineError
from corsac._pytorch.aten import dense_strides, storage_of


@dataclass(frozen=True, slots=True)
class Layout:
    """Memory layout of a result that is not contiguous.

    Attributes:
        strides: its strides.
        order: its dimensions by decreasing stride, if there are no gaps: this holds for other sizes, too.
    """

    strides: tuple[int, ...]
    order: tuple[int, ...] | None

    def strides_for(self, shape: torch.Size) -> tuple[int, ...]:
        return self.strides if self.order is None else dense_strides(self.order, shape)


def _differ(first: Sequence[int], second: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether strides differ in a dimension of more than one element, or in any if there is no element."""
    return any(
        a != b for a, b, size in zip(first, second, shape, strict=True) if size > 1 or 0 in shape
    )


def layouts_of(
    results: Sequence[torch.Tensor], given: set[int]
) -> tuple[Layout | None, ...] | None:
    """The layouts of results: None for those that are contiguous or in memory that is ``given``; None if all are.

    Sizes of fake tensors may be symbols; only their hints are used, so that no guards are made.
    """

    def layout(own: torch.Tensor) -> Layout | None:
        sizes, strides = _hints(own.shape), _hints(own.stride())
        if sizes is None or strides is None or storage_of(own) in given:
            return None
        found = _layout_of(sizes, strides)
        has_gaps = found is not None and found.order is None
        # Strides with gaps are valid for these sizes only.
        return None if has_gaps and any(map(_is_symbol, own.shape)) else found

    found = tuple(map(layout, results))
    return found if any(found) else None


def _is_symbol(size: Any) -> bool:
    return isinstance(size, torch.SymInt)


def _hints(sizes: Sequence[Any]) -> tuple[int, ...] | None:
    known = [own.node.hint if _is_symbol(own) else own for own in sizes]
    return tuple(known) if all(type(own) is int for own in known) else None


def _layout_of(shape: Sequence[int], strides: tuple[int, ...]) -> Layout | None:
    """The layout of a tensor; None if it is contiguous."""
    # Strides of dimensions of one element are PyTorch's as far as they follow from the order.
    order = tuple(sorted(range(len(shape)), key=lambda dim: (-strides[dim], shape[dim] == 1)))
    if dense_strides(order, shape) == strides and 0 not in shape:
        return None if order == tuple(range(len(shape))) else Layout(strides, order)
    if not _differ(dense_strides(range(len(shape)), shape), strides, shape):
        return None
    if 0 in shape:
        # PyTorch has several rules for tensors without elements.
        return Layout(strides, None)
    order = tuple(sorted(range(len(shape)), key=lambda dim: -strides[dim]))
    has_gaps = _differ(dense_strides(order, shape), strides, shape)
    return Layout(strides, None if has_gaps else order)


def laid_out(results: Any, layouts: Sequence[Layout | None]) -> Any:
    """The results with these layouts; those with other strides are copied, where they differ in dimensions of one
    element only with the same memory.

    Raises:
        EngineError: a result that would have to be copied shares memory with another.
    """
    leaves, spec = tree_flatten(results)
    storages = Counter(map(storage_of, {id(own): own for own in leaves}.values()))
    made: dict[int, torch.Tensor] = {}
    for number, (own, layout) in enumerate(zip(leaves, layouts, strict=True)):
        if layout is None:
            continue
        strides = layout.strides_for(own.shape)
        if _differ(strides, own.stride(), own.shape):
            if storages[storage_of(own)] > 1:
                raise EngineError("results share memory that does not lie row by row")
            if id(own) not in made:
                made[id(own)] = _copied(own, strides)
            leaves[number] = made[id(own)]
        elif strides != own.stride() and storages[storage_of(own)] == 1:
            if id(own) not in made:
                memory = own.untyped_storage(), own.storage_offset(), own.shape, strides
                made[id(own)] = own.new_empty(0).set_(*memory)
            leaves[number] = made[id(own)]
    return tree_unflatten(leaves, spec)


def each_once(own: torch.Tensor, strides: Sequence[int] | None = None) -> torch.Tensor:
    """A tensor without repeated elements: dimensions of stride 0 (in ``strides``, if given) are narrowed to size 1."""
    once = own.detach()
    for dim, stride in enumerate(own.stride() if strides is None else strides):
        if stride == 0 and own.size(dim) > 1:
            once = once.narrow(dim, 0, 1)
    return once


def _copied(own: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    once = each_once(own, strides)
    copy = torch.empty_strided(once.shape, strides, dtype=own.dtype)
    if copy.is_inference():
        copy.copy_(once)
    else:
        with torch.autograd._unsafe_preserve_version_counter(copy):
            copy.copy_(once)
    # A view only where elements are repeated.
    return copy if once.shape == own.shape else copy.as_strided(own.shape, strides)


__all__ = ["Layout", "each_once", "laid_out", "layouts_of"]
