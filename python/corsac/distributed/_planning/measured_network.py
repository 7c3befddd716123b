"""Times of messages and sums, measured between the ranks of a group."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from corsac.distributed import collectives
from corsac.distributed._agreement import group_of
from corsac.distributed._planning.network import Network

#: Messages and sums that set up connections.
_WARM = 3
#: Seconds that ranks compute before each sum.
_COMPUTED = 1e-3
#: The largest bandwidth that is told from none at all, in bytes per second.
_FASTEST = 1e15


def measure_network(
    group: Any = None,
    *,
    sizes: Sequence[int] = (4, 2**14, 2**17, 2**20),
    repeats: int = 100,
    timeout: float = 300.0,
) -> Network:
    """The connections of the ranks of a group on CPUs: means over messages between the first two, and over sums of all of
    them. All ranks call it, and get the same.

    Before each sum ranks compute for a millisecond: threads that send and receive then have to get a core, as in a
    training step.

    Args:
        group: a :class:`~torch.distributed.device_mesh.DeviceMesh` of one dimension, or a process group; by default a
            group of all ranks.
        sizes: bytes of the tensors that are summed, in ascending order, multiples of 4. Messages have the least and the
            largest of them.
        repeats: the number of messages and sums of each size.
        timeout: seconds after which a rank that waits for another one gives up, if ``group`` is None.

    Raises:
        ParallelError: there is no process group.
        ValueError: the group has one rank, or an argument is out of range.
    """
    if len(sizes) < 2 or sizes[0] < 4 or any(a >= b for a, b in itertools.pairwise(sizes)):
        raise ValueError(f"sizes: expected ascending ones of at least 4 bytes, got {list(sizes)}")
    if repeats < 1:
        raise ValueError(f"repeats: expected at least 1, got {repeats}")
    group = group_of(group, timeout)
    ranks = dist.get_world_size(group)
    if ranks < 2:
        raise ValueError("expected a group of at least 2 ranks, got 1")
    tensors = [torch.zeros(own // 4) for own in sizes]
    found = [_message(own, group, repeats) for own in (tensors[0], tensors[-1])]
    # As a ring, a sum is this many messages of a part of the tensor, one after the other.
    hops = 2 * (ranks - 1)
    found += [_sum(own, group, repeats) / hops for own in tensors]
    agreed = torch.tensor(found, dtype=torch.float64)
    dist.all_reduce(agreed, dist.ReduceOp.MAX, group=group)
    least, largest, *seconds = agreed.tolist()
    more = float(sizes[-1] - sizes[0])
    return Network(
        more / max(largest - least, more / _FASTEST),
        least,
        tuple((size / ranks, own) for size, own in zip(sizes, seconds, strict=True)),
    )


def _message(tensor: torch.Tensor, group: Any, repeats: int) -> float:
    """Seconds of a message between the first two ranks, there and back by half."""
    rank, begin = dist.get_rank(group), 0.0
    dist.barrier(group)
    for number in range(-_WARM, repeats):
        if number == 0:
            begin = time.perf_counter()
        for turn in range(2) if rank < 2 else ():
            run = dist.send if turn == rank else dist.recv
            run(tensor, group=group, **{"group_dst" if turn == rank else "group_src": 1 - rank})
    return (time.perf_counter() - begin) / (2 * repeats) if rank < 2 else 0.0


def _sum(tensor: torch.Tensor, group: Any, repeats: int) -> float:
    """Seconds of a sum of all ranks."""
    total, factor = 0.0, torch.zeros(128, 128)
    dist.barrier(group)
    for number in range(-_WARM, repeats):
        begin = time.perf_counter()
        while time.perf_counter() - begin < _COMPUTED:
            factor @ factor
        begin = time.perf_counter()
        collectives.reduce(tensor, group.group_name)
        if number >= 0:
            total += time.perf_counter() - begin
    return total / repeats


__all__ = ["measure_network"]
