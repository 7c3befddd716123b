"""corsac: torch.fx, written in Rust.

``corsac.fx`` mirrors :mod:`torch.fx` and needs torch; ``import corsac`` alone does not. What stands
here besides is loaded when it is used first.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from corsac import _dynamo
from corsac._core import __version__

if TYPE_CHECKING:
    from corsac import backends
    from corsac._compile import CompileError, HostWarning, compile
    from corsac._drawing import draw, draw_diff
    from corsac._engine_profile import profile
    from corsac._model_file import ModelFileError, NumpyModel, load
    from corsac._saving import save
    from corsac.analysis import summary
    from corsac.config import build, describe
    from corsac.lowering import lower
    from corsac.minifier import minify

# The functions of this package, and the module that each comes from.
_HOMES = {
    "CompileError": "corsac._compile",
    "HostWarning": "corsac._compile",
    "ModelFileError": "corsac._model_file",
    "NumpyModel": "corsac._model_file",
    "build": "corsac.config",
    "compile": "corsac._compile",
    "describe": "corsac.config",
    "draw": "corsac._drawing",
    "draw_diff": "corsac._drawing",
    "load": "corsac._model_file",
    "lower": "corsac.lowering",
    "minify": "corsac.minifier",
    "profile": "corsac._engine_profile",
    "save": "corsac._saving",
    "summary": "corsac.analysis",
}

__all__ = [
    "CompileError",
    "HostWarning",
    "ModelFileError",
    "NumpyModel",
    "__version__",
    "backends",
    "build",
    "compile",
    "describe",
    "draw",
    "draw_diff",
    "load",
    "lower",
    "minify",
    "profile",
    "save",
    "summary",
]

# torch.compile(model, backend="corsac")
_dynamo.register()


def __getattr__(name: str) -> Any:
    if name == "backends":
        return importlib.import_module("corsac.backends")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "backends"})
