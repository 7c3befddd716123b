"""Cases that are smaller than a case: fewer calls, results, elements, simpler values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from corsac.fx import Graph, GraphModule, Node
from corsac.fx.node import map_aggregate
from corsac.minifier._case import Case

#: Sizes up to this are made smaller by one, too.
SMALL = 16
#: Says whether a case still has the fault.
Test = Callable[[Case], bool]


def fewer_calls(case: Case, test: Test) -> Case:
    """Delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input",
    2002) over the calls: halves first, then what is left without one piece, in ever smaller pieces.

    What a removed call gave, and what it would have read, is an input or is gone; so this truncates
    graphs, removes suffixes, bisects and replaces values by inputs, all in one.
    """
    values = case.values()
    (output,) = case.module.graph.find_nodes(op="output")
    results = set(output.all_input_nodes)
    graph = case.module.graph
    kept = [n for n in graph.nodes if n.op.startswith("call_") or n.op == "get_attr"]
    best, pieces = case, 2
    while len(kept) >= 2:
        size = -(-len(kept) // pieces)
        chunks = [kept[at : at + size] for at in range(0, len(kept), size)]
        for subset in _subsets(kept, chunks, pieces):
            smaller = case.part(set(subset), values, results)
            if smaller is not None and test(smaller):
                pieces = 2 if len(subset) <= size else max(pieces - 1, 2)
                kept, best = subset, smaller
                break
        else:
            if pieces >= len(kept):
                break
            pieces = min(len(kept), pieces * 2)
    return best


def _subsets(kept: list[Node], chunks: list[list[Node]], pieces: int) -> Iterator[list[Node]]:
    # What comes late is rarely what fails alone: the end first, as a truncation does.
    yield from chunks
    if pieces > 2:
        for chunk in reversed(chunks):
            out = set(chunk)
            yield [node for node in kept if node not in out]


def fewer_results(case: Case, test: Test) -> Case:
    """One result, or each that is not needed gone."""
    (output,) = case.module.graph.find_nodes(op="output")
    if not isinstance(output.args[0], tuple | list):
        return case
    count = len(output.args[0])
    for keep in [[at] for at in range(count)] if count > 1 else []:
        smaller = _with_results(case, keep)
        if test(smaller):
            return smaller
    at = 0
    while count > 1 and at < count:
        smaller = _with_results(case, [own for own in range(count) if own != at])
        if test(smaller):
            case, count = smaller, count - 1
        else:
            at += 1
    return case


def _with_results(case: Case, keep: list[int]) -> Case:
    graph = _copy(case.module.graph)
    (output,) = graph.find_nodes(op="output")
    output.args = (tuple(output.args[0][at] for at in keep),)
    return Case(GraphModule(case.module, graph), case.inputs)


def smaller_sizes(case: Case, test: Test) -> Case:
    """Each size, wherever it is in inputs and in numbers of the graph, made 1, 2, half of it, or one less."""
    tried: set[tuple[int, int]] = set()
    while True:
        sizes = sorted({d for own in _tensors(case) for d in own.shape if d > 1}, reverse=True)
        for size in sizes:
            for new in dict.fromkeys((1, 2, size // 2, *[size - 1] * (size <= SMALL))):
                if new >= size or (size, new) in tried:
                    continue
                tried.add((size, new))
                found = next(filter(test, _resized(case, size, new)), None)
                if found is not None:
                    case = found
                    break
            else:
                continue
            break
        else:
            return case


def _resized(case: Case, size: int, new: int) -> Iterator[Case]:
    inputs = [_cut(own, size, new) for own in case.inputs]
    yield Case(case.module, inputs)
    graph = _copy(case.module.graph)
    changed = False

    def number(value: Any) -> Any:
        nonlocal changed
        if type(value) is not int or value != size:
            return value
        changed = True
        return new

    for node in graph.nodes:
        if node.op.startswith("call_"):
            node.args = map_aggregate(node.args, number)
            node.kwargs = map_aggregate(node.kwargs, number)
    if changed:
        yield Case(GraphModule(case.module, graph), inputs)


def _cut(value: Any, size: int, new: int) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    for axis, own in enumerate(value.shape):
        if own == size:
            value = value.narrow(axis, 0, new)
    return value.detach().clone().requires_grad_(value.requires_grad)


def simpler_values(case: Case, test: Test) -> Case:
    """Inputs of ones, zeros, counted up or rounded, each on its own, where the fault stays."""
    for at, own in enumerate(case.inputs):
        if not isinstance(own, torch.Tensor) or own.is_complex() or not own.numel():
            continue
        for simple in _simple(own.detach()):
            inputs = [
                *case.inputs[:at],
                simple.requires_grad_(own.requires_grad),
                *case.inputs[at + 1 :],
            ]
            if test(Case(case.module, inputs)):
                case = Case(case.module, inputs)
                break
    return case


def _simple(own: torch.Tensor) -> Iterator[torch.Tensor]:
    yield torch.ones_like(own, memory_format=torch.contiguous_format)
    yield torch.zeros_like(own, memory_format=torch.contiguous_format)
    if own.dtype != torch.bool:
        yield torch.arange(own.numel()).reshape(own.shape).to(own.dtype)
    if own.is_floating_point():
        yield own.round()
        yield (own * 4).round() / 4


def _tensors(case: Case) -> list[torch.Tensor]:
    return [own for own in case.inputs if isinstance(own, torch.Tensor)]


def _copy(graph: Graph) -> Graph:
    copied = Graph()
    copied.output(copied.graph_copy(graph, {}))
    return copied
