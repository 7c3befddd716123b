"""Common subexpressions, as a pass of ``torch.fx.passes.infra``."""

from __future__ import annotations

import copy

import torch

from corsac import _core

from ...._packages import expect_ours
from ....graph_module import GraphModule
from ....node import Node
from ...infra.pass_base import PassBase, PassResult

__all__ = ["CSEPass", "get_CSE_banned_ops"]

#: Operators that draw random numbers, and operators that write, by name.
_RANDOM = (
    "dropout _fused_dropout _standard_gamma bernoulli multinomial native_dropout normal poisson "
    "binomial rrelu rand_like rand randint randn randperm"
)
_IN_PLACE = "add_ sub_ mul_ div_ pow_ lerp_ relu_ sigmoid_ tanh_"


def get_CSE_banned_ops() -> set[torch._ops.OpOverloadPacket]:
    """The operators that torch.fx's pass has to be told to leave alone.

    :class:`CSEPass` knows itself what draws random numbers and what writes.
    """
    names = f"{_RANDOM} {_IN_PLACE}".split()
    return {getattr(torch.ops.aten, name) for name in names}


class CSEPass(PassBase):
    """Computes once what is computed twice; :func:`corsac.passes.common_subexpressions` as a pass.

    The result is another module where something has changed. What torch.fx's pass merges by the
    looks of the graph alone stays where it makes a difference: random draws, writes, what is written
    to, and functions of which nothing is known (``corsac.passes.pure`` says that there is nothing to
    know).

    Args:
        banned_ops: packets of operators, or functions, whose calls all stay.
    """

    def __init__(self, banned_ops: set[torch._ops.OpOverloadPacket] | None = None) -> None:
        self.banned_ops = set() if banned_ops is None else banned_ops
        super().__init__()

    def call(self, graph_module: GraphModule) -> PassResult:
        """A module with common subexpressions computed once, or the same one if there are none."""
        expect_ours(graph_module, "CSEPass")
        graph = copy.deepcopy(graph_module.graph)
        keep = [node for node in graph.nodes if node.op == "get_attr" or self._is_banned(node)]
        sites = _core.common_subexpressions(graph, keep=keep)
        if all(reason is not None for *_, reason in sites):
            return PassResult(graph_module, False)
        return PassResult(GraphModule(graph_module, graph), True)

    def _is_banned(self, node: Node) -> bool:
        target = getattr(node.target, "overloadpacket", node.target)
        return target in self.banned_ops
