"""Regions of a program that PyTorch's compiler is to compile."""

from __future__ import annotations

import torch.fx.passes.regional_inductor as _torch

from ..convert import from_torch, to_torch
from ..graph_module import GraphModule

__all__ = ["regional_inductor"]


def regional_inductor(gm: GraphModule, *example_args: object) -> GraphModule:
    """Compile the nodes that ``meta["custom"]["compile_with_inductor"]`` is set on with inductor.

    PyTorch's compiler does it, on the program converted to torch.fx. The result is another module.

    Args:
        gm: a module that calls operators, with values in the metadata of its nodes.
        example_args: what torch.fx's takes; not used.
    """
    return from_torch(_torch.regional_inductor(to_torch(gm), *example_args))
