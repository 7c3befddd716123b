"""Helper functions for types: PyTorch's own."""

from torch.fx.experimental.unification.multipledispatch.utils import (
    expand_tuples,
    groupby,
    raises,
    reverse_dict,
    typename,
)

__all__ = [
    "expand_tuples",
    "groupby",
    "raises",
    "reverse_dict",
    "typename",
]
