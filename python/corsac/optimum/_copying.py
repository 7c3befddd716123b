"""Transformations that do nothing to what is computed, nor how."""

from __future__ import annotations

import copy

from corsac.fx.graph_module import GraphModule
from corsac.optimum._transformation import ReversibleTransformation


class DeepCopy(ReversibleTransformation):
    """Makes a deep copy of the module, which other transformations can undo as they could the
    original. Undoing it makes another copy."""

    preserves_computation = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        clone = copy.deepcopy(graph_module)
        for node, copied in zip(graph_module.graph.nodes, clone.graph.nodes, strict=True):
            # Copies of nodes have no attributes that others set.
            for name in ("transformations", "_undo"):
                if hasattr(node, name):
                    setattr(copied, name, copy.copy(getattr(node, name)))
        return clone

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        return self.transform(graph_module)


class LintAndRecompile(ReversibleTransformation):
    """Checks the graph and writes its code, both ways."""

    preserves_computation = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        graph_module.graph.lint()
        graph_module.recompile()
        return graph_module

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        return self.transform(graph_module)
