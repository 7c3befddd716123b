"""Who is faster, seen in the steps of training themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from corsac import _core
from corsac._panic import EngineError, told

#: A part is native if it takes less than this of PyTorch's time, and saves so many seconds: times differ from step to
#: step.
MARGIN, GAIN = 0.9, 1e-5
#: How often a part is run each way, after a first time: at least, at most, and how long in all, in seconds.
LEAST, MOST, SECONDS = 3, 10, 0.25
#: What is this far from where it is decided after one run, half as far after two and so on, needs no more: on a
#: machine with something else to do, runs of some milliseconds take up to a tenth longer, seldom a fifth. Shorter
#: ones may take many times as long, and are run for so many seconds in any case; one that takes long is enough.
PLAIN, ENOUGH, LONG = 0.3, 0.02, 0.1


class Trial(torch.nn.Module):
    """A part of a graph that runs natively and by PyTorch in turn, until it is plain which is faster.

    The calls are those of the program, which needs the results of each: only the difference between both
    ways is lost.

    Args:
        native: runs it natively.
        host: runs it by PyTorch.
        over: is told the seconds of the fastest run of each way, or why native code cannot run it, and
            says what becomes of the part.

    Attributes:
        outcome: what has become of it; None as long as it is tried.
    """

    def __init__(
        self,
        native: torch.nn.Module,
        host: torch.nn.Module,
        over: Callable[[float, float, str | None], Any],
    ) -> None:
        super().__init__()
        self._ways = native.forward, host.forward
        self._over = over
        self._best = [float("inf")] * 2
        self._counts = [0, 0]
        self._spent = 0.0
        self.outcome: Any = None
        # Threads may train at once, and a part may be in a graph several times.
        self._lock = threading.Lock()

    def forward(self, *arguments: torch.Tensor) -> Any:
        with self._lock:
            way = int(self._counts[0] > self._counts[1])
        start = time.perf_counter()
        try:
            results = self._ways[way](*arguments)
        except (_core.PanicException, EngineError) as panic:
            if way == 1:
                raise
            self._end(told(panic, "it ran a part of a graph"))
            return self._ways[1](*arguments)
        self._ran(way, time.perf_counter() - start)
        return results

    def _ran(self, way: int, seconds: float) -> None:
        with self._lock:
            self._best[way] = min(self._best[way], seconds)
            self._counts[way] += 1
            self._spent += seconds
            if self._counts[0] != self._counts[1]:
                return
            number = self._counts[0] - 1
            if number == 0 and self._spent < SECONDS:
                # Memory and caches were cold, which is nothing in a long run.
                self._best = [float("inf")] * 2
                return
            decided = is_seen(self._best, max(number, 1), self._spent)
        if decided:
            self._end(None)

    def _end(self, reason: str | None) -> None:
        with self._lock:
            if self.outcome is None:
                self.outcome = self._over(*self._best, reason)


def is_seen(best: list[float], tries: int, spent: float) -> bool:
    """Whether so many runs each way, which took so many seconds together, are enough to decide."""
    once = sum(best)
    is_long = once > LONG or (tries > 1 and tries * once > ENOUGH)
    return (
        (is_long and _is_plain(*best, tries))
        or (tries >= LEAST and spent > SECONDS)
        or tries >= MOST
    )


def is_worth_it(native: float, host: float) -> bool:
    """Whether a part that takes so many seconds natively, and by PyTorch, is native."""
    return native < min(MARGIN * host, host - GAIN)


def _is_plain(native: float, host: float, tries: int) -> bool:
    """Whether it is out of the question that more runs would be decided on otherwise."""
    far = 1 + PLAIN / tries
    return not 1 / far < native / (MARGIN * host) < far


__all__ = ["Trial", "is_seen", "is_worth_it"]
