"""Internal modules in the place of calls of a graph, for which hooks are not run."""

from __future__ import annotations

from typing import Any

import torch


class UnhookedModule(torch.nn.Module):
    """A module that runs neither global module hooks nor hooks of its own."""

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)


__all__ = ["UnhookedModule"]
