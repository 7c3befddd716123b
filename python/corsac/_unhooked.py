"""Modules that are in the place of calls of a graph, and that no user has made."""

from __future__ import annotations

from typing import Any

import torch


class UnhookedModule(torch.nn.Module):
    """A module that hooks of all modules are not for: it has none of its own either."""

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)


__all__ = ["UnhookedModule"]
