"""Replaces all matches of a pattern in a graph by another subgraph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch

from corsac import _core

from ._matcher import InternalMatch, SubgraphMatcher
from ._packages import expect_ours
from ._symbolic_trace import symbolic_trace
from .graph import Graph
from .graph_module import GraphModule
from .node import Node, map_arg  # noqa: F401

__all__ = [
    "Match",
    "ReplacedPatterns",
    "replace_pattern",
    "replace_pattern_with_filters",
]


class Match(NamedTuple):
    """A match of a pattern."""

    anchor: Node
    """The node of the pattern from which the search started: the last one."""
    nodes_map: dict[Node, Node]
    """Matched nodes by the pattern's nodes."""


@dataclass
class ReplacedPatterns:
    """A match of a pattern, with its replacement."""

    anchor: Node
    """The node of the pattern from which the search started: the last one."""
    nodes_map: dict[Node, Node]
    """Matched nodes by the pattern's nodes."""
    replacements: list[Node]
    """The new nodes."""


_Result = TypeVar("_Result", Match, ReplacedPatterns)


def replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule,
    replacement: Callable[..., Any] | GraphModule,
) -> list[Match]:
    """Replace every match of ``pattern`` in the graph of ``gm`` by ``replacement``.

    A pattern is a function or module, which is traced; its parameters match any value. A match is a set of
    nodes with the same targets and corresponding arguments, whatever their names; results of the pattern may
    be used anywhere, all other nodes only inside of the match. Matches do not overlap: of overlapping ones,
    the first one in the graph is used.

    ``replacement`` must have as many parameters as ``pattern``, even if it does not use them.

    Args:
        gm: the module whose graph is changed; it is recompiled.
        pattern: the pattern. All of its parameters must be used.
        replacement: the replacement. Submodules and attributes it uses are copied to ``gm``.

    Returns:
        One :class:`Match` for each replacement. Nodes of the graph in it have been erased.

    Example::

        def pattern(a, b):
            return torch.cat([a, b]).sum()

        def replacement(a, b):
            return torch.stack([a, b]).sum()

        replace_pattern(gm, pattern, replacement)
    """
    expect_ours(gm, "replace_pattern")
    return _replace(Match, gm, pattern, replacement)


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Callable[..., Any] | Graph | GraphModule,
    replacement: Callable[..., Any] | Graph | GraphModule | None = None,
    match_filters: list[Callable[[InternalMatch, Graph, Graph], bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """:func:`replace_pattern` with filters on matches, and replacements made per match.

    Args:
        gm: the module whose graph is changed; it is recompiled.
        pattern: the pattern.
        replacement: the replacement.
        match_filters: functions of the match, the graph and the pattern's graph; a match is replaced if all
            of them return true. All matches are filtered before the first one is replaced.
        ignore_literals: let numbers, strings and other constants match any other.
        replacement_callback: makes the replacement for a match, instead of ``replacement``.
        node_name_match: let a node match the last node of the pattern if its name contains this text,
            whatever its target.

    Returns:
        One :class:`ReplacedPatterns` for each replacement.
    """
    expect_ours(gm, "replace_pattern_with_filters")
    return _replace(
        ReplacedPatterns,
        gm,
        pattern,
        replacement,
        match_filters or [],
        ignore_literals,
        replacement_callback,
        node_name_match,
    )


def _replace(
    result: type[_Result],
    gm: GraphModule,
    pattern: Callable[..., Any] | Graph | GraphModule,
    replacement: Callable[..., Any] | Graph | GraphModule | None,
    match_filters: Sequence[Callable[[InternalMatch, Graph, Graph], bool]] = (),
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[_Result]:
    """Replace all matches; return a ``result`` for each."""
    graph = gm.graph
    pattern_graph = _traced(pattern)
    matcher = SubgraphMatcher(pattern_graph, ignore_literals=ignore_literals)
    found = matcher._find(graph, node_name_match)
    step_by_step = bool(match_filters) or replacement_callback is not None or _has_hooks(gm)
    matches = []
    if step_by_step:
        matches = [matcher._internal_match(found, number) for number in range(len(found))]
        matches = [
            match
            for match in matches
            if all(accepts(match, graph, pattern_graph) for accepts in match_filters)
        ]
    if replacement is None and replacement_callback is None:
        raise AssertionError(
            "Must provide either a replacement GraphModule or a replacement callback"
        )
    new_graph = None if replacement is None else _traced(replacement)
    anchor = next(iter(matcher.pattern_anchors), None)
    list_added = result is ReplacedPatterns
    if step_by_step:
        rewriter = _core.Rewriter(graph, pattern_graph)
        replaced = []
        for match in matches:
            if replacement_callback is not None:
                new_graph = replacement_callback(match, graph, pattern_graph)
            added = rewriter.replace(match.nodes_map, match.placeholder_nodes, new_graph)
            fields = (anchor, match.nodes_map, added)
            replaced.append(result(*fields) if list_added else result(*fields[:2]))
    else:
        replaced = found.replace(new_graph, anchor, result, list_added)
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
    """Whether there are hooks to be called at each change."""
    return bool(gm._create_node_hooks or gm._erase_node_hooks or gm._replace_hooks)


def _attribute(module: torch.nn.Module, target: str) -> Any | None:
    path, _, name = target.rpartition(".")
    try:
        owner = module.get_submodule(path)
    except AttributeError:
        return None
    return getattr(owner, name, None)


def _replace_attributes(gm: GraphModule, replacement: torch.nn.Module) -> None:
    """Copy to ``gm`` the attributes of ``replacement`` that its graph now uses.

    Attributes of ``gm`` with the same name are kept.
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
