"""Functions of graphs that several ranks run together: they exchange parts of tensors.

Each has the gradient that belongs to it where a value is replicated, sharded or a sum, whatever has been imported:
the gradient of a replicated value is the whole gradient on all ranks, that of a sum is replicated. Gradients have
gradients of the same kind. ``group`` is the name
of a process group. The collectives are those of ``torch.ops._c10d_functional``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group

from corsac.distributed._collective_operators import shared_seed
from corsac.distributed._errors import ParallelError
from corsac.distributed._rank_module import place_of_line
from corsac.distributed._values import summary

_sum = "sum"


def _size(group: str) -> int:
    return dist.get_world_size(_resolve_process_group(group))


def _rank(group: str) -> int:
    return dist.get_rank(_resolve_process_group(group))


def _reduced(tensor: torch.Tensor, group: str, by: str = _sum) -> torch.Tensor:
    started = torch.ops._c10d_functional.all_reduce(tensor.contiguous(), by, group)
    return torch.ops._c10d_functional.wait_tensor(started)


def _gathered(tensor: torch.Tensor, group: str) -> torch.Tensor:
    """The tensors of all ranks, one after the other along the first dimension."""
    started = torch.ops._c10d_functional.all_gather_into_tensor(
        tensor.contiguous(), _size(group), group
    )
    return torch.ops._c10d_functional.wait_tensor(started)


def _scattered(tensor: torch.Tensor, dim: int, pieces: Sequence[int], group: str) -> torch.Tensor:
    """This rank's part of the sum over the ranks."""
    size = _size(group)
    parts = torch.cat([own_part(tensor, dim, pieces, rank, size) for rank in range(size)])
    started = torch.ops._c10d_functional.reduce_scatter_tensor(parts, _sum, size, group)
    return torch.ops._c10d_functional.wait_tensor(started)


