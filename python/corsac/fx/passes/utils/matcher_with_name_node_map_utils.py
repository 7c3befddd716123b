"""Finds matches of patterns with named nodes."""

from __future__ import annotations

from torch.utils._pytree import tree_flatten, tree_unflatten

from ..._packages import expect_ours
from ...graph import Graph, _PyTreeCodeGen, _PyTreeInfo
from ...graph_module import GraphModule
from ...node import Node
from .matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["SubgraphMatcherWithNameNodeMap"]


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """A :class:`SubgraphMatcher` that also returns the matched nodes by name.

    The pattern returns a dictionary from names to values after everything else::

        def pattern(x, weight):
            conv = F.conv2d(x, weight)
            relu = F.relu(conv)
            return relu, {"conv": conv, "relu": relu}

        matcher = SubgraphMatcherWithNameNodeMap(symbolic_trace(pattern))
        for match in matcher.match(gm.graph):
            match.name_node_map["conv"].meta["annotation"] = ...

    Args:
        pattern_gm: the pattern. The dictionary is removed from its results, and it is recompiled.
        match_output: see :class:`SubgraphMatcher`, also for the other options.
    """

    def __init__(
        self,
        pattern_gm: GraphModule,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        _, self.name_node_map = _split_to_graph_and_name_node_map(pattern_gm)
        super().__init__(
            pattern_gm.graph,
            match_output,
            match_placeholder,
            remove_overlapping_matches,
            ignore_literals,
        )

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """All matches in ``graph``, with their ``name_node_map``.

        Args:
            graph: the graph to search.
            node_name_match: let an anchor also match any node whose name contains this text.
        """
        matches = super().match(graph, node_name_match)
        for match in matches:
            for name, node in self.name_node_map.items():
                match.name_node_map[name] = match.nodes_map[node]
        return matches


def _split_to_graph_and_name_node_map(gm: GraphModule) -> tuple[GraphModule, dict[str, Node]]:
    """Remove the dictionary of names from the results of ``gm``; return both."""
    expect_ours(gm, "SubgraphMatcherWithNameNodeMap")
    output = gm.graph.output_node()
    codegen = gm.graph._codegen
    flattens = isinstance(codegen, _PyTreeCodeGen)
    value = tree_unflatten(output.args[0], gm._out_spec) if flattens else output.args[0]
    if not isinstance(value, tuple):
        raise AssertionError(f"the pattern must return a tuple, not a {type(value).__name__}")
    if len(value) < 2:
        raise AssertionError("the pattern must return at least one value before its names")
    *results, names = value
    if not isinstance(names, dict):
        raise AssertionError(
            "the last value that the pattern returns must be a dictionary of names, not a "
            f"{type(names).__name__}"
        )
    flat, out_spec = tree_flatten(results)
    output.args = (flat,)
    if flattens:
        info = codegen.pytree_info
        codegen.pytree_info = _PyTreeInfo(info.orig_args, info.in_spec, out_spec)
    gm.recompile()
    return gm, dict(names)
