"""Functions dispatched by the types of their arguments: PyTorch's own."""

from torch.fx.experimental.unification.multipledispatch import (
    Dispatcher,
    MDNotImplementedError,
    dispatch,
    halt_ordering,
    restart_ordering,
)

__all__ = [
    "Dispatcher",
    "MDNotImplementedError",
    "dispatch",
    "halt_ordering",
    "restart_ordering",
]
