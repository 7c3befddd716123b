"""Parts of graphs as modules."""

from __future__ import annotations

from torch import nn

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
    graph = Graph()
    copies: dict[Node, Node] = {}

    def copied(value: Node, user: str) -> Node:
        found = copies.get(value)
        if found is None:
            raise KeyError(f"{user} {value}, which is no input and not computed before")
        return found

    for value in inputs:
        copies[value] = placeholder = graph.placeholder(value.name)
        placeholder.meta = dict(value.meta)
    for node in nodes:
        copies[node] = graph.node_copy(node, lambda used, node=node: copied(used, f"{node} uses"))
    graph.output([copied(value, "the result has") for value in outputs])
    graph.lint()
    return GraphModule(orig_module, graph)
