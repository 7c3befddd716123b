"""Ranges of numbers for 256 levels, of histograms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args

import torch
from torch import Tensor

Method = Literal["minmax", "percentile", "entropy", "mse"]
METHODS: tuple[str, ...] = get_args(Method)

#: Bins of a histogram, half of them for negative numbers: 8 and more for each of 256 levels.
BINS = 4096
#: Levels of quantised inputs.
LEVELS = 256
#: Bounds that the search tries, as parts of the whole range.
_FRACTIONS = [at / 100 for at in range(5, 101)]
_Candidate = TypeVar("_Candidate")


@dataclass
class Histogram:
    """Counts of numbers between ``-bound`` and ``bound``, a power of two.

    Where a batch has larger numbers, the bound doubles and pairs of bins become one, so that counts stay exact.

    Attributes:
        lows: the smallest number of each batch.
        highs: the largest number of each batch.
    """

    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)
    bound: float = 0.0
    counts: Tensor = field(default_factory=lambda: torch.zeros(BINS, dtype=torch.float64))

    @property
    def low(self) -> float:
        return min(self.lows)

    @property
    def high(self) -> float:
        return max(self.highs)

    @property
    def numbers(self) -> int:
        """The number of numbers that were counted."""
        return int(self.counts.sum())

    def add(self, numbers: Tensor) -> None:
        """Count a batch of numbers of any shape, which are finite."""
        numbers = numbers.detach().flatten().to(torch.float32)
        low, high = map(float, torch.aminmax(numbers))
        self.lows.append(low)
        self.highs.append(high)
        largest = max(-low, high)
        if self.bound == 0.0 and largest > 0.0:
            zeros = self.counts[BINS // 2].item()
            self.bound = 2.0 ** math.ceil(math.log2(largest))
            self.counts[BINS // 2] = zeros
        while self.bound < largest:
            self._double()
        if self.bound == 0.0:
            self.counts[BINS // 2] += numbers.numel()
            return
        self.counts += torch.histc(numbers, BINS, -self.bound, self.bound).to(torch.float64)

    def _double(self) -> None:
        pairs = self.counts.reshape(-1, 2).sum(1)
        self.counts = torch.zeros_like(self.counts)
        self.counts[BINS // 4 : 3 * BINS // 4] = pairs
        self.bound *= 2.0

    @property
    def centres(self) -> Tensor:
        """The number in the middle of each bin."""
        width = 2.0 * self.bound / BINS
        return (torch.arange(BINS, dtype=torch.float64) + 0.5) * width - self.bound

    def share_outside(self, low: float, high: float) -> float:
        """The part of the numbers that is outside a range."""
        half = self.bound / BINS
        outside = (self.centres + half < low) | (self.centres - half > high)
        return float(self.counts[outside].sum()) / max(float(self.counts.sum()), 1.0)

    def range(self, method: str, percentile: float = 99.99) -> tuple[float, float]:
        """The range that the levels should cover; it has 0.

        Args:
            method: ``"minmax"``: all numbers; ``"percentile"``: all but the outermost; ``"mse"``: with the least squared
                error; ``"entropy"``: with the least divergence (Kullback and Leibler) of the distribution of levels.
            percentile: the share of the numbers, in percent, between the bounds.
        """
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        if method == "minmax" or low == high:
            return low, high
        if method == "percentile":
            return self._percentile(percentile, low, high)
        loss = self._squared_error if method == "mse" else self._divergence
        low_part, high_part = self._best(
            [(part, part) for part in _FRACTIONS], lambda own: loss(own[0] * low, own[1] * high)
        )
        if low < 0.0 < high:
            # Outliers are often on one side only.
            low_part = self._best(_FRACTIONS, lambda own: loss(own * low, high_part * high))
            high_part = self._best(_FRACTIONS, lambda own: loss(low_part * low, own * high))
        return low_part * low, high_part * high

    @staticmethod
    def _best(candidates: Sequence[_Candidate], loss: Callable[[_Candidate], float]) -> _Candidate:
        """The candidate with the least loss; of equal ones the last, with the widest range."""
        losses = [loss(candidate) for candidate in candidates]
        return candidates[min(range(len(losses)), key=lambda at: (losses[at], -at))]

    def _percentile(self, percentile: float, low: float, high: float) -> tuple[float, float]:
        total = self.counts.sum()
        cut = total * (1.0 - percentile / 100.0) / 2.0
        below = torch.cumsum(self.counts, 0)
        width = 2.0 * self.bound / BINS
        first = int((below <= cut).sum())
        last = BINS - 1 - int((torch.cumsum(self.counts.flip(0), 0) <= cut).sum())
        bounds = first * width - self.bound, (last + 1) * width - self.bound
        return min(max(bounds[0], low), 0.0), max(min(bounds[1], high), 0.0)

    def _squared_error(self, low: float, high: float) -> float:
        scale = (high - low) / (LEVELS - 1)
        zero = round(-low / scale)
        levels = torch.clamp(torch.round(self.centres / scale) + zero, 0, LEVELS - 1)
        errors = (levels - zero) * scale - self.centres
        # Bins are no wider than a fraction of a level; numbers within one are spread evenly.
        return float((self.counts * errors**2).sum())

    def _divergence(self, low: float, high: float) -> float:
        """The divergence of the numbers' distribution from that of their levels, where numbers outside the range are at
        its ends."""
        inside = (self.centres >= low) & (self.centres <= high)
        places = inside.nonzero()
        if len(places) < 2:
            return math.inf
        first, last = int(places[0]), int(places[-1])
        # The level of 0 is exact, and many numbers are 0 after an activation.
        counts = self.counts.clone()
        counts[BINS // 2] = 0.0
        kept = counts[first : last + 1]
        wanted = kept.clone()
        wanted[0] += counts[:first].sum()
        wanted[-1] += counts[last + 1 :].sum()
        if not float(kept.sum()):
            return math.inf
        size = len(kept)
        level = torch.arange(size) * LEVELS // size if size > LEVELS else torch.arange(size)
        filled = (kept > 0).to(torch.float64)
        sums = torch.zeros(LEVELS, dtype=torch.float64).index_add_(0, level, kept)
        shares = torch.zeros(LEVELS, dtype=torch.float64).index_add_(0, level, filled)
        spread = torch.where(filled > 0, (sums / shares.clamp(min=1.0))[level], 0.0)
        wanted, spread = wanted / wanted.sum(), spread / spread.sum().clamp(min=1e-30)
        # Numbers at an end where no number was are levels of an almost unseen kind.
        spread = torch.where((wanted > 0) & (spread == 0), 1e-9, spread)
        seen = wanted > 0
        return float((wanted[seen] * torch.log(wanted[seen] / spread[seen])).sum())


def steps(low: float, high: float) -> tuple[float, int]:
    """The scale and the zero point of 256 levels, 0 to 255, between two numbers around 0."""
    scale = max((high - low) / (LEVELS - 1), torch.finfo(torch.float32).tiny)
    return scale, min(max(round(-low / scale), 0), LEVELS - 1)
