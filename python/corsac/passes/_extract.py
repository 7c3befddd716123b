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
        orig_module: owner of the modules and attributes that the nodes name; they are shared.
        nodes: the nodes to compute, in topological order.
        inputs: the inputs of the new module, under their names; the graph need not compute them.
        outputs: the values returned, as a list.

    Raises:
        KeyError: a node uses, or ``outputs`` names, a value that is neither an input nor computed.
    """
    known = [*nodes, *inputs, *outputs]
    for node in known:
        expect_ours(node, "extract_subgraph")
    whole = known[0].graph if known else Graph()
    graph = _core.extract_subgraph(whole, nodes, inputs, outputs)
    graph.lint()
    return GraphModule(orig_module, graph)
