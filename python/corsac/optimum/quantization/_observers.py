"""Observers of prepared graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from corsac.fx import Interpreter, Node
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


#: Whether the observer in a node is kept.
Keep = Callable[[GraphModule, Node], bool]


def drop_observers(graph_module: GraphModule, keep: Keep) -> None:
    """Remove the observers that are not to be kept."""
    observers = observers_of(graph_module)
    kept: set[str] = set()
    for node in [*graph_module.graph.nodes]:
        if node.op != "call_module" or node.target not in observers:
            continue
        if keep(graph_module, node):
            kept.add(node.target)
        else:
            node.replace_all_uses_with(node.args[0])
            graph_module.graph.erase_node(node)
    for path in observers.keys() - kept:
        graph_module.delete_submodule(path)
    graph_module.recompile()


def is_input_of_layer(graph_module: GraphModule, node: Node) -> bool:
    """Whether a quantised layer reads a value: layers give floats to everything else, which computes with floats."""
    layers = (own.target for own in node.users if own.op == "call_module")
    return any(getattr(graph_module.get_submodule(own), "qconfig", None) for own in layers)


def float_values(graph_module: GraphModule, inputs: Sequence[Any]) -> set[str]:
    """The names of the nodes whose values are tensors of floats."""

    class Watch(Interpreter):
        names: ClassVar[set[str]] = set()

        def run_node(self, n: Node) -> Any:
            value = super().run_node(n)
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                self.names.add(n.name)
            return value

    watch = Watch(graph_module)
    with torch.no_grad():
        watch.run(*inputs)
    return watch.names


def has_float(names: set[str]) -> Keep:
    """Keeps the observers of values of these nodes, and of observers of them."""

    def keep(graph_module: GraphModule, node: Node) -> bool:
        value = node.args[0]
        while isinstance(value, Node) and value.op == "call_module" and value.name not in names:
            if not is_activation_post_process(graph_module.get_submodule(value.target)):
                # A module that takes the place of others.
                return True
            value = value.args[0]
        return isinstance(value, Node) and value.name in names

    return keep
