"""The passes by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Pass = TypeVar("_Pass", bound=Callable[..., Any])

#: Every pass that changes a graph module in place, as far as its module is imported. Tests go over all of them.
REGISTRY: dict[str, Callable[..., Any]] = {}


def registered(transform: _Pass) -> _Pass:
    """Add a pass to :data:`REGISTRY`."""
    REGISTRY[transform.__name__] = transform
    return transform
