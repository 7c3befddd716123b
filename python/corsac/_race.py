"""Who is faster, native code or PyTorch, seen in the calls of a program themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from corsac._aten import tensors_in
from corsac._native import is_observed
from corsac._report_text import duration

#: Calls are left to PyTorch if they take more than this of its time natively: times differ from call to call.
LIMIT = 1.05
#: How often both ways are run, after a first time: at least, at most, and how long in all, in seconds.
LEAST, MOST, SECONDS = 3, 10, 0.25
#: Runs of some microseconds come after others that take longer, and find little in the caches: they are run for so many
#: seconds, but no more than so often.
BRIEF, OFTEN = 0.002, 40
#: What is this far from where it is decided after one run, half as far after two and so on, needs no more: on a
#: machine with something else to do, runs of some milliseconds take up to a tenth longer, seldom a fifth. Shorter
#: ones may take many times as long, and are run for so many seconds in any case; one that takes long is enough.
PLAIN, ENOUGH, LONG = 0.3, 0.02, 0.1


class Race:
    """Runs something natively and by PyTorch in turn, until it is plain which is faster.

    The calls are those of the program, which needs the results of each: only the difference between both ways is lost.

    Args:
        limit: the part of PyTorch's time up to which native code is to be chosen: runs near it are repeated.
        over: is told the seconds of the fastest run of each way, or why native code cannot run it, and
            says what becomes of it.

    Attributes:
        outcome: what has become of it; None as long as it is tried.
    """

    def __init__(self, limit: float, over: Callable[[float, float, str | None], Any]) -> None:
        self._limit, self._over = limit, over
        self._best = [float("inf")] * 2
        self._counts = [0, 0]
        self._spent = 0.0
        self.outcome: Any = None
        # Threads may call at once, and a part may be in a graph several times.
        self._lock = threading.Lock()

    def run(self, native: Callable[[], Any], host: Callable[[], Any], lookup: float = 0.0) -> Any:
        """A call, one way or the other; the native one has taken ``lookup`` seconds before, and will in each call."""
        with self._lock:
            way = int(self._counts[0] > self._counts[1])
        start = time.perf_counter()
        results = host() if way else native()
        self._ran(way, time.perf_counter() - start + (0.0 if way else lookup))
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
            decided = self._is_seen(max(number, 1))
        if decided:
            self.end(None)

    def end(self, reason: str | None) -> None:
        """Nothing more is tried, and why if native code cannot run it."""
        with self._lock:
            if self.outcome is None:
                self.outcome = self._over(*self._best, reason)

    def _is_seen(self, tries: int) -> bool:
        """Whether so many runs each way are enough to decide."""
        native, host = self._best
        is_long = native + host > LONG or (tries > 1 and tries * (native + host) > ENOUGH)
        far = 1 + PLAIN / tries
        # Whether it is out of the question that more runs would be decided on otherwise.
        is_plain = not 1 / far < native / (self._limit * host) < far
        is_much = tries >= MOST and (self._spent > BRIEF or tries >= OFTEN)
        return (is_long and is_plain) or (tries >= LEAST and self._spent > SECONDS) or is_much


#: Of all results that are tensors.
Strides = list[tuple[int, ...]]


def strides_of(results: Any) -> Strides:
    """How the results of a call lie; in dimensions of one element it means nothing."""

    def of(own: torch.Tensor) -> tuple[int, ...]:
        steps = zip(own.shape, own.stride(), strict=True)
        return tuple(step for size, step in steps if size > 1)

    return [of(own) for own in tensors_in(results) if own.layout is torch.strided]


class Choice:
    """Who runs calls of something: native code, unless PyTorch is seen to be faster.

    Attributes:
        race: tries both in calls, as long as it is not plain which is faster.
        took: how many seconds a call took, natively and by PyTorch, if both were tried.
    """

    def __init__(self) -> None:
        self.race: Race | None = None
        self.took: tuple[float, float] | None = None
        self._strides: Strides | None = None

    def is_slower(self) -> bool:
        """Whether PyTorch is faster."""
        return self.took is not None and self.took[0] > LIMIT * self.took[1]

    def measure(self) -> None:
        """The next calls tell who is faster, unless all are to give the same bits."""
        if not torch.are_deterministic_algorithms_enabled():
            self.race = Race(LIMIT, lambda native, host, _: (native, host))

    def join(self, race: Race) -> None:
        """Have it tried together with something else."""
        self.race = race if race.outcome is None else None
        self.took = race.outcome

    def expect(self, results: Any) -> None:
        """PyTorch gave these. Where native ones lie otherwise nothing is measured, so that results do not lie one
        way in one call and another in the next."""
        self._strides = strides_of(results)

    def call(self, native: Callable[[], Any], host: Callable[[], Any], lookup: float = 0.0) -> Any:
        """A call, by who is faster; ``lookup`` is as for :meth:`Race.run`."""
        if is_observed():
            # Who looks at native steps is to see them.
            return native()
        race = self.race
        if race is None:
            return host() if self.is_slower() else native()
        results = race.run(native, host, lookup)
        strides = strides_of(results)
        if self._strides is None:
            self._strides = strides
        if strides != self._strides:
            self.race = None
        elif race.outcome is not None:
            self.took, self.race = race.outcome, None
        return results

    def __str__(self) -> str:
        """Who is faster, as far as that is known."""
        if self.took is None:
            return ""
        native, host = map(duration, self.took)
        if self.is_slower():
            return f"left to PyTorch: {native} natively, {host} by PyTorch"
        return f"{native} a call ({host} by PyTorch)"


__all__ = ["Choice", "Race"]
