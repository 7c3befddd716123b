"""Layers of captured graphs, as calls of modules under the paths that they have in the model."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import nn

from corsac.fx import Node
from corsac.fx.graph_module import GraphModule
from corsac.passes import functions_to_modules
from corsac.passes._weights import install
from corsac.quantization.one_call._forms import as_linear
from corsac.quantization.one_call._layers import Layer, copy_around, is_transposed, replace

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def with_linear_layers(model: nn.Module) -> nn.Module:
    """A copy of a model with ``nn.Linear`` in the places of transformers' Conv1D; the parameters are the same."""
    made: Any = copy_around(model)
    known: dict[int, nn.Module] = {}
    for name, module in [*made.named_modules(remove_duplicate=False)]:
        if is_transposed(module):
            linear = known.setdefault(id(module), as_linear(module))
            linear.weight.requires_grad_(module.weight.requires_grad)
            made = replace(made, Layer([name], module), linear)
    return made


def layers_as_modules(graph_module: GraphModule, model: nn.Module) -> list[str]:
    """Make calls of functions with weights of ``model`` calls of layers; return their paths.

    A function may also be called with the weight of another layer than the one that calls it, or by code that is no
    layer; then the path is the weight's.
    """
    weights = {
        node: _weight(node)
        for node in graph_module.graph.nodes
        if node.op == "call_function" and _weight(node) is not None
    }
    paths = {
        (id(own.weight), id(own.bias)): path
        for path, own in reversed([*model.named_modules()])
        if isinstance(own, _LAYERS)
    }
    functions_to_modules(graph_module)
    found: dict[tuple[str, int, int], str] = {}
    for node, weight in weights.items():
        if node.op != "call_module":
            continue
        layer: Any = graph_module.get_submodule(node.target)
        if not isinstance(layer, _LAYERS):
            continue
        key = id(layer.weight), id(layer.bias)
        # Calls of one weight with other strides are other layers.
        whole = repr(layer), *key
        path = found.get(whole)
        if path is None:
            path = paths.get(key) or f"{weight.rpartition('.')[0]}_layer"
            taken = {*found.values()}
            number, first = 1, path
            while path in taken:
                path, number = f"{first}_{number}", number + 1
            found[whole] = path
            _put(graph_module, path, layer)
        graph_module.delete_submodule(node.target)
        node.target = path
    graph_module.recompile()
    return [*dict.fromkeys(found.values())]


def _weight(node: Node) -> str | None:
    """The path of the weight of a call of a layer's function."""
    if node.target not in (F.linear, F.conv1d, F.conv2d, F.conv3d) or len(node.args) < 2:
        return None
    weight = node.args[1]
    return weight.target if isinstance(weight, Node) and weight.op == "get_attr" else None


def _put(graph_module: GraphModule, path: str, layer: nn.Module) -> None:
    """Install a layer, with modules on the way to it; weights that are read there stay."""
    parent: nn.Module = graph_module
    *way, name = path.split(".")
    for part in way:
        if part not in parent._modules:
            parent.add_module(part, nn.Module())
        parent = parent._modules[part]  # type: ignore[assignment]
    before = parent._modules.get(name)
    if before is not None:
        for own, child in before._modules.items():
            layer.add_module(own, child)
    install(graph_module, path, layer)


def dropouts_as_modules(graph_module: GraphModule) -> int:
    """Make calls of dropout calls of modules, which drop in training mode; return their number."""
    count = 0
    for node in graph_module.graph.find_nodes(op="call_function", target=F.dropout):
        name = f"{node.name}_module"
        graph_module.add_submodule(name, nn.Dropout(node.kwargs.get("p", 0.5)))
        node.op, node.target, node.kwargs = "call_module", name, {}
        node.args = node.args[:1]
        count += 1
    if count:
        graph_module.recompile()
    return count
