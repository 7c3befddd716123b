"""The pickled form of graphs and nodes.

A graph is pickled as its nodes in order, with numbers in place of nodes; a node as its graph and its name.
Metadata and attributes may contain nodes, so that all nodes of a graph are made before anything else of it is
unpickled.
"""

from __future__ import annotations

import copyreg
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from corsac._core import Node, map_aggregate, map_arg

if TYPE_CHECKING:
    from corsac.fx.graph import Graph


class _Reference:
    """A node in arguments, by its number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class _NodeRecord(NamedTuple):
    """All fields of a node."""

    op: str
    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    type: Any
    meta: dict[str, Any]
    attributes: dict[str, Any]


def _records(graph: Graph) -> list[_NodeRecord]:
    """Records of the nodes of a graph, without references to the graph."""
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
    """The target of function calls until the real one is unpickled."""


def _bare(cls: type[Graph], nodes: list[tuple[str, str]]) -> Graph:
    """A graph with nodes of these opcodes and names, to be completed later."""
    graph = cls.__new__(cls)
    for op, name in nodes:
        graph.create_node(op, _to_be_restored if op == "call_function" else name, name=name)
    # Restore names that are not identifiers, which creating the nodes changed.
    for node, (_, name) in zip(graph.nodes, nodes, strict=True):
        node.name = name
    return graph


def _restore(graph: Graph, records: list[_NodeRecord]) -> Graph:
    """Set the fields of a graph's nodes from the records. In an empty graph, as older pickles have it, the
    nodes are made first."""
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

    # Arguments last: a node may be used before its own position.
    for node, record in zip(nodes, records, strict=True):
        node.args = map_aggregate(record.args, resolve)
        node.kwargs = map_aggregate(record.kwargs, resolve)
        node.name = record.name
    return graph


#: Nodes of each graph by name, as of the last miss. Weak, since nodes keep their graphs alive.
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
    """The pickle form of a node, also for :func:`copy.deepcopy`: it is copied with its graph."""
    if node._erased:
        raise TypeError(f"node {node.name} was erased: it cannot be copied or pickled")
    return _node_called, (node.graph, node.name), dict(node.__dict__) or None


copyreg.pickle(Node, _reduced)  # type: ignore[arg-type]
