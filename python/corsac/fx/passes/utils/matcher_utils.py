"""Finding every place in a graph where a pattern occurs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from corsac import _core

from ..._packages import expect_ours
from ...graph import Graph
from ...graph_module import _get_attr
from ...node import Node

__all__ = ["InternalMatch", "SubgraphMatcher"]


@dataclass
class InternalMatch:
    """A place where a pattern was found."""

    anchors: list[Node]
    """The nodes of the pattern from which the search started."""
    nodes_map: dict[Node, Node] = field(default_factory=dict)
    """For each node of the pattern what it was matched to."""
    placeholder_nodes: list[Node] = field(default_factory=list)
    """What the placeholders of the pattern were matched to, in their order."""
    returning_nodes: list[Node] = field(default_factory=list)
    """What the nodes that the pattern returns were matched to."""
    name_node_map: dict[str, Node] = field(default_factory=dict)
    """Nodes of the graph by the names a pattern gave them, for matchers that have such names."""

    def __copy__(self) -> InternalMatch:
        return InternalMatch(
            anchors=self.anchors,
            nodes_map=self.nodes_map.copy(),
            placeholder_nodes=self.placeholder_nodes.copy(),
            returning_nodes=self.returning_nodes.copy(),
        )


class SubgraphMatcher:
    """Finds a pattern in graphs.

    A match is a set of nodes that do what the nodes of the pattern do, with the same arguments.
    What the pattern returns may be used outside of a match, all other nodes of it may not; and no
    value may leave a match and come back into it through other nodes.

    Args:
        pattern: what to look for. Its placeholders stand for anything.
        match_output: take the output node for a part of the pattern.
        match_placeholder: let placeholders stand for placeholders only.
        remove_overlapping_matches: of matches that share nodes, answer the first.
        ignore_literals: let numbers, strings and other constants stand for anything.

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
            graph: where to look.
            node_name_match: let an anchor also stand for any node that has this in its name.
        """
        found = self._find(graph, node_name_match)
        return [self._internal_match(found, index) for index in range(len(found))]

    def _find(self, graph: Graph, node_name_match: str) -> _core.Matches:
        """All matches, for the native code."""
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
    """The operators with a schema that ``pattern`` calls: parameters, and what they default to.

    Calls of these may pass the same arguments in different ways.
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
    """Whether an attribute the pattern reads may stand for one the graph reads: both tensors."""
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
