"""Programs of the engine, called with tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from corsac import _core
from corsac._panic import EngineError, told

#: What a program does that panics.
RUNNING = "it ran a native program"


class NativeCall:
    """A program of the engine as a function of tensors on the CPU, of the types it was made for.

    Arguments that are no tensors were compiled in, and are ignored. Results are new tensors.

    Raises:
        ValueError: an input is not what the program takes, or an operator refuses what is in it.
        EngineError: the program panicked.
    """

    def __init__(self, program: _core.NativeProgram) -> None:
        self.program = program

    def __call__(self, *arguments: Any) -> Any:
        observer = _observer.get()
        try:
            if observer is None:
                return self.program(*arguments)
            results, seconds = self.program.profile(*arguments)
        except _core.PanicException as panic:
            raise EngineError(told(panic, RUNNING)) from panic
        observer(self.program, seconds)
        return results


Observer = Callable[[_core.NativeProgram, list[float]], None]
_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)


def is_observed() -> bool:
    """Whether somebody looks at the programs that this thread runs."""
    return _observer.get() is not None


@contextlib.contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Calls ``observer`` with each program that this thread runs, and the seconds of its steps."""
    token = _observer.set(observer)
    _core.observe_calls(True)
    try:
        yield
    finally:
        _core.observe_calls(False)
        _observer.reset(token)
