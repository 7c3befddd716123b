"""Panics of corsac's Rust: faults of corsac, which programs that it runs are not to end with.

What pyo3 makes of them derives from ``BaseException``, so that ``except Exception`` would let them through.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from corsac import _core


class EngineError(RuntimeError):
    """A native program failed where it must not: a fault of corsac."""


def told(panic: BaseException, doing: str) -> str:
    """What is said of a panic that came while corsac did something."""
    return f"corsac panicked while {doing}, which is a fault of corsac: {panic}"


@contextmanager
def as_compile_error(doing: str) -> Iterator[None]:
    """Raises panics in the block as :class:`corsac.CompileError`; ``doing`` says what it does."""
    try:
        yield
    except _core.PanicException as panic:
        raise _core.CompileError(told(panic, doing)) from panic
