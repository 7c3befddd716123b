"""Modules of one rank: a graph with its weights."""

from __future__ import annotations

import traceback
import warnings
import weakref
from collections.abc import Container, Iterable, Mapping
from typing import Any, Self

import torch

from corsac.distributed._values import described
from corsac.fx import Graph, GraphModule, Node
from corsac.fx._module_attributes import _assign_attr
from corsac.fx._wrapped_call import _node_of_line

#: The modules of graphs by the file name of their code.
_modules: weakref.WeakValueDictionary[str, GraphModule] = weakref.WeakValueDictionary()


class RankModule(torch.nn.Module):
    """A graph whose weights have the names that they have in the model.

    Args:
        graph: the graph.
        weights: its weights.
        attributes: further attributes, which are no parts of the module.
    """

    def __init__(
        self, graph: Graph, weights: Mapping[str, torch.Tensor], attributes: Mapping[str, Any]
    ) -> None:
        super().__init__()
        holder = torch.nn.Module()
        for name, value in weights.items():
            _assign_attr(value, holder, name)
        self.__dict__.update(attributes)
        self.__dict__["graph_module"] = GraphModule(holder, graph)
        share_parts(self, self.graph_module)
        _modules[self.graph_module.forward.__code__.co_filename] = self.graph_module

    def train(self, mode: bool = True) -> Self:
        """As of :class:`torch.nn.Module`; the graph stays as it is, with a warning."""
        if mode != self.training:
            warnings.warn(
                "the graph has the training modes that the model had when it was captured: make a new one from the model "
                "in the other mode",
                stacklevel=2,
            )
        return super().train(mode)

    @property
    def graph(self) -> Graph:
        """The graph that the rank runs."""
        return self.graph_module.graph

    def _place(self, error: Exception) -> str:
        """The node at which a call failed, as text."""
        node = failed_node(self.graph_module, error)
        return "" if node is None else f", {described(node)}"


def move_graph(graph: Graph, device: torch.device) -> None:
    """Let the nodes of a graph make tensors on ``device`` in place of the CPU."""
    if device.type == "cpu":
        return

    def moved(own: Any) -> Any:
        if isinstance(own, torch.device) and own.type == "cpu":
            return device
        if isinstance(own, (tuple, list)):
            return type(own)(map(moved, own))
        return own

    for node in graph.nodes:
        if node.op.startswith("call_"):
            node.args = tuple(map(moved, node.args))
            node.kwargs = {name: moved(own) for name, own in node.kwargs.items()}


def failed_node(module: GraphModule, error: Exception) -> Node | None:
    """The node of a graph at which a call failed, if it is known."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == module.forward.__code__.co_filename:
            node: Node | None = _node_of_line(module, line)
            if node is not None:
                return node
    return None


def place_of_line(file: str, line: int) -> str:
    """The node in a line of the code of a rank's graph, as text; empty if there is none."""
    module = _modules.get(file)
    node = None if module is None else _node_of_line(module, line)
    return "" if node is None else f", {described(node)}"


def squares_of(
    parameters: Iterable[tuple[str, torch.nn.Parameter]], shards: Container[str]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of the squares of the gradients of this rank: of those that are parts, with names in ``shards``, and of whole
    ones."""
    found = [torch.zeros(()), torch.zeros(())]
    for name, own in parameters:
        if own.grad is not None:
            square = own.grad.detach().float().square().sum()
            found[name not in shards] = found[name not in shards] + square
    return found[0], found[1]


def share_parts(module: torch.nn.Module, other: torch.nn.Module) -> None:
    """Give a module the parameters, buffers and modules of another one, in the same dictionaries, so that names have no
    prefix."""
    for name in ("_parameters", "_buffers", "_modules"):
        module.__dict__[name] = getattr(other, name)


__all__ = ["RankModule", "failed_node", "move_graph", "place_of_line", "share_parts", "squares_of"]
