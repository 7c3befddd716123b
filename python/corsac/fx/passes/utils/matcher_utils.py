"""Matches of a pattern in a graph, under the names of ``torch.fx.passes.utils.matcher_utils``."""

from ..._matcher import InternalMatch, SubgraphMatcher

__all__ = ["InternalMatch", "SubgraphMatcher"]
