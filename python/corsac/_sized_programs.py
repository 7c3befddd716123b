"""The programs of a model that corsac can only capture for the sizes of a call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch

from corsac import _core
from corsac._collection import no_collection
from corsac._native_graph import Compiled, CompileError, NativeGraph
from corsac._panic import as_compile_error
from corsac._sized_capture import SizedCapture, sized_capture
from corsac.fx.proxy import TraceError
from corsac.lowering import LoweringError
from corsac.passes import fold_constants

#: For how many sets of sizes a model is captured. Dynamo, whose sizes are symbols from then on, takes as long
#: as some fifty captures.
LIMIT = 4
#: What may be given besides tensors: a graph is for these values.
_CONSTANTS = (type(None), bool, int, str, torch.dtype, torch.device)


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a call.

    Attributes:
        tensors: those that are tensors, each once.
        key: types and sizes of tensors, and what the others are.
    """

    tensors: tuple[torch.Tensor, ...]
    key: Any

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Self | None:
        """The call with these arguments; None if one is neither a tensor nor a constant."""
        tensors: dict[int, torch.Tensor] = {}
        key: list[Any] = []
        for own in (*args, *kwargs.values()):
            if isinstance(own, torch.Tensor):
                if id(own) in tensors:
                    # Programs may ask whether two of their arguments are one.
                    key.append(("the same as", list(tensors).index(id(own))))
                else:
                    tensors[id(own)] = own
                    key.append((own.dtype, own.shape))
            elif type(own) is float:
                # Zero has two signs.
                key.append((float, own.hex()))
            elif type(own) in _CONSTANTS:
                key.append((type(own), own))
            else:
                return None
        return cls(tuple(tensors.values()), (tuple(kwargs), tuple(key)))

    def describe(self) -> str:
        """Sizes and constants, as text."""
        names, own = self.key
        first = len(own) - len(names)
        texts = [_described(kind, value) for kind, value in own]
        named = [f"{name}={text}" for name, text in zip(names, texts[first:], strict=True)]
        return ", ".join([*texts[:first], *named])


def _described(kind: Any, value: Any) -> str:
    if isinstance(kind, torch.dtype):
        return str(list(value))
    return f"{kind} {value}" if isinstance(kind, str) else str(value)


@dataclass(frozen=True, slots=True)
class SizedProgram:
    """What runs calls of some sizes."""

    call: Call
    capture: SizedCapture
    graph: NativeGraph
    compiled: Compiled

    def __call__(self, tensors: tuple[torch.Tensor, ...]) -> Any:
        return self.capture.rebuilt(self.compiled.run(*tensors))


class SizedPrograms:
    """Programs for the sizes that a model was called with, each with a graph of its own.

    Args:
        model: has the weights, and stays as it is.
        program: what is called; the model itself, or a function.
        precision: as for :func:`corsac.compile`.
        limit: how many sets of sizes there may be.
    """

    def __init__(
        self, model: torch.nn.Module, program: Callable[..., Any], precision: str, limit: int
    ) -> None:
        self._model, self._program = model, program
        self._precision, self._limit = precision, limit
        self._programs: dict[Any, SizedProgram | TraceError] = {}
        self._last: NativeGraph | None = None
        # Captures take turns: each looks whether the model is left as it was.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self.programs())

    @property
    def is_full(self) -> bool:
        """Whether there are as many as there may be."""
        return len(self._programs) >= self._limit

    def programs(self) -> list[SizedProgram]:
        """All that there are."""
        return [own for own in list(self._programs.values()) if isinstance(own, SizedProgram)]

    def refuse(self, call: Call, reason: str) -> None:
        """Have calls like this one go elsewhere: the program for them panicked."""
        self._programs[call.key] = TraceError(reason)

    def program(
        self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[SizedProgram, bool] | TraceError:
        """The program for a call, and whether it was made just now; or why there is none.

        Args:
            call: what the arguments are.
            args: the arguments.
            kwargs: the others.
        """
        found = self._programs.get(call.key)
        if isinstance(found, SizedProgram):
            return found, False
        if found is not None:
            return found
        with self._lock:
            found = self._programs.get(call.key)
            if isinstance(found, SizedProgram):
                return found, False
            if found is not None:
                return found
            if self.is_full:
                return TraceError(f"it was called with more than {self._limit} sets of sizes")
            try:
                with as_compile_error("it compiled a program for sizes"), no_collection():
                    made = self._made(call, args, kwargs)
            except (TraceError, CompileError, LoweringError, _core.ShapeInferenceError) as error:
                # A new one: the error knows frames, which have the arguments.
                failed = self._programs[call.key] = TraceError(str(error))
                return failed
            self._programs[call.key] = made
            return made, True

    def _made(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SizedProgram:
        start = time.perf_counter()
        with torch.no_grad():
            capture = sized_capture(self._model, self._program, args, kwargs)
            fold_constants(capture.module)
        graph = NativeGraph(
            capture.module, precision=self._precision, strict=False, after=self._last
        )
        run, preview = graph.compile(call.tensors, whole=False)
        seconds = time.perf_counter() - start
        kept = graph.is_kept(run, call.tensors)
        self._last = graph
        known = Call((), call.key)
        return SizedProgram(
            known, capture, graph, Compiled(run, seconds, preview, kept, sized=True)
        )


__all__ = ["LIMIT", "Call", "SizedProgram", "SizedPrograms"]
