"""Markers of functions in programs for :func:`corsac.compile`."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from corsac._capture.recorder import Recorder

_F = TypeVar("_F", bound=Callable[..., Any])


class _Here(threading.local):
    """The recorder of this thread, if a program is being recorded."""

    recorder: Recorder | None = None


here = _Here()


def is_recording() -> bool:
    """Whether this thread records a program: the recording needs the operators of everything that it calls."""
    return here.recorder is not None


def keeps_control_flow() -> bool:
    """Whether this thread records a program whose control flow becomes nodes."""
    return here.recorder is not None and here.recorder.called is not None


def refuse(reason: str) -> None:
    """Refuse the program that this thread records, for this reason."""
    if here.recorder is not None:
        here.recorder.refuse(reason)


@overload
def disable(function: _F, *, reason: str | None = None) -> _F: ...
@overload
def disable(function: None = None, *, reason: str | None = None) -> Callable[[_F], _F]: ...
def disable(function: Any = None, *, reason: str | None = None) -> Any:
    """Mark ``function`` as not to be compiled: PyTorch runs it, with all that it calls.

    A compiled program that calls it is split there: the graphs before and after it are compiled, as with
    :func:`torch.compiler.disable`.

    Args:
        function: a function or a method; without it, a decorator is returned.
        reason: the reason, for ``explain()``.
    """
    if function is None:
        return functools.partial(disable, reason=reason)
    text = f"it calls {getattr(function, '__qualname__', function)}, which is not to be compiled"
    of_dynamo = None

    @functools.wraps(function)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        nonlocal of_dynamo
        if here.recorder is not None:
            here.recorder.refuse(text if reason is None else f"{text}: {reason}")
        elif (dynamo := sys.modules.get("torch._dynamo")) is not None:
            if of_dynamo is None:
                of_dynamo = dynamo.disable(function, reason=reason)
            return of_dynamo(*args, **kwargs)
        return function(*args, **kwargs)

    # Dynamo calls such functions without tracing them.
    disabled._torchdynamo_disable = True  # type: ignore[attr-defined]
    return disabled


def allow_in_graph(function: _F) -> _F:
    """Mark ``function`` as opaque: it becomes one node of graphs, and is not traced.

    It must depend on its arguments only, which are tensors and constants, return tensors or containers of tensors, and
    change nothing else. As :func:`torch.compiler.allow_in_graph`.
    """

    @functools.wraps(function)
    def in_graph(*args: Any, **kwargs: Any) -> Any:
        if here.recorder is None:
            return function(*args, **kwargs)
        return here.recorder.whole(function, args, kwargs)

    return in_graph  # type: ignore[return-value]


def assume_constant(function: _F) -> _F:
    """Mark ``function`` as constant: its result is taken to be the same in each call with the same arguments, and
    nothing that it reads is guarded.

    The function itself is marked and returned. As :func:`torch.compiler.assume_constant_result`.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def graph_break(message: str = "") -> None:
    """Split the graph of a compiled program at this call, as by ``torch._dynamo.graph_break()``; does nothing outside
    of compiled programs.

    Args:
        message: a comment for readers of the program.
    """
    function = getattr(sys.modules.get("torch._dynamo"), "graph_break", None)
    if function is not None:
        function(message)
    if here.recorder is not None:
        here.recorder.cut()


def codes() -> list[CodeType]:
    """The code of the markers, which is not recorded."""
    made = [disable(codes), allow_in_graph(codes)]
    return [own.__code__ for own in (*made, graph_break)]


def breaks() -> list[CodeType]:
    """The code of Dynamo's ``graph_break``, if Dynamo is imported."""
    # Another thread may be importing it.
    function = getattr(sys.modules.get("torch._dynamo"), "graph_break", None)
    return [] if function is None else [function.__code__]


def nothing() -> None:
    """Function of a read that has no value: a plain graph break."""


__all__ = [
    "allow_in_graph",
    "assume_constant",
    "breaks",
    "codes",
    "disable",
    "graph_break",
    "here",
    "is_recording",
]
