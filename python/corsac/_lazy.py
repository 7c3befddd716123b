"""Packages whose names are imported when they are first used.

What compiles a model at its first call should not wait for what draws, exports or minifies one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of ``package``, whose names come from ``homes``: its own modules,
    each with the names that it has. Some ``modules`` are names themselves."""
    home_of = {name: f"{package}.{home}" for home, names in homes.items() for name in names}

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
