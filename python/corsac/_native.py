"""Programs of the engine, called with tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch

from corsac import _core
from corsac._run import chosen_threads, filled


class NativeCall:
    """A program of the engine as a function of tensors on the CPU, of the types it was made for.

    Arguments that are no tensors were compiled in, and are ignored. Results are new tensors.
    """

    def __init__(self, program: _core.NativeProgram) -> None:
        self.program = program
        dtypes = [getattr(torch, name) for name in program.output_dtypes]
        self._results = list(zip(program.output_shapes, dtypes, strict=True))
        self._output = program.output()

    def __call__(self, *arguments: Any) -> Any:
        results = [torch.empty(shape, dtype=dtype) for shape, dtype in self._results]
        inputs = [
            _array(argument.detach().contiguous())
            for argument in arguments
            if isinstance(argument, torch.Tensor)
        ]
        outputs = [_array(result) for result in results]
        threads = chosen_threads() or torch.get_num_threads()
        observer = _observer.get()
        if observer is None:
            self.program.run(inputs, outputs, threads)
        else:
            observer(self.program, self.program.profile(inputs, outputs, threads))
        return filled(self._output, results)


Observer = Callable[[_core.NativeProgram, list[float]], None]
_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextlib.contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Calls ``observer`` with each program that this thread runs, and the seconds of its steps."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def _array(tensor: torch.Tensor) -> Any:
    flat = tensor.view(-1)
    return (flat.view(torch.uint8) if flat.dtype is torch.bool else flat).numpy()
