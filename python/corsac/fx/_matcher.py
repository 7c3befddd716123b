"""Finds all matches of a pattern in a graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from corsac import _core

from ._packages import expect_ours
from .graph import Graph
from .graph_module import _get_attr
from .node import Node


@dataclass
class InternalMatch:
    """A match of a pattern."""

    anchors: list[Node]
    """The nodes of the pattern from which the search started."""
    nodes_map: dict[Node, Node] = field(default_factory=dict)
    """Matched nodes by the pattern's nodes."""
    placeholder_nodes: list[Node] = field(default_factory=list)
    """The nodes matched by the pattern's placeholders, in their order."""
    returning_nodes: list[Node] = field(default_factory=list)
    """The nodes matched by the results of the pattern."""
    name_node_map: dict[str, Node] = field(default_factory=dict)
    """Nodes of the graph by the names in the pattern, for matchers that support names."""

    def __copy__(self) -> InternalMatch:
        return InternalMatch(
            anchors=self.anchors,
            nodes_map=self.nodes_map.copy(),
            placeholder_nodes=self.placeholder_nodes.copy(),
            returning_nodes=self.returning_nodes.copy(),
        )


class SubgraphMatcher:
    """Finds matches of a pattern in graphs.

    A match is a set of nodes with the targets of the pattern's nodes and corresponding arguments. Results of
    the pattern may be used outside of a match, its other nodes may not; and no value may leave a match and
    return to it through other nodes.

    Args:
        pattern: the pattern. Its placeholders match any value.
        match_output: match the output node as a part of the pattern.
        match_placeholder: let placeholders match only placeholders.
        remove_overlapping_matches: of matches that share nodes, return only the first.
        ignore_literals: let numbers, strings and other constants match anything.

    Raises:
        ValueError: the pattern is empty.
        AssertionError: the pattern has a node that nothing uses.
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        expect_ours(pattern, "SubgraphMatcher")
        self.pattern = pattern
        self.match_output = match_output
        self.match_placeholder = match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        if len(pattern.nodes) == 0:
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        for node in pattern.nodes:
            if node.op != "output" and not node.users and not node.is_impure():
                raise AssertionError(
                    "SubgraphMatcher cannot be initialized with a pattern with dead code: "
                    f"nothing uses {node}"
                )
        output = next(iter(reversed(pattern.nodes)))
        self.pattern_placeholder_nodes = pattern.find_nodes(op="placeholder")
        self.pattern_returning_nodes: list[Node] = output.all_input_nodes
        self.pattern_anchors: list[Node] = (
            [output]
            if match_output
            else [node for node in output.all_input_nodes if len(node.users) == 1]
        )

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """All matches in ``graph``, in its order.

        Args:
            graph: the graph to search.
            node_name_match: let an anchor also match any node whose name contains this text.
        """
        found = self._find(graph, node_name_match)
        return [self._internal_match(found, index) for index in range(len(found))]

    def _find(self, graph: Graph, node_name_match: str) -> _core.Matches:
        """Find all matches natively."""
        return _core.match_subgraph(
            self.pattern,
            graph,
            match_output=self.match_output,
            match_placeholder=self.match_placeholder,
            remove_overlapping_matches=self.remove_overlapping_matches,
            ignore_literals=self.ignore_literals,
            node_name_match=node_name_match,
            schemas=_schemas(self.pattern),
            same_attribute=lambda wanted, found: _same_attribute(
                self.pattern, wanted, graph, found
            ),
        )

    def _internal_match(self, found: _core.Matches, index: int) -> InternalMatch:
        return InternalMatch(list(self.pattern_anchors), *found.nodes(index))


def _schemas(pattern: Graph) -> list[tuple[Any, list[tuple[str, bool, Any]]]]:
    """The operators with a schema that ``pattern`` calls: parameters with their defaults.

    Their calls may pass the same arguments in different ways.
    """
    operators = {
        node.target
        for node in pattern.nodes
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
    }
    return [
        (
            operator,
            [
                (argument.name, argument.kwarg_only, argument.default_value)
                for argument in operator._schema.arguments
            ],
        )
        for operator in operators
    ]


def _same_attribute(pattern: Graph, wanted: str, graph: Graph, other: str) -> bool:
    """Whether an attribute that the pattern reads matches one that the graph reads: both are tensors."""
    values = []
    for owner, name in ((pattern.owning_module, wanted), (graph.owning_module, other)):
        if owner is None:
            raise AssertionError(
                f"attribute {name!r} cannot be matched: its graph has no owning module"
            )
        values.append(_get_attr(owner, name))
    value, counterpart = values
    if type(value) is not type(counterpart):
        return False
    if not isinstance(value, torch.Tensor):
        raise RuntimeError(f"Unsupported type {value} when matching attributes")
    return True
