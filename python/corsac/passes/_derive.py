"""Nodes derived from others: they keep the source line, stack trace and metadata."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import torch

from corsac.fx import Graph, Node
from corsac.fx._module_attributes import get_submodule

#: Keys of metadata that describe the value of the node itself.
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
    """A new node at the insertion point with the source line, stack trace and metadata of ``node``;
    metadata of the value (:data:`OF_VALUE`) only with ``same_value``."""
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
    """Replace ``old`` by ``new``, which gets its users and its name; ``old`` is removed."""
    name = old.name
    old.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    old.graph.erase_node(old)
    new.name = name


def unique_attribute(root: torch.nn.Module, wish: str, taken: Container[str] = ()) -> str:
    """The path ``wish``, with a number appended if ``root`` has such an attribute already, or it is ``taken``."""
    owner = get_submodule(root, wish.rpartition(".")[0])
    path, n = wish, 0
    while hasattr(owner, path.rpartition(".")[2]) or path in taken:
        n += 1
        path = f"{wish}_{n}"
    return path


def erase_unused(graph: Graph, nodes: Any) -> None:
    """Erase the unused among ``nodes``, the last first."""
    for node in reversed(list(nodes)):
        if not node.users and not node._erased:
            graph.erase_node(node)
