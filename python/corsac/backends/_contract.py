"""The contract of backends: arguments, results, and refusals."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch

from corsac import _core
from corsac.backends._result_types import ResultTypes
from corsac.fx import GraphModule
from corsac.fx.convert import from_torch, to_torch
from corsac.lowering._backend import name_of

#: The version of the contract in docs/backends.md. The first number changes if backends have to change.
CONTRACT_VERSION = "1.0"
#: Values of the attribute ``accepts`` of a backend.
GRAPHS = ("corsac.fx", "torch.fx")


@runtime_checkable
class Backend(Protocol):
    """A function of a graph and example inputs that returns a function with the same computation.

    A plain function is a backend. It may have two attributes: ``accepts = "torch.fx"`` to get graph
    modules of torch.fx, and ``copies_weights = True`` to be called again for a graph whose weights
    were written to.
    """

    def __call__(
        self, module: GraphModule, example_inputs: list[Any], /, **options: Any
    ) -> Callable[..., Any] | None:
        """Compile ``module``; return None or raise :class:`Declined` to leave it to the caller."""


class Declined(Exception):
    """A backend cannot run a graph; the message gives the reason. PyTorch, or the next backend, runs it."""


class BackendError(_core.CompileError):
    """A backend failed, or broke the contract; the message names it and what was expected."""


def accepted_by(backend: Any) -> str:
    """The kind of graphs that ``backend`` takes, one of :data:`GRAPHS`.

    Raises:
        BackendError: its attribute ``accepts`` has another value.
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
    """Compile ``module`` with ``backend``.

    The graph is converted to the kind that the backend accepts. The returned function takes the
    inputs of the graph and returns its results as a tuple, which is checked in each call.

    Args:
        backend: a backend, not a name; :func:`corsac.backends.lookup_backend` finds it by name.
        module: a graph that returns a tuple.
        example_inputs: one for each input of the graph.
        options: options for the backend, passed as ``options=``.

    Raises:
        Declined: the backend declined the graph.
        BackendError: its result is not callable, or there are options and it takes none.
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
    """Whether ``backend`` can be called with ``options=``; true if its signature is unknown."""
    try:
        parameters = inspect.signature(backend).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(own.kind is own.VAR_KEYWORD or own.name == "options" for own in parameters)


class CheckedCall:
    """A function compiled by a backend, with a check of its results.

    Attributes:
        compiled: the function returned by the backend.
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
            # Checked once: a backend compiles for the element types of its inputs.
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
    """Number of results of a graph; None if it does not return a tuple."""
    (output,) = module.graph.find_nodes(op="output")
    returned = output.args[0]
    return len(returned) if isinstance(returned, tuple | list) else None
