"""Makes a case smaller: fewer calls, results and inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from corsac.fx import Graph, GraphModule, Node
from corsac.fx._own_copy import copied_graph
from corsac.fx.node import map_arg
from corsac.minifier._case import Case

#: Tests whether a case still has the fault.
Test = Callable[[Case], bool]
T = TypeVar("T")


def halved(case: Case, test: Test) -> Case:
    """Keep one half of the graph again and again: a fault of a single call is found in tests that get
    cheaper each time."""
    parts = _Parts(case)
    body = parts.body
    while len(body) > 1:
        middle = len(body) // 2
        for half in (body[:middle], body[middle:]):
            smaller = parts.case(half)
            if smaller is not None and test(smaller):
                case, body = smaller, half
                break
        else:
            break
    return case


def truncated(case: Case, test: Test) -> Case:
    """Find the shortest beginning of the graph with the fault, by bisection."""
    parts = _Parts(case)
    return _bisected(case, len(parts.body), lambda count: parts.case(parts.body[:count]), test)


def without_lead(case: Case, test: Test) -> Case:
    """Find the shortest end of the graph with the fault, by bisection: values of the calls before it become
    inputs."""
    parts = _Parts(case)
    whole = len(parts.body)
    return _bisected(case, whole, lambda count: parts.case(parts.body[whole - count :]), test)


def fewer_calls(case: Case, test: Test) -> Case:
    """Remove calls by delta debugging: the value of a removed call becomes an input."""
    parts = _Parts(case)
    return _fewest(case, parts.body, parts.case, test)


def bypassed(case: Case, test: Test) -> Case:
    """Replace each call, from the last one, by one of its arguments of the same type, for faults that need
    connected calls."""
    at = len(case.calls) - 1
    while at >= 0 and len(case.calls) > 1:
        values = case.values()
        node = case.calls[at]
        for source in node.all_input_nodes:
            if _type(values[source]) == _type(values[node]) and node.users:
                smaller = _without(case, node, source)
                if test(smaller):
                    case = smaller
                    break
        at = min(at, len(case.calls)) - 1
    return case


def fewer_results(case: Case, test: Test) -> Case:
    """Keep the results that are needed, by delta debugging."""
    (output,) = case.module.graph.find_nodes(op="output")
    if not isinstance(output.args[0], tuple | list) or len(output.args[0]) < 2:
        return case

    def returning(kept: Sequence[int]) -> Case:
        graph = copied_graph(case.module.graph)
        (output,) = graph.find_nodes(op="output")
        output.args = (tuple(output.args[0][at] for at in kept),)
        graph.eliminate_dead_code()
        return Case(GraphModule(case.module, graph), case.inputs)

    return _fewest(case, range(len(output.args[0])), returning, test)


def fewer_inputs(case: Case, test: Test) -> Case:
    """Drop unused inputs, and merge inputs of one type where the fault stays."""
    case = _with_inputs(case, {}, test)
    first = 0
    while first < len(case.inputs):
        kind = _type(case.inputs[first])
        alike = [n for n, own in enumerate(case.inputs) if n > first and _type(own) == kind]
        merged = _with_inputs(case, dict.fromkeys(alike, first), test) if alike else case
        if merged is case:
            # Not all at once: one by one.
            for other in reversed(alike):
                merged = _with_inputs(merged, {other: first}, test)
        case, first = merged, first + 1
    return case


def delta_debug(items: Sequence[T], test: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """The fewest of ``items`` for which ``test`` is true, minimal in that removing any piece makes it false.

    Halves first, then the items without one piece, in ever smaller pieces: Zeller and Hildebrandt,
    """
    kept, pieces = items, 2
    while len(kept) >= 2:
        size = -(-len(kept) // pieces)
        chunks = [kept[at : at + size] for at in range(0, len(kept), size)]
        for subset in _subsets(chunks, pieces):
            if test(subset):
                pieces = 2 if len(subset) <= size else max(pieces - 1, 2)
                kept = subset
                break
        else:
            if pieces >= len(kept):
                break
            pieces = min(len(kept), pieces * 2)
    return kept


def _fewest(
    case: Case, items: Sequence[T], part: Callable[[Sequence[T]], Case | None], test: Test
) -> Case:
    """The case with the fewest ``items`` that has the fault, by delta debugging; ``case`` has all of them."""
    best = case

    def fails(kept: Sequence[T]) -> bool:
        nonlocal best
        smaller = part(kept)
        if smaller is None or not test(smaller):
            return False
        best = smaller
        return True

    delta_debug(items, fails)
    return best


class _Parts:
    """Builds parts of a case; the values that they read from outside are those that the case computes."""

    def __init__(self, case: Case) -> None:
        graph = case.module.graph
        (output,) = graph.find_nodes(op="output")
        self._case, self._values = case, case.values()
        self._results = set(output.all_input_nodes)
        self.body = [n for n in graph.nodes if n.op.startswith("call_") or n.op == "get_attr"]

    def case(self, kept: Sequence[Node]) -> Case | None:
        return self._case.part(set(kept), self._values, self._results)


def _bisected(case: Case, whole: int, part: Callable[[int], Case | None], test: Test) -> Case:
    """The smallest part of at most ``whole`` nodes with the fault, if every larger part has it too."""
    fails, passes = whole, 0
    while fails - passes > 1:
        middle = (fails + passes) // 2
        smaller = part(middle)
        if smaller is not None and test(smaller):
            case, fails = smaller, middle
        else:
            passes = middle
    return case


def _subsets(chunks: list[Sequence[T]], pieces: int) -> Iterator[Sequence[T]]:
    # Chunks as they come; complements from the end, since late calls rarely fail alone, as in a truncation.
    yield from chunks
    if pieces > 2:
        for left_out in reversed(range(len(chunks))):
            yield [own for at, chunk in enumerate(chunks) if at != left_out for own in chunk]


def _without(case: Case, node: Node, source: Node) -> Case:
    graph, places = Graph(), {}
    for own in case.module.graph.nodes:
        if own is node:
            places[own] = places[source]
        elif own.op == "output":
            graph.output(map_arg(own.args[0], places.__getitem__))
        else:
            places[own] = graph.node_copy(own, places.__getitem__)
    return Case(GraphModule(case.module, graph), case.inputs)


def _with_inputs(case: Case, places: dict[int, int], test: Test) -> Case:
    """The case without unused inputs, and with input ``places[n]`` for input n; ``case`` if the fault
    goes."""
    graph = copied_graph(case.module.graph)
    nodes = list(graph.find_nodes(op="placeholder"))
    for number, other in places.items():
        nodes[number].replace_all_uses_with(nodes[other])
    inputs = []
    for node, own in zip(nodes, case.inputs, strict=True):
        if node.users:
            inputs.append(own)
        else:
            graph.erase_node(node)
    if len(inputs) == len(case.inputs):
        return case
    smaller = Case(GraphModule(case.module, graph), inputs)
    return smaller if test(smaller) else case


def _type(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return type(value)
    return value.dtype, tuple(value.shape), value.device, value.requires_grad
