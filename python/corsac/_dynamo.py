"""``torch.compile(model, backend="corsac")``: graphs that Dynamo captures, run by the engine."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import importlib.abc

_REGISTRY = "torch._dynamo.backends.registry"


def backend(
    module: Any,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of Dynamo for the engine.

    If autograd records it, AOTAutograd makes a forward and a backward graph, which run natively where
    that is faster. Operators that the engine cannot run are run by PyTorch; if these are all of a graph
    for inference, with a :class:`corsac.HostWarning` that gives the reason.

    Args:
        module: the graph, a ``torch.fx.GraphModule``.
        example_inputs: its inputs, which decide whether autograd records; programs are made for the shapes of calls.
        options: ``precision``, ``inference``, ``training`` and ``partition``, of :mod:`corsac._native.options`.
        mode: the mode of ``torch.compile``; ignored, since there is one way to compile.

    Returns:
        A function of the graph's inputs.

    Raises:
        ValueError: an unknown option.
    """
    # Not at the top: ``import corsac`` needs no torch, and no program that does not use Dynamo needs them.
    from corsac._native.options import Settings, checked_options
    from corsac.backends import _pieces
    from corsac.backends._watching import watched

    checked_options(options)
    piece = _pieces.piece_for(module, example_inputs, Settings(**(options or {})))
    return watched("engine", module, example_inputs, options, lambda: piece)


class _AfterImport:
    """Registers the backend once Dynamo's registry of backends is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Registering(spec.loader)
        return spec


class _Registering:
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        self._loader.exec_module(module)
        _add_to(module)


def _add_to(registry: types.ModuleType) -> None:
    if registry._BACKENDS.get("corsac") is not None:
        # Dynamo has found the entry point, through which it may be importing corsac just now: it registers
        # that one itself, and registering twice is an error.
        return
    if "corsac" not in registry._COMPILER_FNS:
        registry.register_backend(backend, name="corsac")


def register() -> None:
    """Register ``backend="corsac"`` for ``torch.compile``, without importing Dynamo.

    An installed package is found by its entry point; this is for packages that are not installed.
    """
    registry = sys.modules.get(_REGISTRY)
    if registry is not None:
        _add_to(registry)
    elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())
