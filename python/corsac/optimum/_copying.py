"""Transformations that leave the computation as it is."""

from __future__ import annotations

import copy

from corsac.fx.graph_module import GraphModule
from corsac.optimum._transformation import ReversibleTransformation


class DeepCopy(ReversibleTransformation):
    """Deep-copies the module; other transformations can be undone on the copy as on the original. Undoing
    makes another copy."""

    preserves_computation = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        return copy.deepcopy(graph_module)

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        return self.transform(graph_module)


class LintAndRecompile(ReversibleTransformation):
    """Checks the graph and generates its code, both ways."""

    preserves_computation = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        graph_module.graph.lint()
        graph_module.recompile()
        return graph_module

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        return self.transform(graph_module)
