"""Specialisation of graphs with symbolic sizes to the sizes of calls."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils._python_dispatch import _disable_current_modes

#: Largest number of sets of sizes that a graph is specialised to; PyTorch runs others.
SETS = 8
#: Number of sets of sizes remembered that have not yet occurred often enough, the latest ones.
SEEN = 1024
#: Number of occurrences of a set of sizes before a graph is made: that costs more than a step.
OFTEN = 2


class BySizes:
    """A graph with symbols among its inputs, as a function of a list of arguments.

    Args:
        module: the graph, of torch.fx.
        host: runs it for any sizes.
        compiled: compiles a graph without symbols.
    """

    def __init__(
        self,
        module: torch.fx.GraphModule,
        host: Callable[[list[Any]], Any],
        compiled: Callable[[torch.fx.GraphModule], Callable[[list[Any]], Any]],
    ) -> None:
        self._module, self._host, self._compiled = module, host, compiled
        self._seen: OrderedDict[Any, int] = OrderedDict()
        self._made: dict[Any, Callable[[list[Any]], Any]] = {}

    def __call__(self, arguments: list[Any]) -> Any:
        key = tuple(map(_size_of, arguments))
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= SETS:
                return self._host(arguments)
            # Another thread may count the same sizes meanwhile.
            seen = self._seen.pop(key, 0) + 1
            if seen < OFTEN:
                self._seen[key] = seen
                if len(self._seen) > SEEN:
                    self._seen.popitem(last=False)
                return self._host(arguments)
            made = self._made[key] = self._compiled(with_numbers(self._module, arguments))
        return made(arguments)


def _size_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), value.dtype
    return value


def with_numbers(module: torch.fx.GraphModule, arguments: list[Any]) -> torch.fx.GraphModule:
    """A copy of ``module`` for arguments like these, with symbols replaced by numbers."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    copied = torch.fx.GraphModule(module, graph)
    with _disable_current_modes(), torch.no_grad():
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        given = [
            mode.from_tensor(own, static_shapes=True) if isinstance(own, torch.Tensor) else own
            for own in arguments
        ]
        FakeTensorProp(copied, mode).propagate_dont_convert_inputs(*given)
    for node in graph.nodes:
        number = node.meta.get("val")
        if type(number) not in (int, float, bool) or node.op == "output":
            continue
        _replace(node, number)
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and type(node.meta.get("val")) is int:
            graph.erase_node(node)
    return copied


def _replace(node: torch.fx.Node, number: Any) -> None:
    def replaced(own: torch.fx.Node) -> Any:
        return number if own is node else own

    for user in list(node.users):
        user.args = torch.fx.map_arg(user.args, replaced)
        user.kwargs = torch.fx.map_arg(user.kwargs, replaced)
