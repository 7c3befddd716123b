"""Subgraphs of one operation, with what is fused into it, and their counterparts in another graph module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node
from corsac.quantization.ns._operations import operations, target_type, unmatchable_types

#: Operations that one layer computes, with the operations before it.
_FUSED_AFTER = {
    "batchnorm": re.compile(r"(conv|convtranspose)\dd|linear"),
    "relu": re.compile(r"(conv|convtranspose|batchnorm)\dd|linear|add|mul|matmul"),
    "leakyrelu": re.compile(r"linear"),
    "tanh": re.compile(r"linear"),
}


class GraphMatchingException(Exception):
    """Two graph modules do not compute the same operations in the same order."""


@dataclass
class Subgraph:
    """Nodes that compute an operation, in order; the first one is the layer."""

    nodes: list[Node] = field(default_factory=list)

    @property
    def base(self) -> Node:
        return self.nodes[0]

    @property
    def end(self) -> Node:
        return self.nodes[-1]

    def add(self, node: Node) -> None:
        if node not in self.nodes:
            self.nodes.append(node)


@dataclass
class _Operation:
    name: str
    node: Node


def _operations_in(model: GraphModule, unmatchable: dict[str, set[Any]]) -> list[_Operation]:
    return [
        _Operation(name, node)
        for node in model.graph.nodes
        for name in operations(model, node, unmatchable)
    ]


def _fuses(last: str, name: str) -> bool:
    """Whether an operation is computed with the one before it."""
    before = _FUSED_AFTER.get(re.sub(r"\dd$", "", name))
    return before is not None and before.fullmatch(last) is not None


def _follows(before: Node, node: Node) -> bool:
    """Whether a node is the only one that uses the other's result."""
    return before is node or list(before.users) == [node]


def subgraphs(model: GraphModule, unmatchable: dict[str, set[Any]] | None = None) -> list[Subgraph]:
    """The operations of a graph module, in order, each with what is fused into it."""
    found: list[Subgraph] = []
    last = ""
    for one in _operations_in(model, unmatchable or unmatchable_types()):
        if found and _fuses(last, one.name) and _follows(found[-1].end, one.node):
            found[-1].add(one.node)
        elif not found or one.node is not found[-1].end:
            found.append(Subgraph([one.node]))
        last = one.name
    return found


def matches(
    model_a: GraphModule,
    model_b: GraphModule,
    related: dict[str, set[Any]] | None = None,
    unmatchable: dict[str, set[Any]] | None = None,
) -> list[tuple[Subgraph, Subgraph]]:
    """The operations of two graph modules of one model, float, prepared or converted, in pairs.

    A batch norm that is folded in one of them goes with its layer in the other.

    Args:
        model_a: a graph module.
        model_b: another one.
        related: sets of functions and types that compute the same, by names.
        unmatchable: what is not compared, as :func:`unmatchable_types`.

    Raises:
        GraphMatchingException: the operations are not the same.
    """
    unmatchable = unmatchable or unmatchable_types()
    left, right = (_operations_in(model, unmatchable) for model in (model_a, model_b))
    pairs: list[tuple[Subgraph, Subgraph]] = []
    last = ""
    i = j = 0
    while i < len(left) or j < len(right):
        a = left[i] if i < len(left) else None
        b = right[j] if j < len(right) else None
        if a and b and (a.name == b.name or _is_related(model_a, a, model_b, b, related)):
            _pair(pairs, last, a, b)
            last, i, j = a.name, i + 1, j + 1
        elif pairs and a and _is_folded(last, a.name):
            pairs[-1][0].add(a.node)
            i += 1
        elif pairs and b and _is_folded(last, b.name):
            pairs[-1][1].add(b.node)
            j += 1
        else:
            raise GraphMatchingException(
                f"the models differ: {_described(model_a, a)} of the one, expected the operation of "
                f"{_described(model_b, b)} of the other"
            )
    return pairs


def _pair(pairs: list[tuple[Subgraph, Subgraph]], last: str, a: _Operation, b: _Operation) -> None:
    if pairs:
        own_a, own_b = pairs[-1]
        shared = a.node is own_a.end or b.node is own_b.end
        chained = _follows(own_a.end, a.node) and _follows(own_b.end, b.node)
        if shared or (_fuses(last, a.name) and chained):
            own_a.add(a.node)
            own_b.add(b.node)
            return
    pairs.append((Subgraph([a.node]), Subgraph([b.node])))


def _is_folded(last: str, name: str) -> bool:
    return name.startswith("batchnorm") and _fuses(last, name)


def _is_related(
    model_a: GraphModule,
    a: _Operation,
    model_b: GraphModule,
    b: _Operation,
    related: dict[str, set[Any]] | None,
) -> bool:
    if not related:
        return False
    return any(
        _target(model_a, a.node) in kinds and _target(model_b, b.node) in kinds
        for kinds in related.values()
    )


def _target(model: GraphModule, node: Node) -> Any:
    from corsac.quantization.ns._operations import module_of

    return type(module_of(model, node)) if node.op == "call_module" else node.target


def _described(model: GraphModule, operation: _Operation | None) -> str:
    if operation is None:
        return "the end"
    return f"node {operation.node.name} ({target_type(model, operation.node)})"


def leaves(value: Any) -> Iterator[Node]:
    """The nodes in arguments, in order, each as often as it is there."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from leaves(inner)
    elif isinstance(value, dict):
        yield from leaves([*value.values()])
