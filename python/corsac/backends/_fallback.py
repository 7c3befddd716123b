"""Fallback backends: the first of several backends that can compiles a graph."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from corsac.backends._contract import Declined, hand_over
from corsac.backends._registry import lookup_backend
from corsac.fx import GraphModule
from corsac.fx._own_copy import own_copy
from corsac.fx.convert import from_torch
from corsac.lowering._backend import name_of


class Fallback:
    """A backend made by :func:`fallback`.

    Attributes:
        backends: pairs of a name and a backend, in order.
    """

    def __init__(self, backends: Sequence[Any]) -> None:
        self.backends = [(name_of(own), lookup_backend(own)) for own in backends]
        self.name = self.__name__ = f"fallback({', '.join(name for name, _ in self.backends)})"

    @property
    def copies_weights(self) -> bool:
        """Whether one of the backends copies weights."""
        return any(getattr(own, "copies_weights", False) for _, own in self.backends)

    def __call__(self, module: GraphModule, example_inputs: Sequence[Any]) -> Chosen:
        """Compile with the first backend that does not decline or fail.

        Raises:
            Declined: all of them declined or failed; the message has the reason of each.
        """
        module = from_torch(module)
        declined: list[tuple[str, str]] = []
        for name, backend in self.backends:
            try:
                # A copy: a backend may change the graph before it gives up.
                compiled = hand_over(backend, own_copy(module), example_inputs)
            except Declined as error:
                declined.append((name, str(error)))
            except Exception as error:
                if _restarts(error):
                    raise
                declined.append((name, f"{type(error).__name__}: {_first_line(error)}"))
            else:
                return Chosen(name, compiled, tuple(declined))
        raise Declined("; ".join(f"{name}: {reason}" for name, reason in declined))

    def __repr__(self) -> str:
        return f"<backend {self.name}>"


def _restarts(error: Exception) -> bool:
    """Whether ``error`` makes Dynamo capture the program again, for the backend that raised it."""
    exceptions = sys.modules.get("torch._dynamo.exc")
    return exceptions is not None and isinstance(error, exceptions.RestartAnalysis)


class Chosen:
    """The function compiled by the first backend that did not decline.

    Attributes:
        backend: its name.
        compiled: the compiled function.
        declined: the backends before it, each with its reason.
    """

    def __init__(
        self, backend: str, compiled: Callable[..., Any], declined: tuple[tuple[str, str], ...]
    ) -> None:
        self.backend, self.compiled, self.declined = backend, compiled, declined

    def __call__(self, *args: Any) -> Any:
        return self.compiled(*args)


def fallback(backends: Sequence[Any]) -> Fallback:
    """A backend that tries ``backends`` in order; :func:`explain` shows why each declined.

    Args:
        backends: names or functions. Raising an exception counts as declining.

    Raises:
        UnknownBackend: a name is unknown.
        ValueError: the list is empty.
    """
    if isinstance(backends, str):
        raise TypeError(f"expected a list of backends, got the string {backends!r}")
    if not backends:
        raise ValueError("expected at least one backend, got none")
    return Fallback(backends)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")


__all__ = ["Chosen", "Fallback", "fallback"]
