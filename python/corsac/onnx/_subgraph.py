"""Graphs in attributes that become modules of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from corsac.fx.graph_module import GraphModule
from corsac.onnx._emitter import identifier
from corsac.onnx._import import _SAMPLES, Reading
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Sequence, Value


@dataclass
class Subgraph:
    """A module, and its results as values."""

    module: GraphModule
    results: list[Any]


class _Inner(Reading):
    """A graph that is read inside another one: values of that become inputs."""

    def __init__(self, outer: Reading, graph: Any, given: list[Value]) -> None:
        samples = outer.samples if len(outer.samples) > 1 else _SAMPLES[0]
        super().__init__(outer.model, samples)
        self.outer, self.emitter.version, self.versions = (
            outer,
            outer.emitter.version,
            outer.versions,
        )
        self.depth = outer.depth + 1
        self.captured: dict[str, Value] = {}
        self.emitter.declared = lambda name: None
        self.open(graph)
        for info, value in zip(graph.input, given, strict=True):
            node = self.emitter.graph.placeholder(identifier(info.name))
            self.values[info.name] = Value(info.name, self._type(info, value), node)
        self.translate_all(graph.node)
        self.results = [self.value(own.name) for own in graph.output]

    def _type(self, info: Any, value: Value) -> tuple[torch.Tensor, ...]:
        declared = info.type.tensor_type
        if declared.elem_type and declared.HasField("shape"):
            return self.sampled(info.type)
        return self._as_many(value.samples)

    def _as_many(self, samples: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return samples if len(samples) == len(self.samples) else samples[:1] * len(self.samples)

    def value(self, name: str) -> Any:
        if name in self.values:
            return super().value(name)
        found = self.outer.value(name)
        if isinstance(found, Sequence):
            raise Unsupported(f"the sequence {name!r} of the graph around it")
        if found.constant is not None:
            made = self.emitter.constant(
                found.constant, found.name, is_literal=found.is_literal, role=found.role
            )
            made.facts |= {"bits": found.facts["bits"]} if "bits" in found.facts else {}
        else:
            self.captured[name] = found
            with self.emitter.graph.inserting_before(_first_call(self.emitter.graph)):
                node = self.emitter.graph.placeholder(identifier(f"outer_{name}"))
            made = Value(name, self._as_many(found.samples), node)
        self.values[name] = made
        return made

    def finish(self, names: list[str]) -> Subgraph:
        """The module, with an input for each of these values of the graph around it."""
        for name in names:
            if name not in self.captured:
                self.value(name)
        g = self.emitter
        order = [self.values[name]._node for name in names]
        for node in order:
            with g.graph.inserting_before(_first_call(g.graph)):
                own = g.graph.placeholder(f"{node.name}_given")
            node.replace_all_uses_with(own)
            g.graph.erase_node(node)
            for value in self.values.values():
                if isinstance(value, Value) and value._node is node:
                    value._node = own
        g.graph.output(tuple(g.argument(own) for own in self.results))
        module = GraphModule(g.weights.root, g.graph, "Subgraph")
        module.graph.eliminate_dead_code()
        module.recompile()
        return Subgraph(module.eval(), self.results)


def _first_call(graph: Any) -> Any:
    """The first node that is no placeholder."""
    for node in graph.nodes:
        if node.op != "placeholder":
            return node
    return graph._root


def read_body(
    reading: Reading, graph: Any, carried: list[Value], others: list[Value], before: int, after: int
) -> tuple[Subgraph, list[Value]]:
    """Read a graph that is called again and again with its own results.

    Sizes of these that are others than those of the first call are not fixed.

    Args:
        reading: the reading of the graph around it.
        graph: the graph.
        carried: values of the first call that results take the place of.
        others: values of its other inputs.
        before: the number of ``others`` that come before ``carried``.
        after: the number of results before those that are carried.
    """
    while True:
        given = [*others[:before], *carried, *others[before:]]
        (own,), captured = read_subgraphs(reading, [(graph, given)])
        results = own.results[after : after + len(carried)]
        next_ = [_joined(reading, *pair) for pair in zip(carried, results, strict=True)]
        if all(new is old for new, old in zip(next_, carried, strict=True)):
            return own, captured
        carried = next_


def _joined(reading: Reading, value: Value, result: Any) -> Value:
    """A value of the type of both; ``value`` itself if its type is that of the result, too."""
    if isinstance(result, Sequence):
        return value
    if value.rank != result.rank:
        raise Unsupported("a value of a loop whose rank changes")
    changes = [
        own not in (None, theirs) for own, theirs in zip(value.shape, result.shape, strict=True)
    ]
    if not any(changes):
        return value
    samples = []
    for known, free in zip(value.samples, reading.fresh(value.dtype, value.rank), strict=True):
        sizes = zip(changes, known.shape, free.shape, strict=True)
        shape = [new if change else own for change, own, new in sizes]
        samples.append(torch.empty(shape, dtype=value.dtype, device="meta"))
    return Value(value.name, tuple(samples))


def read_subgraphs(
    reading: Reading, graphs: list[tuple[Any, list[Value]]]
) -> tuple[list[Subgraph], list[Value]]:
    """Read graphs with the values of their inputs; return them and the values of ``reading`` that they are to be
    called with after those."""
    made = [_Inner(reading, graph, given) for graph, given in graphs]
    captured: dict[str, Value] = {}
    for own in made:
        captured |= own.captured
    return [own.finish(list(captured)) for own in made], list(captured.values())
