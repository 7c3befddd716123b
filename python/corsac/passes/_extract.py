"""Parts of graphs as modules."""

from __future__ import annotations

from torch import nn

from corsac import _core
from corsac.fx._packages import expect_ours
from corsac.fx.graph import Graph
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node


def extract_subgraph(
    orig_module: nn.Module, nodes: list[Node], inputs: list[Node], outputs: list[Node]
) -> GraphModule:
    """A module that computes ``nodes`` of the graph of ``orig_module``.

    Args:
        orig_module: what has the modules and attributes that the nodes name; they are shared.
        nodes: what is computed, in an order in which it can be.
        inputs: the values that are given, under their names; they need not be computed by the
            graph.
        outputs: the values returned, as a list.

    Raises:
        KeyError: a node uses, or ``outputs`` names, what is neither an input nor computed.
    """
    known = [*nodes, *inputs, *outputs]
    for node in known:
        expect_ours(node, "extract_subgraph")
    whole = known[0].graph if known else Graph()
    graph = _core.extract_subgraph(whole, nodes, inputs, outputs)
    graph.lint()
    return GraphModule(orig_module, graph)
