"""Helper functions for containers: PyTorch's own."""

from torch.fx.experimental.unification.utils import (
    freeze,
    hashable,
    raises,
    reverse_dict,
    transitive_get,
    xfail,
)

__all__ = [
    "freeze",
    "hashable",
    "raises",
    "reverse_dict",
    "transitive_get",
    "xfail",
]
