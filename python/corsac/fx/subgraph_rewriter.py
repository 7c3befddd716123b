"""Replacing every match of a pattern in a graph by another subgraph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ._symbolic_trace import symbolic_trace
from .graph import Graph
from .graph_module import GraphModule
from .node import Node, map_arg

if TYPE_CHECKING:
    from .passes.utils.matcher_utils import InternalMatch

__all__ = [
    "Match",
    "ReplacedPatterns",
    "replace_pattern",
    "replace_pattern_with_filters",
]


class Match(NamedTuple):
    """A place where a pattern was found."""

    anchor: Node
    """The node of the pattern from which the search started: the last one."""
    nodes_map: dict[Node, Node]
    """For each node of the pattern the node of the graph it was matched to."""


@dataclass
class ReplacedPatterns:
    """A place where a pattern was found, and what stands there now."""

    anchor: Node
    """The node of the pattern from which the search started: the last one."""
    nodes_map: dict[Node, Node]
    """For each node of the pattern the node of the graph it was matched to."""
    replacements: list[Node]
    """The nodes that were added."""


def replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule,
    replacement: Callable[..., Any] | GraphModule,
) -> list[Match]:
    """Replace every match of ``pattern`` in the graph of ``gm`` by ``replacement``.

    A pattern is a function or module; what it does is traced, and its parameters match any value.
    A match is a set of nodes that do the same with the same arguments, whatever they are called;
    what the pattern returns may be used anywhere, but all other nodes only inside of the match.
    Matches do not overlap: of those that would, the one that comes first in the graph is taken.

    ``replacement`` must have as many parameters as ``pattern``, even if it does not use them.

    Args:
        gm: the module whose graph is changed; it is recompiled.
        pattern: what to look for. All of its parameters must be used.
        replacement: what to put there. Submodules and attributes it uses are copied to ``gm``.

    Returns:
        One :class:`Match` for each replacement. Nodes of the graph in it have been erased.

    Example::

        def pattern(a, b):
            return torch.cat([a, b]).sum()

        def replacement(a, b):
            return torch.stack([a, b]).sum()

        replace_pattern(gm, pattern, replacement)
    """
    return [
        Match(anchor=replaced.anchor, nodes_map=replaced.nodes_map)
        for replaced in _replace_pattern(gm, pattern, replacement)
    ]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Callable[..., Any] | Graph | GraphModule,
    replacement: Callable[..., Any] | Graph | GraphModule | None = None,
    match_filters: list[Callable[[InternalMatch, Graph, Graph], bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """:func:`replace_pattern` with a say in which matches are replaced, and by what.

    Args:
        gm: the module whose graph is changed; it is recompiled.
        pattern: what to look for.
        replacement: what to put there.
        match_filters: functions of the match, the graph and the pattern's graph; a match is
            replaced if all of them return true. All matches are filtered before the first one is
            replaced.
        ignore_literals: let numbers, strings and other constants match any other.
        replacement_callback: makes the replacement for a match; used in place of
            ``replacement``.
        node_name_match: let a node match the last node of the pattern if this is part of its
            name, whatever it does.

    Returns:
        One :class:`ReplacedPatterns` for each replacement.
    """
    return _replace_pattern(
        gm,
        pattern,
        replacement,
        match_filters,
        ignore_literals,
        replacement_callback,
        node_name_match,
    )


def _replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | Graph | GraphModule,
    replacement: Callable[..., Any] | Graph | GraphModule | None = None,
    match_filters: list[Callable[[InternalMatch, Graph, Graph], bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    from .passes.utils.matcher_utils import SubgraphMatcher

    graph = gm.graph
    pattern_graph = _traced(pattern)
    matcher = SubgraphMatcher(
        pattern_graph,
        match_output=False,
        match_placeholder=False,
        remove_overlapping_matches=True,
        ignore_literals=ignore_literals,
    )
    found = matcher._find(graph, node_name_match)
    numbers = range(len(found))
    matches: dict[int, InternalMatch] = {}
    if match_filters or replacement_callback is not None or _has_hooks(gm):
        matches = {number: matcher._internal_match(found, number) for number in numbers}
        numbers = [
            number
            for number in numbers
            if all(
                accepts(matches[number], graph, pattern_graph) for accepts in match_filters or ()
            )
        ]
    if replacement is None and replacement_callback is None:
        raise AssertionError(
            "Must provide either a replacement GraphModule or a replacement callback"
        )
    new_graph = None if replacement is None else _traced(replacement)
    if replacement_callback is None and not _has_hooks(gm):
        anchor = matcher.pattern_anchors[0] if numbers else None
        replaced = [
            ReplacedPatterns(anchor, nodes_map, added)
            for nodes_map, added in found.replace(list(numbers), new_graph)
        ]
    else:
        replacer = _Replacer(graph, pattern_graph)
        replaced = []
        for number in numbers:
            match = matches[number]
            if replacement_callback is not None:
                new_graph = replacement_callback(match, graph, pattern_graph)
            replaced.append(replacer.replace(match, new_graph))
    gm.recompile()
    if isinstance(replacement, torch.nn.Module):
        _replace_attributes(gm, replacement)
    return replaced


def _traced(program: Any) -> Graph:
    """The graph of a graph, graph module, or function or module to be traced."""
    if isinstance(program, GraphModule):
        return program.graph
    if isinstance(program, Graph):
        return program
    return symbolic_trace(program).graph


def _has_hooks(gm: GraphModule) -> bool:
    """Whether someone is to be told of each change."""
    return bool(gm._create_node_hooks or gm._erase_node_hooks or gm._replace_hooks)


class _Replacer:
    """Replaces matches of one pattern in one graph, one after the other, by the graph's methods.

    For matches of which Python is to know each step; the others are replaced by native code.
    """

    def __init__(self, graph: Graph, pattern: Graph) -> None:
        self._graph = graph
        self._parameters = pattern.find_nodes(op="placeholder")
        # Users before what they use, so that each can be erased.
        self._to_erase = [
            node for node in reversed(pattern.nodes) if node.op not in ("placeholder", "output")
        ]
        # A value that one replacement put in the place of another may be an input of the next.
        self._current: dict[Node, Node] = {}

    def replace(self, match: InternalMatch, replacement: Graph) -> ReplacedPatterns:
        """Put ``replacement`` in the place of ``match``."""
        graph = self._graph
        current = self._current
        parameters = replacement.find_nodes(op="placeholder")
        inputs = match.placeholder_nodes
        if len(inputs) != len(parameters):
            raise AssertionError(f"Placeholder count mismatch: {len(inputs)} vs {len(parameters)}")
        values: dict[Node, Any] = {}
        for index, parameter in enumerate(parameters):
            value = map_arg(inputs[index], lambda node: current.get(node, node))
            values[parameter] = inputs[index] = match.nodes_map[self._parameters[index]] = value

        with graph.inserting_before(_insertion_point(match.returning_nodes)):
            results = self._copy(replacement, values)
        if isinstance(results, Node):
            results = (results,)
        added = [node for node in values.values() if isinstance(node, Node) and node not in inputs]
        if len(match.returning_nodes) != len(results):
            raise AssertionError(
                f"Returning nodes count mismatch: {len(match.returning_nodes)} vs {len(results)}"
            )
        for old, new in zip(match.returning_nodes, results, strict=True):
            old.replace_all_uses_with(new)
            current[old] = new
        for node in self._to_erase:
            graph.erase_node(match.nodes_map[node])
        return ReplacedPatterns(match.anchors[0], match.nodes_map, added)

    def _copy(self, replacement: Graph, values: dict[Node, Any]) -> Any:
        """Copy the nodes of ``replacement``, whose parameters may stand for any value."""
        for node in replacement.nodes:
            if node.op == "output":
                return map_arg(node.args[0], values.__getitem__)
            if node not in values:
                values[node] = self._graph.node_copy(node, values.__getitem__)
        return None


def _insertion_point(returning: list[Node]) -> Node:
    """Before the first node that uses what a match returns; without users, just after it."""
    users = [user for node in returning for user in node.users]
    if users:
        return min(users)
    point = max(returning).next
    if point.op == "root":
        raise AssertionError("The insert point can't be None")
    return point


def _attribute(module: torch.nn.Module, target: str) -> Any | None:
    path, _, name = target.rpartition(".")
    try:
        owner = module.get_submodule(path)
    except AttributeError:
        return None
    return getattr(owner, name, None)


def _replace_attributes(gm: GraphModule, replacement: torch.nn.Module) -> None:
    """Copy to ``gm`` the attributes of ``replacement`` that its graph now names.

    What ``gm`` has already under the same name stays.
    """
    gm.delete_all_unused_submodules()
    if isinstance(replacement, GraphModule):
        replacement.graph.lint()
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr") or _attribute(gm, node.target) is not None:
            continue
        value = _attribute(replacement, node.target)
        if value is None:
            raise RuntimeError(
                f'Attempted to create a "{node.op}" node during subgraph rewriting with target '
                f"{node.target}, but the referenced attribute does not exist in the replacement "
                "GraphModule"
            )
        value = copy.deepcopy(value)
        if isinstance(value, torch.nn.Module):
            gm.add_submodule(node.target, value)
        else:
            setattr(gm, node.target, value)
    gm.graph.lint()
