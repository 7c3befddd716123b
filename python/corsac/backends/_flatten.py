"""Captured programs as graphs that return a tuple, as Dynamo's do."""

from __future__ import annotations

from collections.abc import Callable

import torch

from corsac._traced_program import Captured
from corsac.fx import Graph, GraphModule, Node
from corsac.fx.node import map_arg
from corsac.fx.proxy import TraceError


def flatten_results(captured: Captured) -> Callable[..., object]:
    """Change the graph to return a tuple of different values.

    Returns:
        A function of these values that gives what the program returns.

    Raises:
        TraceError: an input stands for any number of arguments.
    """
    graph = captured.module.graph
    for node in graph.find_nodes(op="placeholder"):
        if str(node.target).startswith("*"):
            raise TraceError(f"{node.target} stands for any number of arguments")
        # All inputs are given in each call.
        node.args = ()
    (output,) = graph.find_nodes(op="output")
    assembly = Graph()
    places: dict[Node, Node] = {}
    results: list[Node] = []
    named: list[Node] = []

    def place(node: Node) -> Node:
        if node not in places and _is_named_tuple(node):
            named.append(node)
            places[node] = assembly.call_function(
                node.target, *map_arg((node.args, node.kwargs), place)
            )
        elif node not in places:
            places[node] = assembly.placeholder(f"result_{len(results)}")
            results.append(node)
        return places[node]

    assembly.output(map_arg(output.args[0], place))
    with graph.inserting_before(output):
        # Each call has to make what was made once.
        returned = [
            graph.call_method("clone", (node,)) if node in captured.made else node
            for node in results
        ]
    output.args = (tuple(returned),)
    for node in reversed(named):
        if not node.users:
            graph.erase_node(node)
    captured.module.recompile()
    return GraphModule(torch.nn.Module(), assembly).forward


def _is_named_tuple(node: Node) -> bool:
    """Whether a node makes a named tuple, which is not for backends."""
    cls = node.target
    return node.op == "call_function" and isinstance(cls, type) and issubclass(cls, tuple)
