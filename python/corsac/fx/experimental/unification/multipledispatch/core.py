"""The decorator that registers a function for types: PyTorch's own."""

from torch.fx.experimental.unification.multipledispatch.core import (
    dispatch,
    ismethod,
)

__all__ = [
    "dispatch",
    "ismethod",
]
