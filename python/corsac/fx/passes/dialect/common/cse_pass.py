"""Common-subexpression elimination, as a pass of ``torch.fx.passes.infra``."""

from __future__ import annotations

import copy

import torch

from corsac import _core

from ...._packages import expect_ours
from ....graph_module import GraphModule
from ....node import Node
from ...infra.pass_base import PassBase, PassResult

__all__ = ["CSEPass", "get_CSE_banned_ops"]

#: Names of operators that use random numbers, and of operators that write.
_RANDOM = (
    "dropout _fused_dropout _standard_gamma bernoulli multinomial native_dropout normal poisson "
    "binomial rrelu rand_like rand randint randn randperm"
)
_IN_PLACE = "add_ sub_ mul_ div_ pow_ lerp_ relu_ sigmoid_ tanh_"


def get_CSE_banned_ops() -> set[torch._ops.OpOverloadPacket]:
    """The operators that torch.fx's pass is to exclude.

    :class:`CSEPass` itself detects operators that use random numbers or write.
    """
    names = f"{_RANDOM} {_IN_PLACE}".split()
    return {getattr(torch.ops.aten, name) for name in names}


class CSEPass(PassBase):
    """Eliminates common subexpressions; :func:`corsac.passes.common_subexpressions` as a pass.

    The result is a new module if anything was changed. Unlike torch.fx's pass, which merges by the look of
    the graph alone, it keeps random operators, writes, values that are written to, and unknown functions
    (``corsac.passes.pure`` declares a function to be pure).

    Args:
        banned_ops: packets of operators, or functions, whose calls are all kept.
    """

    def __init__(self, banned_ops: set[torch._ops.OpOverloadPacket] | None = None) -> None:
        self.banned_ops = set() if banned_ops is None else banned_ops
        super().__init__()

    def call(self, graph_module: GraphModule) -> PassResult:
        """A module with common subexpressions eliminated, or the same one if there are none."""
        expect_ours(graph_module, "CSEPass")
        graph = copy.deepcopy(graph_module.graph)
        keep = [node for node in graph.nodes if node.op == "get_attr" or self._is_banned(node)]
        sites = _core.run_pass("common subexpressions", graph, keep=keep)
        if all(reason is not None for *_, reason in sites):
            return PassResult(graph_module, False)
        return PassResult(GraphModule(graph_module, graph), True)

    def _is_banned(self, node: Node) -> bool:
        target = getattr(node.target, "overloadpacket", node.target)
        return target in self.banned_ops
