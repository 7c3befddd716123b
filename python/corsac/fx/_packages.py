"""Rejects graphs of torch.fx where those of corsac.fx are expected, and vice versa.

Nodes of one package are not nodes to the other: they would be taken for constants, so that a pass would find
nothing to do, or drop the whole program. Both are errors with a hint how to convert.
"""

from __future__ import annotations

import sys
from typing import Any

import torch.fx

#: Modules of torch.fx that treat the nodes of a given module or graph as torch.fx's own.
_READERS = (
    "torch.fx.experimental.",
    "torch.fx.graph",
    "torch.fx.interpreter",
    "torch.fx.passes.",
    "torch.fx.subgraph_rewriter",
)
#: Those of them that only pass modules on, or draw them.
_HARMLESS = frozenset(
    f"torch.fx.passes.{name}"
    for name in ("graph_drawer", "graph_transform_observer", "infra.pass_manager", "pass_manager")
)


def expect_ours(value: Any, taker: str) -> None:
    """Reject objects of torch.fx."""
    if isinstance(value, torch.fx.Graph | torch.fx.GraphModule | torch.fx.Node):
        kind = next(
            c for c in (torch.fx.Graph, torch.fx.Node, torch.fx.GraphModule) if isinstance(value, c)
        )
        raise TypeError(
            f"{taker} takes what is of corsac.fx, and was given a torch.fx.{kind.__name__}: convert it "
            "with corsac.fx.from_torch, and the result back with corsac.fx.to_torch"
        )


def refuse_torch_reader(depth: int) -> None:
    """Raise an error if the caller is a part of torch.fx that only works on its own nodes; ``depth`` is the
    number of calls between."""
    refuse_reader(sys._getframe(depth + 1).f_globals.get("__name__", ""))


def refuse_reader(reader: str) -> None:
    """Raise an error if the module named ``reader`` only works on torch.fx's own nodes."""
    if reader.startswith(_READERS) and reader not in _HARMLESS:
        raise TypeError(
            f"{reader} works on graphs of torch.fx, and was given one of corsac.fx: convert it "
            "with corsac.fx.to_torch, and the result back with corsac.fx.from_torch; or use "
            f"corsac{reader.removeprefix('torch')}"
        )
