"""Times that ranks need to send."""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Network:
    """A connection between any two ranks, used in both directions at once.

    Attributes:
        bandwidth: bytes per second in one direction.
        latency: seconds until the first byte of a message arrives.
        hops: sizes of messages in collectives, in bytes and in ascending order, and the seconds that each takes, where
            these are others than those of ``bandwidth`` and ``latency``.
    """

    bandwidth: float
    latency: float
    hops: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if not self.bandwidth > 0:
            raise ValueError(
                f"bandwidth: expected more than 0 bytes a second, got {self.bandwidth}"
            )
        if not self.latency >= 0:
            raise ValueError(f"latency: expected at least 0 seconds, got {self.latency}")
        sizes = [size for size, _ in self.hops]
        if any(left >= right for left, right in itertools.pairwise(sizes)):
            raise ValueError(f"hops: expected ascending sizes, got {sizes}")

    def send(self, size_bytes: float) -> float:
        """Seconds until a message has arrived."""
        return self.latency + size_bytes / self.bandwidth

    def all_reduce(self, size_bytes: float, ranks: int) -> float:
        """Seconds for a sum over ``ranks`` in a ring: each part goes around twice. Source: Patarasuk, Yuan, "Bandwidth
        optimal all-reduce algorithms for clusters of workstations", JPDC 2009."""
        return 2 * self.all_gather(size_bytes, ranks)

    def all_gather(self, size_bytes: float, ranks: int) -> float:
        """Seconds until all ranks have ``size_bytes`` of which each had a part."""
        return (ranks - 1) * self._hop(size_bytes / ranks)

    def _hop(self, size_bytes: float) -> float:
        """Seconds of a message in a collective: between measured sizes in proportion, above the largest one with the
        bandwidth of messages."""
        if not self.hops:
            return self.send(size_bytes)
        sizes, seconds = zip(*self.hops, strict=True)
        at = bisect.bisect_left(sizes, size_bytes)
        if at == 0:
            return float(seconds[0])
        if at == len(sizes):
            return float(seconds[-1] + (size_bytes - sizes[-1]) / self.bandwidth)
        share = (size_bytes - sizes[at - 1]) / (sizes[at] - sizes[at - 1])
        return float(seconds[at - 1] + share * (seconds[at] - seconds[at - 1]))


def all_reduce_bytes(size_bytes: float, ranks: int) -> float:
    """The bytes that a rank sends in :meth:`Network.all_reduce`."""
    return 2 * all_gather_bytes(size_bytes, ranks)


def all_gather_bytes(size_bytes: float, ranks: int) -> float:
    """The bytes that a rank sends in :meth:`Network.all_gather`."""
    return size_bytes * (ranks - 1) / ranks


__all__ = ["Network", "all_gather_bytes", "all_reduce_bytes"]
