"""Nodes that come from others: they keep the source line, stack trace and metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from corsac.fx import Graph, Node
from corsac.fx.graph_module import GraphModule

#: Metadata that describes the value of the very node.
OF_VALUE = ("tensor_meta", "val", "example_value")


def derived(
    node: Node,
    op: str,
    target: Callable[..., Any] | str,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    name: str | None = None,
    same_value: bool = False,
) -> Node:
    """A new node at the insertion point that is there because of ``node``: it has its source line,
    stack trace and metadata; what the metadata says of the value only with ``same_value``."""
    graph = node.graph
    new = graph.node_copy(node, lambda used: used)
    new.args, new.kwargs = (), {}
    new.op, new.target = op, target
    new.args, new.kwargs = args, kwargs or {}
    new._rename(name or graph._target_to_str(target))
    new.type = node.type if same_value else None
    if not same_value:
        for key in OF_VALUE:
            new.meta.pop(key, None)
    return new


def take_place(new: Node, old: Node) -> None:
    """Make users of ``old`` use ``new``, which gets its name; ``old`` is removed."""
    name = old.name
    old.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    old.graph.erase_node(old)
    new.name = name


def unique_attribute(gm: GraphModule, wish: str) -> str:
    """The first name after ``wish`` that nothing in ``gm`` has."""
    name, n = wish, 0
    while hasattr(gm, name):
        n += 1
        name = f"{wish}_{n}"
    return name


def erase_unused(graph: Graph, nodes: Any) -> None:
    """Erase those of ``nodes`` that nobody uses, the last first."""
    for node in reversed(list(nodes)):
        if not node.users and not node._erased:
            graph.erase_node(node)
