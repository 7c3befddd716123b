"""Canonical order and names of nodes, independent of how a graph was traced.

The caller chooses the key that orders independent nodes, and the nodes that may move at all.
:func:`corsac.passes.canonicalize` needs neither: it knows the effects of operators.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.utils._pytree as pytree

from .._packages import expect_ours
from ..graph import Graph, _Namespace
from ..node import Node

__all__ = ["canonicalize_graph", "rename_nodes_to_canonical"]

_AUGMENTED = frozenset(
    f"i{name}"
    for name in (
        *("add", "and", "concat", "floordiv", "lshift", "matmul", "mod", "mul", "or", "pow"),
        *("rshift", "sub", "truediv", "xor"),
    )
)
_SYMBOLIC = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)


def _computation_node_key(
    node: Node, canonical_idx: dict[Node, int]
) -> tuple[int, str, tuple[int, ...]]:
    """Sort key of calls: the target, then the positions of the inputs."""
    places = tuple(canonical_idx[value] for value in node.all_input_nodes)
    return 2, node.graph._target_to_str(node.target), places


def _canonical_node_key(node: Node, canonical_idx: dict[Node, int]) -> object:
    """Sort key of all nodes except placeholders: attributes, calls, the output."""
    if node.op == "placeholder":
        raise AssertionError("callers must handle placeholder nodes themselves")
    if node.op == "get_attr":
        return 1, str(node.target)
    return (3,) if node.op == "output" else _computation_node_key(node, canonical_idx)


def _is_safe_to_reorder(node: Node) -> bool:
    """Whether ``node`` may be exchanged with nodes that do not use it.

    Besides the nodes that dead-code elimination would keep, these may not move: methods and functions that
    write according to their names, and calls of plain functions without a value of the program as result
    (according to metadata), which can only be there for their side effects.
    """
    target = node.target
    if node.op == "call_method":
        return not target.endswith("_")
    if node.op == "call_module":
        return not node.is_impure()
    if node.op != "call_function":
        return True
    if node.is_impure():
        return False
    if isinstance(target, torch._ops.OpOverload):
        return True
    name = getattr(target, "__name__", "")
    writes = (
        name.endswith("_")
        or (getattr(target, "__module__", "") == "_operator" and name in _AUGMENTED)
        or isinstance(node.kwargs.get("out"), Node)
        or name == "triton_kernel_wrapper_mutation"
    )
    switches = not node.all_input_nodes or name in ("_add_batch_dim", "_remove_batch_dim")
    if writes or switches:
        return False
    if isinstance(target, torch._ops.HigherOrderOperator):
        return True
    values = [node.meta.get("example_value"), node.meta.get("val")]
    return any(isinstance(leaf, _SYMBOLIC) for leaf in pytree.tree_leaves(values))


def rename_nodes_to_canonical(
    graph: Graph, skip_ops: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Rename all nodes as if they were created in this order.

    Args:
        graph: the graph, which is changed.
        skip_ops: opcodes whose nodes keep their names.

    Returns:
        The new names of renamed nodes, by former name.
    """
    expect_ours(graph, "rename_nodes_to_canonical")
    names = _Namespace()
    renamed = {}
    for node in graph.nodes:
        if node.op in skip_ops:
            names.create_name(node.name, node)
            continue
        former, name = node.name, names.create_name(graph._target_to_str(node.target), node)
        if name != former:
            renamed[former] = name
            node.name = name
    graph._graph_namespace = names
    return renamed


