"""Progress reports of a search."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

#: Called as ``progress(stage, calls left, seconds)``.
Progress = Callable[[str, int, float], None]
#: Seconds between updates: on a terminal, and elsewhere, where each is a line of its own.
_INTERVAL, _RARELY = 0.1, 10.0
_WIDTH = 24


class Bar:
    """A bar on stderr: progress from the whole graph to one call, and the time.

    Args:
        before: number of calls of the whole graph.
        seconds: limit of the search.
    """

    def __init__(self, before: int, seconds: float) -> None:
        self._before, self._seconds = max(before, 1), seconds
        self._terminal = sys.stderr.isatty()
        self._next = 0.0

    def __call__(self, stage: str, calls: int, seconds: float) -> None:
        """Show that ``calls`` are left after ``seconds``."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (_INTERVAL if self._terminal else _RARELY)
        self._print(self._line(stage, calls, seconds))

    def close(self, stage: str, calls: int, seconds: float) -> None:
        """Show the final state."""
        self._print(self._line(stage, calls, seconds))
        if self._terminal:
            print(file=sys.stderr, flush=True)

    def _line(self, stage: str, calls: int, seconds: float) -> str:
        # Logarithmic, since each step of a search keeps a fraction of the calls.
        whole = math.log(self._before) or 1.0
        done = 1.0 - math.log(max(calls, 1)) / whole
        bar = ("█" * round(_WIDTH * done)).ljust(_WIDTH, "░")
        return (
            f"minify {bar} {calls:,} of {self._before:,} calls left, "
            f"{seconds:.0f} of {self._seconds:.0f} s, {stage}"
        )

    def _print(self, line: str) -> None:
        if self._terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)
