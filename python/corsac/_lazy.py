"""Packages whose names are imported at first use.

Compiling a model at its first call should not wait for imports for drawing, exporting or minifying.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


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
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of, *modules})

    return load, names
