"""Functions dispatched by patterns that unify with their arguments: PyTorch's own."""

from torch.fx.experimental.unification.match import (
    Dispatcher,
    VarDispatcher,
    edge,
    match,
    ordering,
    supercedes,
)

__all__ = [
    "Dispatcher",
    "VarDispatcher",
    "edge",
    "match",
    "ordering",
    "supercedes",
]
