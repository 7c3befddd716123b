"""A graph with inputs that may show a fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from corsac.fx import Graph, GraphModule, Interpreter, Node
from corsac.fx.node import map_arg


class _NotAnArgument(Exception):
    """A value that can be neither an input nor written in a graph."""


@dataclass(frozen=True, slots=True)
class Case:
    """A graph with inputs.

    Attributes:
        module: the graph.
        inputs: a value for each of its inputs.
    """

    module: GraphModule
    inputs: list[Any]

    @property
    def calls(self) -> list[Node]:
        """Calls of the graph, in order."""
        return [node for node in self.module.graph.nodes if node.op.startswith("call_")]

    def copied_inputs(self) -> list[Any]:
        """Copies of the inputs, which may be written to."""
        return copies(self.inputs)

    def runs(self, grad: bool = False) -> bool:
        """Whether PyTorch can run the graph, with gradients or without."""
        try:
            with torch.set_grad_enabled(grad):
                self.module(*self.copied_inputs())
        except Exception:
            return False
        return True

    def values(self) -> dict[Node, Any]:
        """Value of each node at the time it was computed, with ``requires_grad`` if autograd is on."""
        recorder = _Values(self.module)
        recorder.run(*self.copied_inputs())
        return recorder.values

    def part(self, kept: set[Node], values: dict[Node, Any], results: set[Node]) -> Case | None:
        """The calls and attributes in ``kept``; other values that they read become inputs.

        The results are the kept ones of ``results``, and values that no other kept call reads. None if a
        """
        graph, inputs = Graph(), []
        places: dict[Node, Any] = {}
        body: list[Node] = [node for node in self.module.graph.nodes if node in kept]

        def given(value: Any, name: str) -> Any:
            if isinstance(value, torch.Tensor):
                inputs.append(value)
                return graph.placeholder(name)
            if isinstance(value, tuple | list):
                return type(value)([given(own, f"{name}_{at}") for at, own in enumerate(value)])
            if value is None or isinstance(value, bool | int | float | str | torch.dtype):
                return value
            raise _NotAnArgument(f"{name} is a {type(value).__name__}")

        try:
            for node in body:
                for source in node.all_input_nodes:
                    if source not in kept and source not in places:
                        places[source] = given(values[source], source.name)
        except (_NotAnArgument, TypeError):
            return None
        for node in body:
            args = map_arg(node.args, places.__getitem__)
            kwargs = map_arg(node.kwargs, places.__getitem__)
            copied = graph.create_node(node.op, node.target, args, kwargs, node.name, node.type)
            places[node] = copied
        read = {source for node in body for source in node.all_input_nodes}
        returned = [
            places[node]
            for node in body
            if node.op != "get_attr" and (node in results or node not in read)
        ]
        graph.output(tuple(returned))
        return Case(GraphModule(self.module, graph), inputs)


class _Values(Interpreter):
    """Runs a graph and keeps copies of all values."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.values: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        self.values[n] = torch.utils._pytree.tree_map(copied, result)
        return result


def copies(inputs: list[Any]) -> list[Any]:
    """Copies of the inputs, which may be written to; one tensor given twice stays one."""
    made: dict[int, Any] = {}
    for own in inputs:
        if id(own) not in made:
            made[id(own)] = copied(own)
    return [made[id(own)] for own in inputs]


def copied(value: Any) -> Any:
    """A copy of a tensor, which may be written to; any other value unchanged."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)
