"""The interface of lowering backends, and their registry."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from corsac.fx import Node
from corsac.fx.graph_module import GraphModule

#: Entry point group of packages that provide a backend: ``name = "module:BackendClass"``.
ENTRY_POINTS = "corsac.lowering"


class LoweringError(RuntimeError):
    """A program cannot be lowered; the message names the node, part or input, and the reason."""


class Backend(ABC):
    """A device or runtime that can run parts of programs.

    ``supports`` and ``compile`` get types: the type of a tensor is a
    :class:`corsac.lowering.TensorType` with ``dtype`` and ``shape`` (numbers, or
    :class:`corsac.analysis.Dim` for symbolic sizes); any other value is its own type.

    Attributes:
        name: the registered name.
        apart: whether inputs never share memory with weights, so that writes to inputs never change weights.
    """

    name: str = ""
    apart: bool = False

    def available(self) -> str | None:
        """Reason why the backend cannot be used here; None if it can."""
        return None

    def prepare(self, module: GraphModule) -> None:
        """Prepare for ``module``; called before :meth:`supports` is called for its nodes."""
        del module

    @abstractmethod
    def supports(self, node: Node, types: Mapping[Node, Any]) -> bool | str:
        """Whether the backend computes ``node`` exactly: True, or the reason why not.

        Called for nodes that only compute a value: a node that writes to a value that is read later,
        uses random numbers or is unknown stays on the host in any case.
        """

    @abstractmethod
    def compile(self, part: GraphModule, types: Sequence[Any]) -> Callable[..., Any]:
        """A function that computes ``part``, for arguments of these types.

        It must be thread-safe, and its results must own their memory.
        """


_REGISTERED: dict[str, Callable[..., Backend] | str] = {
    "corsac": "corsac.lowering._engine:Engine",
    "onnxruntime": "corsac.lowering._onnxruntime:OnnxRuntime",
    "openvino": "corsac.lowering._openvino:OpenVino",
    "tensorrt": "corsac.lowering._tensorrt:TensorRT",
}


def register_backend(name: str, factory: Callable[..., Backend], *, replace: bool = False) -> None:
    """Make ``corsac.lower(model, name, …)`` use the backend that ``factory(**options)`` returns.

    Raises:
        ValueError: there is a backend of that name, and ``replace`` is not set.
    """
    if name in _all() and not replace:
        raise ValueError(f"there is a backend {name!r}: replace=True puts another in its place")
    _REGISTERED[name] = factory


def _all() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        found[point.name] = point
    return found | _REGISTERED


def backends() -> dict[str, str | None]:
    """The backends by name, with None if usable here, or else the reason why not."""
    result = {}
    for name in sorted(_all()):
        try:
            result[name] = make_backend(name, {}).available()
        except Exception as error:  # of a package that is not ours
            result[name] = f"{type(error).__name__}: {error}"
    return result


def make_backend(backend: str | Backend, options: Mapping[str, Any]) -> Backend:
    """The backend of that name, constructed with ``options``.

    Raises:
        ValueError: there is no backend of that name.
        TypeError: it does not have these options.
    """
    if isinstance(backend, Backend):
        if options:
            raise TypeError("options are for backends named by a string; this one is made already")
        return backend
    known = _all()
    if backend not in known:
        raise ValueError(f"there is no backend {backend!r}; there are {', '.join(sorted(known))}")
    factory = known[backend]
    if isinstance(factory, importlib.metadata.EntryPoint):
        factory = factory.load()
    elif isinstance(factory, str):
        module, _, attribute = factory.partition(":")
        factory = getattr(importlib.import_module(module), attribute)
    _check_options(backend, factory, options)
    made = factory(**options)
    made.name = made.name or backend
    return made


def _check_options(name: str, factory: Callable[..., Backend], options: Mapping[str, Any]) -> None:
    """Raise ``TypeError`` for options that ``factory`` does not have."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return
    if any(own.kind is own.VAR_KEYWORD for own in parameters):
        return
    known = sorted(own.name for own in parameters if own.kind is not own.VAR_POSITIONAL)
    unknown = [own for own in options if own not in known]
    if unknown:
        given, there = ", ".join(map(repr, unknown)), ", ".join(known) or "none"
        raise TypeError(f"{name} has no option {given}; there are: {there}")


def require(backend: Backend) -> None:
    """Check that ``backend`` can be used here.

    Raises:
        LoweringError: it cannot; the message gives the reason.
    """
    reason = backend.available()
    if reason is not None:
        raise LoweringError(f"the backend {backend.name} cannot be used here: {reason}")
