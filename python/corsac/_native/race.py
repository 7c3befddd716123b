"""Choice between native code and PyTorch, measured in the calls of a program themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from corsac._messages.report_text import duration
from corsac._native.call import is_observed
from corsac._pytorch.aten import tensors_in

#: Calls are left to PyTorch if native code takes more than this multiple of its time: times vary from call to call.
LIMIT = 1.05
#: Number of runs of each way after the first: at least, at most; and total time, in seconds.
LEAST, MOST, SECONDS = 3, 10, 0.25
#: Runs of some microseconds follow longer ones, with cold caches: they are repeated until this total time in seconds,
#: but at most this number of times.
BRIEF, OFTEN = 0.002, 40
#: A ratio of times is decided if it is off the limit by ``PLAIN`` after one run, by half of that after two, and so on:
#: on a busy machine, runs of some milliseconds take up to a tenth longer, seldom a fifth. Shorter runs may take many
#: times as long: they are repeated until they total ``ENOUGH`` seconds. A run of more than ``LONG`` seconds suffices.
PLAIN, ENOUGH, LONG = 0.3, 0.02, 0.1


class Race:
    """Runs a computation alternately natively and by PyTorch, until it is clear which is faster.

    The calls are those of the program, which uses the results of each: only the time difference is lost.

    Args:
        limit: the multiple of PyTorch's time up to which native code is chosen: runs near it are repeated.
        over: maps the seconds of the fastest run of each way, and the reason if native code cannot run it, to the
            outcome.

    Attributes:
        outcome: the result of ``over``; None as long as the race is running.
    """

    def __init__(self, limit: float, over: Callable[[float, float, str | None], Any]) -> None:
        self._limit, self._over = limit, over
        self._best = [float("inf")] * 2
        self._counts = [0, 0]
        self._spent = 0.0
        self.outcome: Any = None
        # Threads may call concurrently, and a part may occur in a graph several times.
        self._lock = threading.Lock()

    def run(self, native: Callable[[], Any], host: Callable[[], Any], lookup: float = 0.0) -> Any:
        """Make a call, one way or the other; ``lookup`` seconds are added to native times, since each native call needs
        them."""
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
                # Memory and caches were cold, which does not matter in a long run.
                self._best = [float("inf")] * 2
                return
            decided = self._is_seen(max(number, 1))
        if decided:
            self.end(None)

    def end(self, reason: str | None) -> None:
        """End the race; ``reason`` if native code cannot run it."""
        with self._lock:
            if self.outcome is None:
                self.outcome = self._over(*self._best, reason)

    def _is_seen(self, tries: int) -> bool:
        """Whether this number of runs each way is enough to decide."""
        native, host = self._best
        is_long = native + host > LONG or (tries > 1 and tries * (native + host) > ENOUGH)
        far = 1 + PLAIN / tries
        # More runs would not change the decision.
        is_plain = not 1 / far < native / (self._limit * host) < far
        is_much = tries >= MOST and (self._spent > BRIEF or tries >= OFTEN)
        return (is_long and is_plain) or (tries >= LEAST and self._spent > SECONDS) or is_much


#: Strides of all results that are tensors.
Strides = list[tuple[int, ...]]


def strides_of(results: Any) -> Strides:
    """Strides of the results of a call, without those of dimensions of size 1, which do not matter."""

    def of(own: torch.Tensor) -> tuple[int, ...]:
        steps = zip(own.shape, own.stride(), strict=True)
        return tuple(step for size, step in steps if size > 1)

    return [of(own) for own in tensors_in(results) if own.layout is torch.strided]


class Choice:
    """Choice between native code and PyTorch: native unless PyTorch is measured to be faster.

    Attributes:
        race: the race in calls, as long as it is running.
        took: times of a call in seconds, natively and by PyTorch, if measured.
    """

    def __init__(self) -> None:
        self.race: Race | None = None
        self.took: tuple[float, float] | None = None
        self._strides: Strides | None = None

    def is_slower(self) -> bool:
        """Whether native code is slower than PyTorch by more than the limit."""
        return self.took is not None and self.took[0] > LIMIT * self.took[1]

    def measure(self) -> None:
        """Measure both ways in the next calls, unless results must be bitwise reproducible."""
        if not torch.are_deterministic_algorithms_enabled():
            self.race = Race(LIMIT, lambda native, host, _: (native, host))

    def join(self, race: Race) -> None:
        """Use the race of another choice, or its outcome."""
        self.race = race if race.outcome is None else None
        self.took = race.outcome

    def expect(self, results: Any) -> None:
        """Note results of PyTorch. If native results have other strides, nothing is measured, so that strides do not
        differ between calls."""
        self._strides = strides_of(results)

    def call(self, native: Callable[[], Any], host: Callable[[], Any], lookup: float = 0.0) -> Any:
        """Make a call, by whichever is faster; ``lookup`` is as for :meth:`Race.run`."""
        if is_observed():
            # An observer of native steps needs native runs.
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
        """The measured times, if known."""
        if self.took is None:
            return ""
        native, host = map(duration, self.took)
        if self.is_slower():
            return f"left to PyTorch: {native} natively, {host} by PyTorch"
        return f"{native} a call ({host} by PyTorch)"


__all__ = ["Choice", "Race"]
