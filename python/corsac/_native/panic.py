"""Panics of corsac's Rust code: faults of corsac, which must not end the user's program.

pyo3 raises them as a subclass of ``BaseException``, which ``except Exception`` does not catch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from corsac import _core


class EngineError(RuntimeError):
    """A native program failed unexpectedly: a fault of corsac."""


def panic_message(panic: BaseException, doing: str) -> str:
    """Message about a panic; ``doing`` names the activity during which it occurred."""
    return f"corsac panicked while {doing}, which is a fault of corsac: {panic}"


@contextmanager
def as_compile_error(doing: str) -> Iterator[None]:
    """Raise panics in the block as :class:`corsac.CompileError`; ``doing`` names the activity."""
    try:
        yield
    except _core.PanicException as panic:
        raise _core.CompileError(panic_message(panic, doing)) from panic
