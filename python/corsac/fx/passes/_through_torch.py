"""Runs passes of PyTorch that work on its symbolic shapes or compiler, on graphs of corsac.

These passes depend on PyTorch's symbols, or its compiler runs the result. The program is therefore converted,
PyTorch's pass runs, and the program is converted back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx

from corsac.fx.convert import from_torch, to_torch
from corsac.fx.graph_module import GraphModule


def changed_in_place(gm: GraphModule, run: Callable[[torch.fx.GraphModule], Any]) -> None:
    """Apply ``run`` to the converted program of ``gm``, whose nodes are replaced by new objects."""
    converted = to_torch(gm)
    run(converted)
    take_over(gm, converted)


def take_over(gm: GraphModule, converted: torch.fx.GraphModule) -> None:
    """Replace the program of ``gm`` by that of ``converted``, with the attributes that its nodes use."""
    back = from_torch(converted)
    for kind in ("_parameters", "_buffers", "_modules"):
        getattr(gm, kind).update(getattr(back, kind))
    for node in back.graph.find_nodes(op="get_attr"):
        name, _, below = node.target.partition(".")
        if not below and not hasattr(gm, name):
            setattr(gm, name, getattr(back, name))
    gm.graph = back.graph
