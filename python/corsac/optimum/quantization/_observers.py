"""Observers of prepared graphs."""

from __future__ import annotations

from typing import Any

from torch import nn

from corsac.fx import Node
from corsac.fx.graph_module import GraphModule
from corsac.quantization._kinds import is_activation_post_process


def observers_of(graph_module: GraphModule) -> dict[str, nn.Module]:
    """The observers and fake quantisers of values, by path, in the order of the graph."""
    found = {}
    for node in graph_module.graph.find_nodes(op="call_module"):
        module = graph_module.get_submodule(node.target)
        if is_activation_post_process(module):
            found[node.target] = module
    return found


def ranges_of(graph_module: GraphModule) -> dict[str, tuple[float, int]]:
    """Scale and zero point of values that have fixed ranges, by the paths of their observers."""
    found = {}
    for path, observer in observers_of(graph_module).items():
        own: Any = observer
        if not getattr(own, "is_dynamic", False):
            scale, zero_point = own.calculate_qparams()
            found[path] = float(scale), int(zero_point)
    return found


def drop_outputs(graph_module: GraphModule) -> None:
    """Remove the observers of values that no quantised layer reads: layers give floats to everything else, which computes
    with floats."""
    observers = observers_of(graph_module)
    kept: set[str] = set()
    nodes = [
        node
        for node in graph_module.graph.nodes
        if node.op == "call_module" and node.target in observers
    ]
    for node in nodes:
        if any(_is_layer(graph_module, user) for user in node.users):
            kept.add(node.target)
            continue
        node.replace_all_uses_with(node.args[0])
        graph_module.graph.erase_node(node)
    for path in observers.keys() - kept:
        graph_module.delete_submodule(path)
    graph_module.recompile()


def _is_layer(graph_module: GraphModule, node: Node) -> bool:
    """Whether a node calls a layer that is quantised."""
    if node.op != "call_module":
        return False
    return getattr(graph_module.get_submodule(node.target), "qconfig", None) is not None
