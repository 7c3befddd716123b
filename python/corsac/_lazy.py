"""Packages whose names are imported at first use.

Compiling a model at its first call should not wait for imports for drawing, exporting or minifying.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def torch_is_missing(name: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The error of a name that needs PyTorch, for one that an import has raised; that one if something else is missing."""
    if error.name != "torch":
        return error
    return ModuleNotFoundError(
        f"{name} needs PyTorch, 2.6 or later: pip install 'corsac[fx]'", name="torch"
    )


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for ``package``.

    Args:
        package: the name of the package.
        homes: modules of the package, or of another by their full names, each with the names that it defines.
        modules: modules that are names of the package themselves.
    """
    home_of = {
        name: home if home.startswith("corsac.") else f"{package}.{home}"
        for home, names in homes.items()
        for name in names
    }

    def load(name: str) -> Any:
        home = f"{package}.{name}" if name in modules else home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(home)
        except ModuleNotFoundError as error:
            raise torch_is_missing(f"{package}.{name}", error) from error
        if name in modules:
            return module
        value = getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of, *modules})

    return load, names
