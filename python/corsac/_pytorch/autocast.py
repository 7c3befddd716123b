"""Autocast on the CPU: its state, and functions that run without it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch


def autocast_dtype() -> torch.dtype | None:
    """The type that autocast casts to; None if it is off."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


def without_autocast() -> contextlib.AbstractContextManager[Any]:
    """Switches autocast off in the block."""
    if not torch.is_autocast_enabled("cpu"):
        return contextlib.nullcontext()
    return torch.autocast("cpu", enabled=False)


class WithoutAutocast:
    """A function that is run without autocast: the casts are among its operators."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        if not torch.is_autocast_enabled("cpu"):
            return self.function(*args)
        with torch.autocast("cpu", enabled=False):
            return self.function(*args)


__all__ = ["WithoutAutocast", "autocast_dtype", "without_autocast"]
