"""Regions of a program to be compiled by PyTorch's compiler."""

from __future__ import annotations

import torch.fx.passes.regional_inductor as _torch

from ..convert import from_torch, to_torch
from ..graph_module import GraphModule

__all__ = ["regional_inductor"]


def regional_inductor(gm: GraphModule, *example_args: object) -> GraphModule:
    """Compile the nodes marked by ``meta["custom"]["compile_with_inductor"]`` with inductor.

    PyTorch's compiler runs on the program converted to torch.fx. The result is a new module.

    Args:
        gm: a module that calls operators, with values in the metadata of its nodes.
        example_args: as in torch.fx; unused.
    """
    return from_torch(_torch.regional_inductor(to_torch(gm), *example_args))
