"""One matrix product for several, under the names of ``torch.fx.experimental.merge_matmul``."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from corsac.fx._symbolic_trace import symbolic_trace
from corsac.fx.graph import Graph
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node
from corsac.passes._derive import derived, take_place

__all__ = ["are_nodes_independent", "may_depend_on", "merge_matmul", "split_result_tensors"]


def split_result_tensors(
    result: torch.Tensor, inputs: list[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Split ``result``, shape ``(n, ...)``, into parts with as many rows as each of ``inputs``."""
    if isinstance(result, torch.fx.Proxy):
        sizes = [0] * len(inputs)
    else:
        sizes = [x.shape[0] for x in inputs]
    return torch.split(result, sizes)


def may_depend_on(a: Node, b: Node, search_depth: int = 6) -> bool:
    """Whether ``a`` depends on ``b``; True where more than ``search_depth`` steps would be needed
    to be sure."""
    if a == b:
        return True
    if not a.all_input_nodes:
        return False
    if search_depth == 0:
        return True
    return any(may_depend_on(x, b, search_depth - 1) for x in a.all_input_nodes)


def are_nodes_independent(nodes: list[Node]) -> bool:
    """Whether none of ``nodes`` depends on another one of them."""
    chosen, last = set(nodes), max(nodes)
    # What depends on one of them, from the first on.
    tainted: set[Node] = set()
    node = min(nodes)
    while True:
        inputs = node.all_input_nodes
        depends = any(x in tainted or x in chosen for x in inputs)
        if depends:
            if node in chosen:
                return False
            tainted.add(node)
        if node is last:
            return True
        node = node.next


def merge_matmul(in_mod: torch.nn.Module) -> GraphModule:
    """A module in which products ``x @ w``, ``y @ w``, ... with one right-hand side are one product
    of the rows of all of them.

    The left-hand sides have to agree in all dimensions but the first; where that is known not to
    hold (``node.meta["tensor_meta"]``), they stay apart. So they do where one depends on another or
    something is written to in between. Traced if it is no graph module; not changed.
    """
    gm = in_mod if isinstance(in_mod, GraphModule) else symbolic_trace(in_mod)
    gm = GraphModule(gm, gm.graph.__deepcopy__({}))
    if _merge(gm.graph):
        gm.recompile()
    gm.graph.lint()
    return gm


def _merge(graph: Graph) -> int:
    """Merges what can be; answers how many products there are fewer."""
    groups: dict[Any, list[tuple[Node, Node, Node]]] = {}
    for op, target in (("call_method", "matmul"), ("call_function", torch.matmul)):
        for node in graph.find_nodes(op=op, target=target):
            if len(node.args) == 2 and not node.kwargs:
                lhs, rhs = node.args
                if isinstance(lhs, Node) and isinstance(rhs, Node):
                    key = rhs.target if rhs.op == "get_attr" else rhs
                    groups.setdefault(key, []).append((node, lhs, rhs))
    fewer = 0
    for group in groups.values():
        group.sort(key=lambda part: part[0])
        nodes = [node for node, _, _ in group]
        if len(group) > 1 and _can_be_one(group, nodes):
            fewer += len(group) - 1
            _merge_group(graph, group)
    return fewer


def _can_be_one(group: list[tuple[Node, Node, Node]], nodes: list[Node]) -> bool:
    from corsac.passes._effects import effects

    if not are_nodes_independent(nodes):
        return False
    shapes = [getattr(lhs.meta.get("tensor_meta"), "shape", None) for _, lhs, _ in group]
    known = [tuple(shape) for shape in shapes if shape is not None]
    if any(len(shape) < 2 or shape[1:] != known[0][1:] for shape in known):
        return False
    node = nodes[0]
    while node is not nodes[-1]:
        found = effects(node)
        if found.mutates or found.opaque or found.writes_state or found.random or found.side_effect:
            return False
        node = node.next
    return True


def _merge_group(graph: Graph, group: list[tuple[Node, Node, Node]]) -> None:
    first, last = group[0][0], group[-1][0]
    lhs, rhs = [part[1] for part in group], group[0][2]
    # Everything is there at the place of the last; the users of the others move behind it.
    _sink_users([node for node, _, _ in group])
    with graph.inserting_before(last):
        cat = derived(first, "call_function", torch.cat, (lhs,))
        product = derived(first, "call_function", torch.matmul, (cat, rhs))
        parts = derived(first, "call_function", split_result_tensors, (product, lhs))
        for index, (node, _, _) in enumerate(group):
            getitem: Callable[..., Any] = operator.getitem
            part = derived(node, "call_function", getitem, (parts, index), same_value=True)
            take_place(part, node)


def _sink_users(group: list[Node]) -> None:
    """Moves what depends on one of ``group`` and comes before the last of them behind it."""
    chosen, last = set(group), group[-1]
    tainted, node, place = set(group), group[0], last
    while node is not last:
        following = node.next
        if node not in chosen and any(x in tainted for x in node.all_input_nodes):
            tainted.add(node)
            place.append(node)
            place = node
        node = following
