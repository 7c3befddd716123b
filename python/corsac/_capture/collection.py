"""Suspension of the garbage collector during captures."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

#: Number of young objects from which they are collected before a capture: by then they slow captures down.
CROWD = 50_000
#: Longest time that a capture waits for captures of other threads to end, in seconds.
PATIENCE = 0.5


class _Here(threading.local):
    """Number of blocks without collector that this thread is in."""

    depth = 0


_changed = threading.Condition()
#: Number of such blocks of all threads.
_blocks = 0
#: Whether the collector was on before the first of them.
_was_on = False
_here = _Here()


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Disable the garbage collector in the block, whatever other threads capture meanwhile: a collection takes 0.2 s
    with PyTorch's objects around, ten times as long as a capture."""
    _make_room()
    global _blocks, _was_on
    with _changed:
        if not _blocks:
            _was_on = gc.isenabled()
            gc.disable()
        _blocks += 1
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1
        with _changed:
            _blocks -= 1
            if not _blocks:
                if _was_on:
                    gc.enable()
                _changed.notify_all()


def _make_room() -> None:
    """Collect young objects, in case threads that capture all the time never let the collector run."""
    if not _blocks or _here.depth or gc.get_count()[0] < CROWD:
        return
    with _changed:
        # A thread in such a block may be waiting for this one: hence the time limit.
        if not _was_on or not _changed.wait_for(lambda: not _blocks, PATIENCE):
            return
    gc.collect(1)
