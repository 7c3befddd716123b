"""The registry of backends, by name."""

from __future__ import annotations

import difflib
import functools
import importlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, overload

from corsac.backends._contract import Backend
from corsac.lowering._backend import RUNTIMES, is_lowering_backend, name_of
from corsac.lowering._registry import ENTRY_POINTS, REGISTERED, provided, provided_tags

#: Prefix of the names of torch.compile's own backends.
TORCH_PREFIX = "torch:"
#: The default of :func:`corsac.compile`.
ENGINE = "engine"

_BUILT_IN = {
    ENGINE: ("corsac.backends._engine:engine", ()),
    "eager": ("corsac.backends._eager:eager", ("debug",)),
    "debug": ("corsac.backends._eager:debug", ("debug",)),
    "aot_eager": ("corsac.backends._aot:aot_eager", ("debug",)),
}
# The engine is a backend of its own here, ``engine``.
_NAMES_OF_RUNTIMES = [name for name in RUNTIMES if name != "corsac"]
# Installation hints, by the last part of the name.
_INSTALL = {
    "hidet": "pip install hidet",
    "onnxruntime": "pip install onnx onnxruntime",
    "openvino": "pip install onnx openvino",
    "openxla": "pip install torch_xla",
    "tensorrt": "pip install onnx onnxruntime-gpu tensorrt",
    "torch_tensorrt": "pip install torch-tensorrt, then torch:torch_tensorrt",
    "tvm": "pip install apache-tvm, then torch:tvm",
}

_lock = threading.Lock()
_default: Any = ENGINE
_B = TypeVar("_B", bound=Callable[..., Any])


class UnknownBackend(ValueError):
    """There is no backend of that name; the message lists the known ones."""


@overload
def register_backend(backend: _B, name: str | None = None, tags: Sequence[str] = ()) -> _B: ...
@overload
def register_backend(
    backend: None = None, name: str | None = None, tags: Sequence[str] = ()
) -> Callable[[_B], _B]: ...
def register_backend(backend: Any = None, name: str | None = None, tags: Sequence[str] = ()) -> Any:
    """Make ``corsac.compile(model, backend=name)`` use ``backend``.

    A decorator, with arguments or without, or an ordinary call::

        @register_backend
        def mine(module, example_inputs): ...

    Args:
        backend: a function of a graph module and example inputs, see docs/backends.md; or a
            :class:`corsac.lowering.Backend` or a class of them, which ``corsac.lower`` takes, too.
        name: its name; by default that of the function, or the attribute ``name``.
        tags: tags by which :func:`list_backends` can exclude it: ``"debug"``, ``"experimental"``, others.

    Returns:
        ``backend``, or a decorator if it is not given.

    Raises:
        TypeError: ``backend`` is neither a function nor a lowering backend, or has no name and none is given.
        ValueError: there is a backend of that name.
    """
    if backend is None:
        return functools.partial(register_backend, name=name, tags=tags)
    if not callable(backend) and not is_lowering_backend(backend):
        raise TypeError(f"expected a backend that can be called, got a {type(backend).__name__}")
    own = name or getattr(backend, "__name__", None) or getattr(backend, "name", None)
    if name is None and is_lowering_backend(backend):
        own = name_of(backend)
    if not isinstance(own, str) or not own:
        raise TypeError(f"expected name=, as a {type(backend).__name__} has no name of its own")
    if own.startswith(TORCH_PREFIX):
        raise ValueError(f"expected a name of your own, got {own!r}: {TORCH_PREFIX} is PyTorch's")
    with _lock:
        if own in _BUILT_IN or own in RUNTIMES or own in REGISTERED:
            raise ValueError(f"there is a backend {own!r}: expected another name")
        REGISTERED[own] = (backend, tuple(tags))
    return backend


def unregister_backend(name: str) -> None:
    """Remove a registered backend.

    Raises:
        UnknownBackend: none of that name was registered.
    """
    with _lock:
        if REGISTERED.pop(name, None) is None:
            known = ", ".join(sorted(REGISTERED)) or "none"
            raise UnknownBackend(f"no backend {name!r} was registered; there are: {known}")


def list_backends(exclude_tags: Iterable[str] | None = ("debug", "experimental")) -> list[str]:
    """The names that ``corsac.compile(model, backend=…)`` takes, sorted.

    Args:
        exclude_tags: backends with one of these tags are left out; None or ``()`` lists all.
    """
    excluded = set(exclude_tags or ())
    tags = _all_tags()
    return sorted(name for name, own in tags.items() if not excluded.intersection(own))


