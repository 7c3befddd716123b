"""The order in which signatures are tried: PyTorch's own."""

from torch.fx.experimental.unification.multipledispatch.conflict import (
    AmbiguityWarning,
    ambiguities,
    ambiguous,
    consistent,
    edge,
    ordering,
    super_signature,
    supercedes,
)

__all__ = [
    "AmbiguityWarning",
    "ambiguities",
    "ambiguous",
    "consistent",
    "edge",
    "ordering",
    "super_signature",
    "supercedes",
]
