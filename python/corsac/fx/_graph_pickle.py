"""What a graph is when it is pickled: its nodes in order, with numbers in place of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from corsac._core import map_aggregate, map_arg

if TYPE_CHECKING:
    from corsac.fx.graph import Graph
    from corsac.fx.node import Node


class _Reference:
    """Stands for the node with this number inside of arguments."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class _NodeRecord(NamedTuple):
    """All that there is to a node."""

    op: str
    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    type: Any
    meta: dict[str, Any]
    attributes: dict[str, Any]


def _records(graph: Graph) -> list[_NodeRecord]:
    """The nodes of a graph, without the graph."""
    numbers = {node: _Reference(number) for number, node in enumerate(graph.nodes)}

    def number(node: Node) -> _Reference:
        return numbers[node]

    return [
        _NodeRecord(
            node.op,
            node.name,
            node.target,
            map_arg(node.args, number),
            map_arg(node.kwargs, number),
            node.type,
            node.meta,
            dict(node.__dict__),
        )
        for node in graph.nodes
    ]


def _restore(graph: Graph, records: list[_NodeRecord]) -> Graph:
    """Put the recorded nodes into an empty graph."""
    nodes: list[Node] = []
    for record in records:
        node = graph.create_node(record.op, record.target, name=record.name, type_expr=record.type)
        node.meta = record.meta
        for name, value in record.attributes.items():
            setattr(node, name, value)
        nodes.append(node)

    def resolve(value: Any) -> Any:
        return nodes[value.number] if isinstance(value, _Reference) else value

    # Arguments last: a node may be used before it comes.
    for node, record in zip(nodes, records, strict=True):
        node.args = map_aggregate(record.args, resolve)
        node.kwargs = map_aggregate(record.kwargs, resolve)
        node.name = record.name
    return graph
