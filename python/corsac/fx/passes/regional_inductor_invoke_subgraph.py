"""Subgraphs of a program to be compiled by PyTorch's compiler."""

from __future__ import annotations

import importlib
from typing import Any

import torch.fx.passes.regional_inductor_invoke_subgraph as _torch

from ..convert import to_torch
from ..graph_module import GraphModule

__all__ = ["regional_inductor_invoke_subgraph"]


def regional_inductor_invoke_subgraph(gm: GraphModule, *example_args: Any) -> Any:
    """Compile the marked subgraphs that ``invoke_subgraph`` calls with inductor.

    PyTorch's compiler runs on the program converted to torch.fx. The result is a function of a list of
    inputs, which it empties.
    """
    # PyTorch's pass uses it without importing it.
    importlib.import_module("torch._dynamo.backends.debugging")
    return _torch.regional_inductor_invoke_subgraph(to_torch(gm), *example_args)
