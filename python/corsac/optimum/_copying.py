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
        clone = copy.deepcopy(graph_module)
        for node, copied in zip(graph_module.graph.nodes, clone.graph.nodes, strict=True):
            # Copies of nodes lack these attributes.
            for name in ("transformations", "_undo"):
                if hasattr(node, name):
                    setattr(copied, name, copy.copy(getattr(node, name)))
        return clone

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
