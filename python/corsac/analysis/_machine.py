"""Peak speed of this machine, measured once per process."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Machine:
    """Peaks that PyTorch reaches on this machine with its present number of threads.

    Attributes:
        gflops: peak of a float32 matrix product, in 10^9 operations a second.
        gbytes: peak of a memory copy, in 10^9 bytes a second, read and written.
    """

    gflops: float
    gbytes: float

    @property
    def ridge(self) -> float:
        """Operations per byte above which arithmetic is the limit."""
        return self.gflops / self.gbytes

    def least_seconds(self, flops: float, moved_bytes: float) -> float:
        """The least time for so much work, in seconds. Source: Williams, Waterman, Patterson, "Roofline: an
        insightful visual performance model", CACM 2009."""
        return max(flops / (self.gflops * 1e9), moved_bytes / (self.gbytes * 1e9))


def _best_seconds(work: Callable[[], object], seconds: float) -> float:
    work()
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        work()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return best


@functools.lru_cache(maxsize=8)
def _measured(threads: int) -> Machine:
    size, elements = 1024, 16 * 2**20
    with torch.no_grad():
        a, b, c = (torch.ones(size, size) for _ in range(3))
        product = _best_seconds(lambda: torch.mm(a, b, out=c), 0.2)
        source, target = torch.ones(elements), torch.ones(elements)
        copy = _best_seconds(lambda: target.copy_(source), 0.2)
    return Machine(2 * size**3 / product / 1e9, 2 * 4 * elements / copy / 1e9)


def machine() -> Machine:
    """The peaks of this machine, from a matrix product and a memory copy."""
    return _measured(torch.get_num_threads())
