"""The interface of lowering backends, and those of corsac."""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from corsac.fx import Node
from corsac.fx.graph_module import GraphModule
from corsac.lowering._registry import provided, provided_tags


class LoweringError(RuntimeError):
    """A program cannot be lowered; the message names the node, part or input, and the reason."""


class Backend(ABC):
    """A device or runtime that can run parts of programs.

    ``supports`` and ``compile`` get types: the type of a tensor is a
    :class:`corsac.lowering.TensorType` with ``dtype`` and ``shape`` (numbers, or
    :class:`corsac.analysis.Dim` for symbolic sizes); any other value is its own type.

    Attributes:
        name: the name under which it is registered; by default that of the class.
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


#: The classes of corsac's own backends.
RUNTIMES = {
    "corsac": "corsac.lowering._engine:Engine",
    "onnxruntime": "corsac.lowering._onnxruntime:OnnxRuntime",
    "openvino": "corsac.lowering._openvino:OpenVino",
    "tensorrt": "corsac.lowering._tensorrt:TensorRT",
}


def is_lowering_backend(own: Any) -> bool:
    """Whether it is a :class:`Backend`, or a class of them."""
    return isinstance(own, Backend) or (isinstance(own, type) and issubclass(own, Backend))


def backends() -> dict[str, str | None]:
    """The backends by name, with None if usable here, or else the reason why not."""
    result = {}
    for name, own in sorted(_found().items()):
        try:
            if isinstance(own, Exception):
                raise own
            result[name] = make_backend(own, {}).available()
        except Exception as error:  # of a package that is not ours
            result[name] = f"{type(error).__name__}: {error}"
    return result


def _found() -> dict[str, Any]:
    """The backends by name: ours by their names, others loaded, or the exception that this has raised."""
    found: dict[str, Any] = {name: name for name in RUNTIMES}
    for name in provided_tags().keys() - RUNTIMES.keys():
        try:
            own = provided(name)
        except Exception as error:  # of a package that is not ours
            own = error
        if is_lowering_backend(own) or isinstance(own, Exception):
            found[name] = own
    return found


def make_backend(
    backend: str | Backend | type[Backend], options: Mapping[str, Any], name: str | None = None
) -> Backend:
    """The backend of that name or class, constructed with ``options``.

    Args:
        backend: a name, a class, or a backend that is made already.
        options: arguments of the class.
        name: the name that it gets if it has none; by default ``backend`` or the name of the class.

    Raises:
        ValueError: there is no backend of that name.
        TypeError: it does not have these options.
    """
    found: Any = _of_name(backend) if isinstance(backend, str) else backend
    is_made = isinstance(found, Backend)
    if is_made and options:
        raise TypeError("options are for names and classes of backends; this one is made already")
    if name is None:
        name = backend if isinstance(backend, str) else name_of(found)
    if not is_made:
        _check_options(name, found, options)
    made: Backend = found if is_made else found(**options)
    made.name = made.name or name
    return made


def name_of(backend: Any) -> str:
    """Name of a backend, for messages: its attribute ``name``, that of the function or class, or the string itself."""
    for attribute in ("name", "__name__"):
        name = getattr(backend, attribute, None)
        if isinstance(name, str) and name:
            return name
    return backend if isinstance(backend, str) else type(backend).__name__


def _of_name(name: str) -> Any:
    if name in RUNTIMES:
        module, _, attribute = RUNTIMES[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    found = provided(name)
    if is_lowering_backend(found):
        return found
    what = "no backend" if found is None else "no backend for parts of programs"
    raise ValueError(f"there is {what} {name!r}; there are {', '.join(sorted(_found()))}")


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
