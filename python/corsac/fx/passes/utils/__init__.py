"""Building blocks of passes."""

from __future__ import annotations

from typing import Any

_COMMON = ("HolderModule", "compare_graphs", "lift_subgraph_as_module")


def __getattr__(name: str) -> Any:
    # `corsac.fx` itself imports the matchers, before graph modules exist.
    if name in _COMMON:
        from . import common

        return getattr(common, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
