"""What graphs and nodes are when they are pickled.

A graph is its nodes in order, with numbers in place of nodes; a node is its graph and its name.
Metadata and attributes may hold nodes, so that all nodes of a graph are made before anything else of
it is read.
"""

from __future__ import annotations

import copyreg
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from corsac._core import Node, map_aggregate, map_arg

if TYPE_CHECKING:
    from corsac.fx.graph import Graph


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


def _to_be_restored() -> None:
    """Stands for what a call calls, until that is read."""


def _bare(cls: type[Graph], nodes: list[tuple[str, str]]) -> Graph:
    """A graph with nodes of these opcodes and names, of which nothing else is known yet."""
    graph = cls.__new__(cls)
    for op, name in nodes:
        graph.create_node(op, _to_be_restored if op == "call_function" else name, name=name)
    # A name that is no identifier was changed.
    for node, (_, name) in zip(graph.nodes, nodes, strict=True):
        node.name = name
    return graph


def _restore(graph: Graph, records: list[_NodeRecord]) -> Graph:
    """Make the nodes of a graph what was recorded; an empty graph, as older pickles have it, gets its
    nodes first."""
    if not len(graph.nodes):
        for record in records:
            graph.create_node(record.op, record.target, name=record.name)
    nodes = list(graph.nodes)
    for node, record in zip(nodes, records, strict=True):
        node.target, node.type, node.meta = record.target, record.type, record.meta
        for name, value in record.attributes.items():
            setattr(node, name, value)

    def resolve(value: Any) -> Any:
        return nodes[value.number] if isinstance(value, _Reference) else value

    # Arguments last: a node may be used before it comes.
    for node, record in zip(nodes, records, strict=True):
        node.args = map_aggregate(record.args, resolve)
        node.kwargs = map_aggregate(record.kwargs, resolve)
        node.name = record.name
    return graph


#: The nodes of graphs by name, as they were when one was last looked for. Nodes hold their graphs.
_by_name: weakref.WeakKeyDictionary[Graph, weakref.WeakValueDictionary[str, Node]] = (
    weakref.WeakKeyDictionary()
)


def _node_called(graph: Graph, name: str) -> Node:
    """The node of ``graph`` with this name."""
    known = _by_name.get(graph)
    node = None if known is None else known.get(name)
    if node is None or node.name != name or node._erased:
        found = weakref.WeakValueDictionary((node.name, node) for node in graph.nodes)
        _by_name[graph] = found
        node = found.get(name)
    if node is None:
        raise LookupError(f"the copy of the graph has no node {name}: is it after the output node?")
    return node


def _reduced(node: Node) -> tuple[Any, ...]:
    """A node, as pickle and :func:`copy.deepcopy` take it apart: copied with its graph."""
    if node._erased:
        raise TypeError(f"node {node.name} was erased: it cannot be copied or pickled")
    return _node_called, (node.graph, node.name), dict(node.__dict__) or None


copyreg.pickle(Node, _reduced)  # type: ignore[arg-type]
