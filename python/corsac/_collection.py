"""Captures without the garbage collector."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
#: How many blocks of all threads are without it.
_blocks = 0
#: Whether it was on before the first of them.
_was_on = False


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Nothing looks for garbage in the block, whatever other threads capture meanwhile: that takes 0.2 s with
    PyTorch's objects around, ten times as long as a capture."""
    global _blocks, _was_on
    with _lock:
        if not _blocks:
            _was_on = gc.isenabled()
            gc.disable()
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks and _was_on:
                gc.enable()