def lookup_backend(backend: Any) -> Backend:
    """The backend of that name; a function is returned as it is.

    A name unknown to corsac is looked up among torch.compile's, so that ``"inductor"`` is
    ``"torch:inductor"``.

    Raises:
        UnknownBackend: there is none; the message lists the known ones, similar names, and an
            installation hint, if there is one.
        TypeError: it is neither a name nor a function nor a lowering backend.
    """
    if not isinstance(backend, str):
        if is_lowering_backend(backend):
            return _of_runtime(backend, name_of(backend))
        if not callable(backend):
            raise TypeError(
                f"expected the name of a backend or a function, got a {type(backend).__name__}"
            )
        return backend
    if backend.startswith(TORCH_PREFIX):
        found = _of_torch(backend.removeprefix(TORCH_PREFIX))
    else:
        found = _of_corsac(backend) or _of_torch(backend)
    if found is None:
        raise UnknownBackend(_unknown(backend))
    return found


def registered(name: str) -> Any:
    """The backend registered under that name by :func:`register_backend`, or None."""
    backend, _ = REGISTERED.get(name, (None, ()))
    return backend


def get_default_backend() -> Any:
    """The default backend of :func:`corsac.compile`: a name or a function."""
    return _default


def set_default_backend(backend: Any) -> None:
    """Set the default backend of :func:`corsac.compile`.

    Args:
        backend: a name, a function or a lowering backend; None for the engine, which is the initial default.

    Raises:
        UnknownBackend: there is none of that name.
        TypeError: it is none of these.
    """
    global _default
    if backend is not None:
        lookup_backend(backend)
    _default = ENGINE if backend is None else backend


def _of_corsac(name: str) -> Any:
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name][0].partition(":")
        return getattr(importlib.import_module(module), attribute)
    found = provided(name)
    if found is None and name in _NAMES_OF_RUNTIMES:
        found = name
    if isinstance(found, str) or is_lowering_backend(found):
        return _of_runtime(found, name)
    if found is not None and not callable(found):
        raise TypeError(
            f"entry point {name!r} of {ENTRY_POINTS}: expected a function or a class of "
            f"corsac.lowering.Backend, got a {type(found).__name__}"
        )
    return found


def _of_runtime(runtime: Any, name: str) -> Backend:
    from corsac.backends._runtime import RuntimeBackend

    return RuntimeBackend(runtime, name)


def _of_torch(name: str) -> Any:
    from corsac.backends._torch_backend import TorchBackend, names_and_tags

    return TorchBackend(name) if name in names_and_tags() else None


def _all_tags() -> dict[str, tuple[str, ...]]:
    from corsac.backends._torch_backend import names_and_tags

    tags = {TORCH_PREFIX + name: own for name, own in names_and_tags().items()}
    tags |= {name: () for name in _NAMES_OF_RUNTIMES}
    return tags | provided_tags() | {name: own for name, (_, own) in _BUILT_IN.items()}


def _unknown(name: str) -> str:
    wanted = name.rpartition(":")[2].lower()
    known = list_backends(exclude_tags=None)
    # Those of corsac come last, and take precedence over torch.compile's of the same name.
    by_ending = {own.rpartition(":")[2].lower(): own for own in sorted(known, key=_is_of_corsac)}
    text = f"there is no backend {name!r}"
    close = [by_ending[own] for own in difflib.get_close_matches(wanted, by_ending, n=2)]
    if close:
        text += f", did you mean {' or '.join(close)}?"
    for own in [wanted] if wanted in _INSTALL else difflib.get_close_matches(wanted, _INSTALL, n=1):
        text += f"; to get {own}: {_INSTALL[own]}"
    shown = sorted({own for own in known if _is_of_corsac(own)} | set(list_backends()))
    return f"{text}; there are: {', '.join(shown)} (all: list_backends(exclude_tags=()))"


def _is_of_corsac(name: str) -> bool:
    return not name.startswith(TORCH_PREFIX)


__all__ = [
    "ENTRY_POINTS",
    "UnknownBackend",
    "get_default_backend",
    "list_backends",
    "lookup_backend",
    "name_of",
    "register_backend",
    "set_default_backend",
    "unregister_backend",
]
