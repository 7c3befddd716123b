"""Finds and replaces the linear layers that transformations change."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import nn

from corsac.fx.graph_module import GraphModule
from corsac.passes._weights import shallow_copy


def called_linears(graph_module: GraphModule) -> dict[str, nn.Linear]:
    """Linear layers that the graph calls, by path."""
    paths = {node.target: None for node in graph_module.graph.find_nodes(op="call_module")}
    modules = ((path, graph_module.get_submodule(path)) for path in paths)
    return {path: module for path, module in modules if type(module) is nn.Linear}


def unfit(graph_module: GraphModule, linears: dict[str, nn.Linear]) -> dict[str, str]:
    """Reasons why layers cannot be changed, by path."""
    owners: Counter[int] = Counter()
    for module in graph_module.modules():
        owners.update(id(value) for value in module._parameters.values() if value is not None)
    reasons = {}
    for path, linear in linears.items():
        parameters = linear._parameters
        if type(parameters.get("weight")) is not nn.Parameter:
            reasons[path] = f"the weight of {path} is no plain parameter"
        elif any(owners[id(value)] > 1 for value in parameters.values() if value is not None):
            reasons[path] = f"a weight of {path} is also another module's"
    return reasons


def replaced(linear: nn.Linear, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    """A copy of ``linear`` with other weights."""
    after = shallow_copy(linear)
    after.out_features, after.in_features = weight.shape
    after._parameters["weight"] = parameter_like(linear.weight, weight)
    after._parameters["bias"] = bias
    return after


def parameter_like(before: nn.Parameter, value: torch.Tensor) -> nn.Parameter:
    """A parameter with the ``requires_grad`` of ``before``."""
    return nn.Parameter(value, requires_grad=before.requires_grad)


def split_path(graph_module: GraphModule, path: str) -> tuple[nn.Module, str]:
    """The module that contains the submodule ``path``, and the last part of the path."""
    parent, _, name = path.rpartition(".")
    return graph_module.get_submodule(parent), name


def reorder(modules: dict[str, Any], order: list[str]) -> None:
    """Put the entries of ``modules`` that are in ``order`` into that order, before the others."""
    known = [name for name in order if name in modules]
    for name in [*known, *(n for n in list(modules) if n not in set(known))]:
        modules[name] = modules.pop(name)
