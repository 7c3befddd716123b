"""Calls of quantised layers as the operators that they compute."""

from __future__ import annotations

from typing import Any

import torch

from corsac.fx import Node, Tracer
from corsac.fx._own_copy import own_copy
from corsac.fx.graph_module import GraphModule
from corsac.quantization import intrinsic, quantized
from corsac.quantization.quantized.integer_layers import IntegerLayer

_LAYERS = (
    quantized.Linear,
    quantized.Conv1d,
    quantized.Conv2d,
    quantized.Conv3d,
    quantized.ConvTranspose1d,
    quantized.ConvTranspose2d,
    quantized.ConvTranspose3d,
    quantized.Bilinear,
    quantized.Embedding,
    IntegerLayer,
)


class LeafTracer(Tracer):
    """Traces models with calls of quantised layers."""

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return _is_quantised(m) or super().is_leaf_module(m, module_qualified_name)


def without_quantised_layers(module: GraphModule) -> GraphModule:
    """The module, or a copy in which quantised layers are operators on their weights."""
    calls = [
        node.name
        for node in module.graph.find_nodes(op="call_module")
        if not node.kwargs and _is_quantised(module.get_submodule(str(node.target)))
    ]
    if not calls:
        return module
    made = own_copy(module)
    by_name = {node.name: node for node in made.graph.find_nodes(op="call_module")}
    for name in calls:
        _inline(made, by_name[name])
    made.recompile()
    return made


def _is_quantised(module: torch.nn.Module) -> bool:
    if type(module).__module__ == intrinsic.__name__ and isinstance(module, torch.nn.Sequential):
        return any(isinstance(part, _LAYERS) for part in module)
    return isinstance(module, _LAYERS)


class _LayerTracer(Tracer):
    """Traces what a layer does with its weights."""

    proxy_buffer_attributes = True

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return not _is_quantised(m)


def _inline(module: GraphModule, call: Node) -> None:
    """Replace a call by the nodes of the layer."""
    layer = module.get_submodule(str(call.target))
    absent = {"output_size": None} if hasattr(layer, "output_padding") else None
    traced = _LayerTracer().trace(layer, absent)
    values: dict[Node, Any] = {}
    given = iter(call.args)
    graph = module.graph
    result: Any = None
    with graph.inserting_before(call):
        for node in traced.nodes:
            if node.op == "placeholder":
                values[node] = next(given, None)
            elif node.op == "output":
                result = values[node.args[0]]
            elif node.users:  # no assertions about absent arguments
                copied = graph.node_copy(node, lambda n: values[n])
                if node.op in ("get_attr", "call_module"):
                    copied.target = f"{call.target}.{node.target}"
                values[node] = copied
    call.replace_all_uses_with(result)
    graph.erase_node(call)
