"""Graph modules as values that can be pickled without another trace, which graphs with symbolic sizes would not survive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from corsac.fx import Graph
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import map_arg


@dataclass(frozen=True)
class _Name:
    """The node of this name."""

    text: str


@dataclass(frozen=True)
class _Operator:
    """An operator of ``torch.ops``, by its name: ``"corsac::quantize_per_tensor.default"``."""

    text: str

    def find(self) -> Any:
        space, _, rest = self.text.partition("::")
        packet, _, overload = rest.rpartition(".")
        return getattr(getattr(getattr(torch.ops, space), packet), overload)


@dataclass
class Frozen:
    """A graph module: its nodes, and a module with its attributes."""

    nodes: list[tuple[str, str, Any, Any, Any]]
    owner: nn.Module
    meta: dict[Any, Any]

    @classmethod
    def of(cls, module: GraphModule) -> Frozen:
        """Of a graph module; tensors and submodules are the same."""
        owner = nn.Module()
        for kind in ("_parameters", "_buffers", "_modules"):
            owner.__dict__[kind] = dict(module.__dict__[kind])
        owner.__dict__["_non_persistent_buffers_set"] = {*module._non_persistent_buffers_set}
        owner.training = module.training

        def frozen(value: Any) -> Any:
            return map_arg(value, lambda node: _Name(node.name))

        nodes = []
        for node in module.graph.nodes:
            target = node.target
            if isinstance(target, torch._ops.OpOverload):
                target = _Operator(f"{target._schema.name}.{target._overloadname}")
            nodes.append((node.op, node.name, target, frozen(node.args), frozen(node.kwargs)))
        return cls(nodes, owner, dict(module.meta))

    def module(self) -> GraphModule:
        """The graph module."""
        graph = Graph()
        known: dict[str, Any] = {}

        def thawed(value: Any) -> Any:
            if isinstance(value, _Name):
                return known[value.text]
            if isinstance(value, (tuple, list)):
                return type(value)([thawed(own) for own in value])
            if isinstance(value, dict):
                return {key: thawed(own) for key, own in value.items()}
            if isinstance(value, slice):
                return slice(*map(thawed, (value.start, value.stop, value.step)))
            return value

        for op, name, target, args, kwargs in self.nodes:
            if isinstance(target, _Operator):
                target = target.find()
            known[name] = graph.create_node(op, target, thawed(args), thawed(kwargs), name)
        made = GraphModule(self.owner, graph)
        made.training = self.owner.training
        made.meta = self.meta
        for name in self.owner._non_persistent_buffers_set:
            made._non_persistent_buffers_set.add(name)
        return made
