"""Values of nodes: where results are in steps, which arguments are values of the graph, and constants."""

from __future__ import annotations

from typing import Any

import torch

from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node
from corsac.quantization.ns._operations import is_quantisation, is_watcher
from corsac.quantization.ns._subgraphs import leaves


def settled(model: GraphModule, node: Node) -> Node:
    """The node with the result of ``node`` after it was observed, or quantised and dequantised."""
    while True:
        users = list(node.users)
        if len(users) == 1 and is_watcher(model, users[0]):
            node = users[0]
            continue
        rounded = users[0] if len(users) == 1 and is_quantisation(users[0]) else None
        after = list(rounded.users) if rounded is not None else []
        if len(after) == 1 and is_quantisation(after[0]) and after[0].args[0] is rounded:
            node = after[0]
            continue
        return node


def constant(model: GraphModule, node: Node) -> torch.Tensor | None:
    """The tensor of a node that depends on attributes only, with observers passed by; None for others."""
    while is_watcher(model, node):
        node = node.args[0]  # type: ignore[assignment]
    if node.op == "get_attr":
        value: Any = model
        for name in str(node.target).split("."):
            value = getattr(value, name)
        return value
    if not is_quantisation(node):
        return None
    values = {inner: constant(model, inner) for inner in leaves(node.args)}
    if not values or any(value is None for value in values.values()):
        return None
    from corsac.fx.node import map_arg

    function: Any = node.target
    with torch.no_grad():
        return function(*map_arg(node.args, values.__getitem__), **node.kwargs)


def inputs(model: GraphModule, node: Node) -> list[Node]:
    """The nodes in the arguments of a node that are no constants, in order."""
    return [one for one in leaves((node.args, node.kwargs)) if constant(model, one) is None]


def places(model: GraphModule, node: Node) -> list[tuple[int, int, Node]]:
    """The arguments that are values of the graph: place, place in a list, node."""
    found = []
    for place, argument in enumerate((*node.args, *node.kwargs.values())):
        inner = argument if isinstance(argument, (list, tuple)) else [argument]
        for within, one in enumerate(inner):
            if isinstance(one, Node) and constant(model, one) is None:
                found.append((place, within, one))
    return found
