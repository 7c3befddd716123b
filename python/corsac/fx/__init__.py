"""Drop-in for :mod:`torch.fx`: capture, graphs, transforms and Python code generation.

Change ``import torch.fx as fx`` to ``import corsac.fx as fx``. Needs torch.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "corsac.fx needs PyTorch: install it with `pip install torch` (2.6 or later)"
    ) from error

from corsac.fx.graph import Graph
from corsac.fx.node import Node, has_side_effect, map_arg

__all__ = ["Graph", "Node", "has_side_effect", "map_arg"]
