"""Calls of native programs with tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from corsac import _core
from corsac._native.panic import EngineError, panic_message

#: The activity, for messages about panics of programs.
RUNNING = "it ran a native program"


class NativeCall:
    """A program of the engine as a function of CPU tensors, of the types it was made for.

    Arguments that are not tensors are constants of the program, and ignored. Results are new tensors.

    Raises:
        ValueError: an input has another type than the program takes, or an operator refuses its values.
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
            raise EngineError(panic_message(panic, RUNNING)) from panic
        observer(self.program, seconds)
        return results


Observer = Callable[[_core.NativeProgram, list[float]], None]
_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)


def is_observed() -> bool:
    """Whether the programs that this thread runs are observed."""
    return _observer.get() is not None


@contextlib.contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Call ``observer`` with each program that this thread runs in the block, and the seconds of its steps."""
    token = _observer.set(observer)
    _core.observe_calls(True)
    try:
        yield
    finally:
        _core.observe_calls(False)
        _observer.reset(token)
