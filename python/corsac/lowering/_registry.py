"""The registry of backends, which ``corsac.compile`` and ``corsac.lower`` share."""

from __future__ import annotations

import importlib.metadata
from typing import Any

#: Entry point group of packages that provide a backend: ``name = "module:backend"``, a function or a class of
#: :class:`corsac.lowering.Backend`.
ENTRY_POINTS = "corsac_backends"
#: Registered backends by name, with their tags.
REGISTERED: dict[str, tuple[Any, tuple[str, ...]]] = {}


def provided(name: str) -> Any:
    """The backend that was registered under that name, or that an installed package provides; None if there is none."""
    if name in REGISTERED:
        return REGISTERED[name][0]
    points = importlib.metadata.entry_points(group=ENTRY_POINTS, name=name)
    return next(iter(points)).load() if points else None


def provided_tags() -> dict[str, tuple[str, ...]]:
    """The names of these backends, with their tags."""
    points = importlib.metadata.entry_points(group=ENTRY_POINTS)
    tags: dict[str, tuple[str, ...]] = {point.name: () for point in points}
    return tags | {name: own for name, (_, own) in REGISTERED.items()}


__all__ = ["ENTRY_POINTS", "REGISTERED", "provided", "provided_tags"]
