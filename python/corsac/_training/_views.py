"""Views among the results of training graphs: PyTorch makes them from their bases, outside the graphs.

So they are views for autograd, too: they may be written to, and share memory with their bases. The results of the
graphs themselves share no memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from corsac._pytorch.aten import SEVERAL
from corsac.fx import Graph, GraphModule, Node
from corsac.passes._effects import effects


@dataclass(frozen=True, slots=True)
class ReturnedViews:
    """Rebuilds the results of a graph, with views, from its outputs.

    Attributes:
        bases: bases of the views, and results that are not views: indices of inputs of the graph, or of its outputs,
            which are counted after the inputs.
    """

    bases: tuple[int, ...]
    _make: Callable[..., Any]

    def __call__(self, inputs: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> Any:
        count = len(inputs)
        return self._make(*(inputs[n] if n < count else given[n - count] for n in self.bases))


def without_views(
    graph: Graph, results: Sequence[Node]
) -> tuple[Sequence[Node], ReturnedViews | None]:
    """The outputs of ``graph`` in the place of ``results``, and the function that rebuilds the results from them; None
    if no result is a view."""
    shown = {node: of for result in results for node, of in _chain(result)}
    if not shown:
        return results, None
    placeholders = graph.find_nodes(op="placeholder")
    numbers = {node: number for number, node in enumerate(placeholders)}
    given: list[Node] = []
    tail, copies, bases = Graph(), dict[Node, Node](), list[int]()
    for node in [*shown.values(), *results]:
        if node not in shown and node not in copies:
            if node not in numbers:
                numbers[node] = len(placeholders) + len(given)
                given.append(node)
            bases.append(numbers[node])
            copies[node] = tail.placeholder(node.name)
    for node in graph.nodes:
        if node in shown:
            copies[node] = tail.node_copy(node, copies.__getitem__)
    tail.output(tuple(copies[own] for own in results))
    module = GraphModule(torch.nn.Module(), tail)
    return given, ReturnedViews(tuple(bases), module.forward)


def _chain(result: Node) -> list[tuple[Node, Node]]:
    """The chain of view calls that ``result`` ends, each with its base, the last first."""
    found = []
    while (of := _shown(result)) is not None:
        found.append((result, of))
        result = of
    return found


def _shown(node: Node) -> Node | None:
    """The base that ``node`` is, or may be, a view of; None if it computes something."""
    if node.op not in ("call_function", "call_method") or not node.args:
        return None
    of = node.args[0]
    if not isinstance(of, Node) or node.all_input_nodes != [of]:
        return None
    if node.target is operator.getitem and SEVERAL in of.meta:
        return of if _shown(of) is not None else None
    does = effects(node)
    acts = does.mutates or does.random or does.side_effect or does.writes_state or does.opaque
    return of if of in does.aliases and not acts else None


__all__ = ["ReturnedViews", "without_views"]
