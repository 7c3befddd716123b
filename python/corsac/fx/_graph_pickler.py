"""Pickles of graphs together with fake tensors and symbolic shapes.

The pickles are PyTorch's: fake tensors, symbols and operators are values that graphs of both packages
contain. Graphs and graph modules of corsac are stored as those of torch.fx, and restored as corsac's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx._graph_pickler as _torch
from torch.fx._graph_pickler import Options, patch_pytree_map_over_slice

from corsac import _core
from corsac.fx.convert import from_torch, to_torch
from corsac.fx.graph_module import GraphModule

__all__ = ["GraphPickler", "Options", "patch_pytree_map_over_slice"]


class GraphPickler(_torch.GraphPickler):
    """Pickles graph modules with the metadata of their nodes::

    data = GraphPickler.dumps(gm)
    gm = GraphPickler.loads(data, fake_mode)
    """

    def reducer_override(self, obj: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The pickle form of ``obj``."""
        if isinstance(obj, GraphModule | _core.Graph):
            return from_torch, (to_torch(obj),)
        return super().reducer_override(obj)
