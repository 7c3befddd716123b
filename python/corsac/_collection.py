"""Captures without the garbage collector."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

#: So many new objects are looked through before more are made: by then they slow captures down.
CROWD = 50_000
#: How long a capture waits for those of other threads to end, in seconds.
PATIENCE = 0.5


class _Here(threading.local):
    """How many blocks this thread is in."""

    depth = 0


_changed = threading.Condition()
#: How many blocks of all threads are without it.
_blocks = 0
#: Whether it was on before the first of them.
_was_on = False
_here = _Here()


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Nothing looks for garbage in the block, whatever other threads capture meanwhile: that takes 0.2 s with
    PyTorch's objects around, ten times as long as a capture."""
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
    """Looks through new objects, if threads that capture all the time would leave no moment for it."""
    if not _blocks or _here.depth or gc.get_count()[0] < CROWD:
        return
    with _changed:
        # A thread may wait, in its block, for what this one does.
        if not _was_on or not _changed.wait_for(lambda: not _blocks, PATIENCE):
            return
    gc.collect(1)
