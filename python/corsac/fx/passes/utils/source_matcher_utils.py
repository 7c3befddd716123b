"""Finds nodes by the functions and modules that they were decomposed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..._packages import expect_ours
from ...graph import Graph
from ...node import Node

__all__ = ["SourcePartition", "check_subgraphs_connected", "get_source_partitions"]


@dataclass
class SourcePartition:
    """Nodes that one call in the user's program was decomposed into."""

    nodes: list[Node]
    """The nodes, in graph order."""
    source: Any
    """The function or class of modules that was called."""
    input_nodes: list[Node] = field(default_factory=list)
    """The values that the nodes use, in graph order, without attributes."""
    output_nodes: list[Node] = field(default_factory=list)
    """The nodes that have users outside."""
    params: list[Node] = field(default_factory=list)
    """The nodes that read attributes."""


def get_source_partitions(
    graph: Graph,
    wanted_sources: list[Any],
    filter_fn: Callable[[Node], bool] | None = None,
) -> dict[Any, list[SourcePartition]]:
    """The nodes that calls of functions and modules were decomposed into.

    The source of a node is read from its metadata: ``source_fn_stack``, else ``torch_fn``, else the innermost
    module in ``nn_module_stack``.

    Args:
        graph: the graph to search.
        wanted_sources: functions such as ``torch.nn.functional.linear``, classes of modules, or
            names of functions.
        filter_fn: excludes calls with a node for which it is false.

    Returns:
        The calls of each source found, in graph order.
    """
    expect_ours(graph, "get_source_partitions")
    calls: dict[Any, dict[str, list[Node]]] = {}
    for node in graph.nodes:
        found = _source_of(node, wanted_sources)
        if found is not None:
            source, call = found
            calls.setdefault(source, {}).setdefault(call, []).append(node)
    return {
        source: [
            _partition(nodes, source)
            for nodes in by_call.values()
            if filter_fn is None or all(map(filter_fn, nodes))
        ]
        for source, by_call in calls.items()
    }


def _source_of(node: Node, wanted: list[Any]) -> tuple[Any, str] | None:
    """The wanted source that a node came from, and a name for that call."""
    stack = node.meta.get("source_fn_stack")
    if stack is not None:
        call, source = stack[-1][:2]
        return (source, call) if source in wanted else None
    torch_fn = node.meta.get("torch_fn")
    if torch_fn is not None:
        call, function = torch_fn
        name = function.split(".")[1]
        if name in wanted:
            return name, call
    modules = node.meta.get("nn_module_stack")
    if node.op != "call_function" or not modules:
        return None
    path, cls = list(modules.values())[-1]
    for source in wanted:
        if _is_class(cls, source):
            return source, path
    return None


def _is_class(cls: Any, source: Any) -> bool:
    """Whether ``cls``, a class or its name, is the wanted source."""
    if not isinstance(source, type):
        return bool(cls == source)
    if isinstance(cls, str):
        return cls == f"{source.__module__}.{source.__qualname__}"
    return isinstance(cls, type) and issubclass(cls, source)


def _partition(nodes: list[Node], source: Any) -> SourcePartition:
    inside = set(nodes)
    inputs = {
        arg
        for node in nodes
        for arg in node.args
        if isinstance(arg, Node) and arg not in inside and arg.op != "get_attr"
    }
    params = {node for node in nodes if node.op == "get_attr"}
    outputs = {node for node in inside - params if any(user not in inside for user in node.users)}
    return SourcePartition(nodes, source, sorted(inputs), sorted(outputs), sorted(params))


def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Whether some node of ``subgraph2`` uses one of ``subgraph1``."""
    second = set(subgraph2.nodes)
    return any(user in second for node in subgraph1.nodes for user in node.users)
