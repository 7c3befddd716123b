"""Normalisation of a program before it is partitioned for a backend."""

from __future__ import annotations

from typing import Any

import torch

from corsac.analysis import Dim
from corsac.fx import Graph, Node
from corsac.onnx._translate import holds_sizes, holds_tensors, is_settled

Types = dict[Node, Any]


def fix_sizes(graph: Graph, types: Types) -> None:
    """Replace nodes that compute plain values known to the analysis by these values.

    Nodes that become unused are removed, and so are assertions that are known to hold.
    """
    for node in list(graph.nodes):
        if not node.op.startswith("call_") or holds_tensors(types[node]):
            continue
        if holds_sizes(types[node]) or not _is_plain(types[node]) or node.is_impure():
            continue
        for user in list(node.users):
            args, kwargs = _replaced((tuple(user.args), dict(user.kwargs)), node, types[node])
            user.args, user.kwargs = args, kwargs
    for node in reversed(list(graph.nodes)):
        known = node.op.startswith("call_") and not holds_tensors(types[node])
        unused = known and not node.users and not node.is_impure()
        if unused or is_settled(node, types):
            graph.erase_node(node)


def _is_plain(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(_is_plain(item) for item in value)
    known = (bool, int, float, str, torch.dtype)
    return isinstance(value, known) and not isinstance(value, Dim)


def _replaced(value: Any, node: Node, known: Any) -> Any:
    if value is node:
        return known
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return slice(*(_replaced(part, node, known) for part in parts))
    if isinstance(value, (tuple, list)):
        return type(value)([_replaced(item, node, known) for item in value])
    if isinstance(value, dict):
        return {key: _replaced(item, node, known) for key, item in value.items()}
    return value


def own_attributes(graph: Graph, types: Types) -> None:
    """Give each user of an attribute a ``get_attr`` node of its own, directly before it.

    So the attribute is read next to its user, on the same side of all writes, and is never passed between parts.
    """
    for node in graph.find_nodes(op="get_attr"):
        first, *others = node.users or [None]
        if first is not None:
            first.prepend(node)
        for user in others:
            with graph.inserting_before(user):
                copy = graph.node_copy(node)
            types[copy] = types[node]
            user.replace_input_with(node, copy)
