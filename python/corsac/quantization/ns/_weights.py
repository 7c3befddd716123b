"""Weights of nodes, as floats."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node
from corsac.quantization._kinds import is_a
from corsac.quantization.ns._operations import module_of
from corsac.quantization.ns._values import constant

#: Functions with a weight, by the place of the argument.
_FUNCTIONS = re.compile(r"conv(_transpose)?\dd|linear")


def weights_of(model: GraphModule, node: Node) -> list[Tensor]:
    """The weights of the layer or function that a node calls, as floats; nothing for nodes without."""
    if node.op == "call_function":
        if _FUNCTIONS.fullmatch(getattr(node.target, "__name__", "")) is None:
            return []
        weight: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("weight")
        found = constant(model, weight) if isinstance(weight, Node) else None
        return [] if found is None else [found.detach()]
    module = module_of(model, node)
    if module is None:
        return []
    folded = hasattr(module, "weight_fake_quant") and hasattr(module, "bn")
    if is_a(module, "_FusedModule") and not isinstance(getattr(module, "weight", None), Tensor):
        module = module[0]
    if is_a(module, "_BatchNorm") or "norm" in type(module).__name__.lower():
        return []
    names = getattr(module, "_all_weights", None)
    if names or hasattr(module, "weight_ih"):
        own = [name for layer in names for name in layer] if names else ["weight_ih", "weight_hh"]
        return [_float(module, name) for name in own if name.startswith("weight")]
    if folded:
        module = module.to_float()
        module = module[0] if is_a(module, "_FusedModule") else module
    return [_float(module, "weight")] if isinstance(getattr(module, "weight", None), Tensor) else []


def _float(module: Any, name: str) -> Tensor:
    if is_a(module, "QuantisedWeight"):
        return module.dequantised().detach()
    if is_a(module, "_Recurrent"):
        return module.dequantised(name).detach()
    return getattr(module, name).detach()