class _Schedule:
    """Dependencies between nodes: on their arguments, and around nodes that must not move."""

    def __init__(self, nodes: list[Node], may_move: Callable[[Node], bool]) -> None:
        self.waits = {node: len(node.all_input_nodes) for node in nodes}
        self.followers: dict[Node, list[Node]] = {}
        fixed: Node | None = None
        since: list[Node] = []
        for node in nodes:
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            if may_move(node):
                since.append(node)
                before: Iterable[Node] = () if fixed is None else (fixed,)
            else:
                before = since if fixed is None else [*since, fixed]
                fixed, since = node, []
            for earlier in before:
                self.followers.setdefault(earlier, []).append(node)
                self.waits[node] += 1

    def order(self, key: Callable[[Node, dict[Node, int]], Any]) -> list[Node]:
        """The nodes, always the ready one with the smallest key first."""
        places: dict[Node, int] = {}
        ready: list[tuple[Any, int, Node]] = []
        arrivals = 0

        def arrive(node: Node) -> None:
            nonlocal arrivals
            # Nodes with equal keys keep the order in which they became ready.
            heapq.heappush(ready, (key(node, places), arrivals, node))
            arrivals += 1

        for node, waits in self.waits.items():
            if not waits:
                arrive(node)
        while ready:
            node = heapq.heappop(ready)[2]
            places[node] = len(places)
            for follower in (*node.users, *self.followers.get(node, ())):
                self.waits[follower] -= 1
                if not self.waits[follower]:
                    arrive(follower)
        if len(places) < len(self.waits):
            stuck = [node for node, waits in self.waits.items() if waits]
            raise RuntimeError(
                f"Canonicalization failed: processed {len(places)} of {len(self.waits)} nodes. "
                f"Remaining: {stuck}"
            )
        return list(places)


def _attributes_at_first_use(order: list[Node]) -> list[Node]:
    """The order, with each ``get_attr`` node moved right before its first user."""
    rest = [node for node in order if node.op != "get_attr"]
    places = {node: place for place, node in enumerate(rest)}
    end = len(rest) - (1 if rest and rest[-1].op == "output" else 0)
    before: dict[int, list[Node]] = {}
    for node in order:
        if node.op == "get_attr":
            uses = [places.get(user, len(rest)) for user in node.users]
            before.setdefault(min(uses, default=end), []).append(node)
    moved: list[Node] = []
    for place, node in enumerate(rest):
        moved += [*before.get(place, ()), node]
    return moved + before.get(len(rest), [])


def _items_at_their_source(order: list[Node]) -> list[Node]:
    """The order, with each ``getitem`` moved right after its source, sorted by index."""

    def index(node: Node) -> tuple[int, int, str]:
        key = node.args[1]
        return (0, key, "") if isinstance(key, int) else (1, 0, str(key))

    is_item = {
        node: node.op == "call_function" and node.target is operator.getitem for node in order
    }
    items: dict[Node, list[Node]] = {}
    for node in order:
        if is_item[node]:
            items.setdefault(node.args[0], []).append(node)
    moved: list[Node] = []
    for node in order:
        waiting = [] if is_item[node] else [node]
        while waiting:
            node = waiting.pop()
            moved.append(node)
            waiting += sorted(items.get(node, ()), key=index)[::-1]
    if len(moved) != len(order):
        raise AssertionError(
            f"getitem grouping lost nodes: {len(moved)} != {len(order)} (a getitem's producer is "
            "missing from the order)"
        )
    return moved


def canonicalize_graph(
    graph: Graph,
    canonical_key_fn: Callable[[Node, dict[Node, int]], object],
    is_safe_to_reorder: Callable[[Node], bool],
    *,
    skip_rename_ops: frozenset[str] = frozenset(),
    group_getitems: bool = False,
) -> dict[str, str]:
    """Sort the nodes by their keys alone, and rename them accordingly.

    Args:
        graph: the graph, which is changed.
        canonical_key_fn: called for each node whose inputs are placed, with the places so far; the smallest
            key goes first.
        is_safe_to_reorder: whether a node may move. The others keep their order, and nodes between two of
            them stay there.
        skip_rename_ops: opcodes whose nodes keep their names.
        group_getitems: move items of tuples right after these.

    Returns:
        The new names of renamed nodes, by former name.

    Raises:
        RuntimeError: there is no valid order.
    """
    expect_ours(graph, "canonicalize_graph")
    order = _Schedule(list(graph.nodes), is_safe_to_reorder).order(canonical_key_fn)
    order = _attributes_at_first_use(order)
    if group_getitems:
        order = _items_at_their_source(order)
    last = graph._root
    for node in order:
        last.append(node)
        last = node
    return rename_nodes_to_canonical(graph, skip_rename_ops)
