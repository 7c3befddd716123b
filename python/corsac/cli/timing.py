"""Times two ways of doing the same thing, in alternation."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from corsac._messages.report_text import duration


@dataclass(frozen=True)
class Comparison:
    """Seconds per call of ``first`` and ``second``, one entry per round."""

    first: list[float]
    second: list[float]

    @property
    def medians(self) -> tuple[float, float]:
        return statistics.median(self.first), statistics.median(self.second)

    @property
    def minima(self) -> tuple[float, float]:
        return min(self.first), min(self.second)

    @property
    def spread(self) -> float:
        """Random variation of the medians: the larger interquartile range of the times.

        Infinite if there are too few times.
        """
        return max(_middle_half(self.first), _middle_half(self.second))

    @property
    def ratio(self) -> float | None:
        """Median time of ``first`` divided by that of ``second``; None where they differ by no more than the
        spread, or the minima or a fourth of the rounds contradict."""
        first, second = self.medians
        is_longer = first > second
        if abs(first - second) <= self.spread or (self.minima[0] > self.minima[1]) != is_longer:
            return None
        rounds = list(zip(self.first, self.second, strict=True))
        alike = sum((one > other) == is_longer for one, other in rounds)
        return first / second if 4 * alike > 3 * len(rounds) else None

    @property
    def said(self) -> str:
        """The ratio as text, or that there is none."""
        ratio = self.ratio
        if ratio is None:
            if math.isinf(self.spread):
                return "too few calls to compare"
            first, second = self.medians
            if abs(first - second) > self.spread:
                return "no difference that shows in the fastest calls and in most rounds"
            return f"no difference beyond the spread of {duration(self.spread)}"
        if ratio >= 1:
            return f"{ratio:.2f} times as fast"
        return f"{1 / ratio:.2f} times as slow"


def _middle_half(times: list[float]) -> float:
    if len(times) < 3:
        return math.inf
    lower, _, upper = statistics.quantiles(times, n=4, method="inclusive")
    return upper - lower


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """The result of ``call``, and its time in seconds."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def compare(
    first: Callable[[], Any],
    second: Callable[[], Any],
    rounds: int,
    patience_seconds: float = float("inf"),
) -> Comparison:
    """Call each once to warm up, then both ``rounds`` times in alternation.

    In alternation, so that a slow spell of the machine affects both. Once ``patience_seconds`` have passed,
    three rounds are enough.
    """
    first()
    second()
    comparison = Comparison([], [])
    start = time.perf_counter()
    for done in range(rounds):
        if done >= 3 and time.perf_counter() - start > patience_seconds:
            break
        comparison.first.append(timed(first)[1])
        comparison.second.append(timed(second)[1])
    return comparison
