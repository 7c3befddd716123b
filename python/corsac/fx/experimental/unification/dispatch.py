"""Functions dispatched by the types of their arguments: PyTorch's own."""

from torch.fx.experimental.unification.dispatch import dispatch, namespace

__all__ = ["dispatch", "namespace"]
