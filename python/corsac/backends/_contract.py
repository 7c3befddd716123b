"""What a backend is given, what it answers, and how it says no."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch

from corsac import _core
from corsac.backends._result_types import ResultTypes
from corsac.fx import GraphModule
from corsac.fx.convert import from_torch, to_torch

#: The version of the contract in docs/backends.md. The first number changes when backends have to.
CONTRACT_VERSION = "1.0"
#: What the attribute ``accepts`` of a backend may be.
GRAPHS = ("corsac.fx", "torch.fx")


@runtime_checkable
class Backend(Protocol):
    """A function from a graph and example inputs to a function that computes what the graph does.

    A plain function is a backend. It may carry two attributes: ``accepts = "torch.fx"``, to be given
    graph modules of torch.fx, and ``copies_weights = True``, to be asked again for a graph whose
    weights were written to.
    """

    def __call__(
        self, module: GraphModule, example_inputs: list[Any], /, **options: Any
    ) -> Callable[..., Any] | None:
        """Compile ``module``; None, or :class:`Declined`, leaves it to whoever asks."""


class Declined(Exception):
    """A backend cannot run a graph; the text says why. PyTorch, or the next backend, runs it."""


class BackendError(_core.CompileError):
    """A backend failed, or does not keep the contract; the text says which and what was expected."""


def name_of(backend: Any) -> str:
    """What a backend is called in messages."""
    for attribute in ("name", "__name__"):
        name = getattr(backend, attribute, None)
        if isinstance(name, str) and name:
            return name
    return backend if isinstance(backend, str) else type(backend).__name__


def accepted_by(backend: Any) -> str:
    """The graphs that ``backend`` takes.

    Raises:
        BackendError: it says something else than :data:`GRAPHS`.
    """
    accepted = getattr(backend, "accepts", GRAPHS[0])
    if accepted not in GRAPHS:
        known = " or ".join(map(repr, GRAPHS))
        raise BackendError(
            f"backend {name_of(backend)}: expected accepts to be {known}, got {accepted!r}"
        )
    return accepted


def hand_over(
    backend: Any,
    module: GraphModule | torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Ask ``backend`` for a function that computes what ``module`` does.

    The graph is converted to what the backend accepts. The function that comes back takes what the
    graph takes and returns a tuple of what it returns; that it does is looked at in each call.

    Args:
        backend: a backend, not a name; :func:`corsac.backends.lookup_backend` finds it by name.
        module: a graph that returns a tuple.
        example_inputs: one for each input of the graph.
        options: for the backend, which gets them as ``options=``.

    Raises:
        Declined: the backend does.
        BackendError: what it answers cannot be called, or there are options and it takes none.
    """
    wanted = to_torch if accepted_by(backend) == "torch.fx" else from_torch
    keywords = {} if options is None else {"options": dict(options)}
    if keywords and not _takes_options(backend):
        if options:
            given = ", ".join(map(repr, options))
            raise BackendError(f"backend {name_of(backend)} takes no options, got {given}")
        keywords = {}
    compiled = backend(wanted(module), list(example_inputs), **keywords)
    if compiled is None:
        raise Declined(f"{name_of(backend)} returned None")
    if not callable(compiled):
        raise BackendError(
            f"backend {name_of(backend)}: expected a callable, got a {type(compiled).__name__}"
        )
    types = ResultTypes(module, example_inputs)
    return CheckedCall(compiled, name_of(backend), result_count(module), types)


def _takes_options(backend: Callable[..., Any]) -> bool:
    """Whether ``backend`` can be called with ``options=``, as far as it is known."""
    try:
        parameters = inspect.signature(backend).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(own.kind is own.VAR_KEYWORD or own.name == "options" for own in parameters)


class CheckedCall:
    """What a backend compiled, and a look at what it returns.

    Attributes:
        compiled: what the backend answered.
    """

    def __init__(
        self,
        compiled: Callable[..., Any],
        backend: str,
        results: int | None,
        types: ResultTypes | None = None,
    ) -> None:
        self.compiled = compiled
        self._backend, self._results, self._types = backend, results, types

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        results = self._counted(self.compiled(*args))
        types = self._types
        if types is not None:
            fault = types.fault(results, args)
            if fault is not None:
                raise BackendError(f"backend {self._backend}: {fault}")
            # Once is enough: a backend compiles for the element types of its inputs.
            self._types = None
        return results

    def _counted(self, results: Any) -> tuple[Any, ...]:
        if type(results) is tuple and (self._results is None or len(results) == self._results):
            return results
        if not isinstance(results, tuple | list):
            raise BackendError(
                f"backend {self._backend}: expected a tuple of {self._results} results, "
                f"got a {type(results).__name__}"
            )
        if self._results is not None and len(results) != self._results:
            raise BackendError(
                f"backend {self._backend}: expected {self._results} results, got {len(results)}"
            )
        return tuple(results)


def result_count(module: Any) -> int | None:
    """How many results a graph has; None where it returns no tuple."""
    (output,) = module.graph.find_nodes(op="output")
    returned = output.args[0]
    return len(returned) if isinstance(returned, tuple | list) else None