def pieces_for(length: int, pieces: Sequence[int]) -> list[int]:
    """The pieces of a dimension of this length: those of the plan, or more or fewer of the same if they repeat, as heads
    do for each item of a batch. A dimension in one piece may have any length, as sequences do.

    Raises:
        ValueError: the plan does not say how such a dimension is cut.
    """
    if sum(pieces) == length:
        return list(pieces)
    count = len(pieces)
    if count == 1:
        return [length]
    period = next(
        own
        for own in range(1, count + 1)
        if all(pieces[at] == pieces[at % own] for at in range(count))
    )
    repeated = sum(pieces[:period])
    if period == count or length % repeated:
        raise ValueError(
            f"the plan cuts a dimension in pieces of {list(pieces)}, got one of {length}: make a plan with "
            "inputs of these sizes"
        )
    return list(pieces[:period]) * (length // repeated)


def part_of(size: int, ranks: int) -> int:
    """The size of a rank's part.

    Raises:
        ValueError: the ranks do not divide it.
    """
    if size % ranks:
        raise ValueError(
            f"{ranks} ranks do not divide a dimension of {size}: make a plan with inputs of these sizes"
        )
    return size // ranks


def own_part(
    tensor: torch.Tensor, dim: int, pieces: Sequence[int], rank: int, size: int
) -> torch.Tensor:
    """The part that one of ``size`` ranks has of a tensor: an equal part of each of the pieces of a dimension."""
    pieces = pieces_for(tensor.size(dim), pieces)
    own = [tensor.narrow(dim, *range_) for range_ in own_ranges(pieces, rank, size)]
    return own[0] if len(own) == 1 else torch.cat(own, dim)


def own_ranges(pieces: Sequence[int], rank: int, size: int) -> list[tuple[int, int]]:
    """The starts and lengths of the ranges of a dimension that one of ``size`` ranks has."""
    found, before = [], 0
    for piece in pieces:
        found.append((before + rank * (piece // size), piece // size))
        before += piece
    return found


def _whole(tensor: torch.Tensor, dim: int, pieces: Sequence[int], group: str) -> torch.Tensor:
    """The tensor of which each rank has a part."""
    size = _size(group)
    pieces = pieces_for(tensor.size(dim) * size, pieces)
    parts = _gathered(tensor, group).chunk(size)
    if len(pieces) == 1:
        return torch.cat(parts, dim)
    lengths = [length // size for length in pieces]
    split = [part.split(lengths, dim) for part in parts]
    return torch.cat([own[piece] for piece in range(len(pieces)) for own in split], dim)


def whole_of(
    part: torch.Tensor, shard: tuple[int, Sequence[int]] | None, group: dist.ProcessGroup
) -> torch.Tensor:
    """The tensor of which each rank of a group has a part: the dimension that is cut, and the sizes of its pieces; None
    where each has the whole. All ranks call it."""
    if shard is None:
        return part.detach().clone()
    return _whole(part.detach(), shard[0], shard[1], group.group_name)


def _same(tensor: torch.Tensor, group: str) -> torch.Tensor:
    del group
    return tensor.view_as(tensor)


def _own(tensor: torch.Tensor, dim: int, pieces: Sequence[int], group: str) -> torch.Tensor:
    """This rank's part of a tensor that all ranks have."""
    return own_part(tensor, dim, pieces, _rank(group), _size(group)).contiguous()


def _summand(tensor: torch.Tensor, group: str) -> torch.Tensor:
    """This rank's summand of a tensor that all ranks have."""
    return tensor.view_as(tensor) if _rank(group) == 0 else torch.zeros_like(tensor)


class _Paired(torch.autograd.Function):
    """``run(tensor, *of)``, whose gradient is ``back(gradient, *of)``, and the other way round. Errors of the backward pass
    name the node."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        run: Callable[..., torch.Tensor],
        back: Callable[..., torch.Tensor],
        *of: Any,
    ) -> torch.Tensor:
        ctx.of = run, back, of
        caller = sys._getframe(2)
        ctx.line = caller.f_code.co_filename, caller.f_lineno
        return run(tensor, *of)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        run, back, of = ctx.of
        try:
            return _Paired.apply(gradient, back, run, *of), None, None, *(None for _ in of)
        except Exception as error:
            raise ParallelError(
                f"rank {dist.get_rank()}, backward pass{place_of_line(*ctx.line)}: {summary(error)}"
            ) from error


def copy(tensor: torch.Tensor, group: str) -> torch.Tensor:
    """A replicated tensor for calls of which each rank computes a part: gradients are summed."""
    return _Paired.apply(tensor, _same, _reduced, group)


def reduce(tensor: torch.Tensor, group: str) -> torch.Tensor:
    """The sum over the ranks, on all ranks."""
    return _Paired.apply(tensor, _reduced, _same, group)


def gather(tensor: torch.Tensor, dim: int, pieces: Sequence[int], group: str) -> torch.Tensor:
    """The whole of a sharded tensor, on all ranks."""
    return _Paired.apply(tensor, _whole, _own, dim, tuple(pieces), group)


def scatter(tensor: torch.Tensor, dim: int, pieces: Sequence[int], group: str) -> torch.Tensor:
    """This rank's part of a replicated tensor."""
    return _Paired.apply(tensor, _own, _whole, dim, tuple(pieces), group)


def gather_for_parts(
    tensor: torch.Tensor, dim: int, pieces: Sequence[int], group: str
) -> torch.Tensor:
    """The whole of a sharded tensor for calls of which each rank computes a part: gradients are summed, of which each rank
    gets its part."""
    return _Paired.apply(tensor, _whole, _scattered, dim, tuple(pieces), group)


def reduce_scatter(
    tensor: torch.Tensor, dim: int, pieces: Sequence[int], group: str
) -> torch.Tensor:
    """This rank's part of the sum over the ranks."""
    return _Paired.apply(tensor, _scattered, _whole, dim, tuple(pieces), group)


def first(tensor: torch.Tensor, group: str) -> torch.Tensor:
    """A replicated tensor as a sum: zeros on all ranks but the first."""
    return _Paired.apply(tensor, _summand, _same, group)


def draw_seed(group: dist.ProcessGroup) -> None:
    """Give the ranks of a group a seed that the generator of its first rank has drawn. All ranks call it."""
    seed = torch.randint(2**62, ())
    dist.broadcast(seed, group=group, group_src=0)
    shared_seed(group.group_name, int(seed))


def begin_random(group: str, parts: bool) -> torch.Tensor:
    """Seed the random generator of the CPU for one call: equal on all ranks for whole tensors, different for parts.

    Returns:
        Its state, for :func:`end_random`.
    """
    state: torch.Tensor = torch.ops.corsac.begin_random(group, parts)
    return state


def end_random(state: torch.Tensor) -> None:
    """Restore the random generator of the CPU."""
    torch.ops.corsac.end_random(state)


def _local(
    numbers: torch.Tensor, ranges: Sequence[tuple[int, int]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The places in this rank's part of numbers of rows or classes, 0 for those of others, and which are its own."""
    local, before = torch.zeros_like(numbers), 0
    is_own = torch.zeros_like(numbers, dtype=torch.bool)
    for start, length in ranges:
        inside = (numbers >= start) & (numbers < start + length)
        local = torch.where(inside, numbers - start + before, local)
        is_own, before = is_own | inside, before + length
    return local, is_own


def sharded_embedding(
    ids: torch.Tensor,
    weight: torch.Tensor,
    pieces: Sequence[int],
    group: str,
    padding_idx: int | None = None,
) -> torch.Tensor:
    """Rows of a table of which this rank has a part, zeros for the rows that others have: a sum."""
    ids = torch.ops.corsac.in_range(ids, sum(pieces), None, "an embedding of {} rows")
    ranges = own_ranges(pieces, _rank(group), _size(group))
    local, is_own = _local(ids, ranges)
    padding, before = None, 0
    for start, length in ranges:
        if padding_idx is not None and start <= padding_idx < start + length:
            padding = padding_idx - start + before
        before += length
    rows = torch.nn.functional.embedding(local, weight, padding)
    return rows.masked_fill(~is_own.unsqueeze(-1), 0)


def sharded_cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    pieces: Sequence[int],
    group: str,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> torch.Tensor:
    """The cross entropy of logits of which this rank has a part of the classes, on all ranks.

    Args:
        logits: of shape ``[N, own classes]``.
        target: numbers of classes, of shape ``[N]``.
        pieces: the numbers of classes of the pieces that are cut among the ranks.
        group: the name of the process group.
        ignore_index, reduction: as for :func:`torch.nn.functional.cross_entropy`.
    """
    classes = sum(pieces)
    is_counted = target != ignore_index
    target = torch.ops.corsac.in_range(target, classes, ignore_index, "a target of {} classes")
    wide = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    with torch.no_grad():
        largest = _reduced(wide.amax(1), group, "max")
    shifted = wide - largest.unsqueeze(1)
    total = reduce(shifted.exp().sum(1), group)
    local, is_own = _local(target, own_ranges(pieces, _rank(group), _size(group)))
    picked = shifted.gather(1, local.unsqueeze(1)).squeeze(1).masked_fill(~is_own, 0)
    losses = (total.log() - reduce(picked, group)).masked_fill(~is_counted, 0)
    if reduction == "none":
        return losses.to(logits.dtype)
    summed = losses.sum()
    if reduction == "mean":
        summed = summed / is_counted.sum()
    return summed.to(logits.dtype)


__all__ = [
    "begin_random",
    "copy",
    "draw_seed",
    "end_random",
    "first",
    "gather",
    "gather_for_parts",
    "own_part",
    "own_ranges",
    "part_of",
    "pieces_for",
    "reduce",
    "reduce_scatter",
    "scatter",
    "sharded_cross_entropy",
    "sharded_embedding",
    "whole_of",
]
