"""Replaces division by multiplication."""

from __future__ import annotations

import operator

from corsac import _core
from corsac.fx.graph_module import GraphModule
from corsac.optimum._transformation import (
    ReversibleTransformation,
    recall,
    remember,
    report_of,
)
from corsac.passes._budget import current_budget


class ChangeTrueDivToMulByInverse(ReversibleTransformation):
    """Replaces division by a number with multiplication by its inverse, as for attention's division by the
    root of the width.

    The quotient differs in its last bit, unless the divisor is a power of two. Quotients of sizes and other
    numbers are replaced only in that case, and divisors without a normal inverse are kept. Undoing restores
    the exact divisor.
    """

    preserves_computation = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        graph = graph_module.graph
        divisions = graph.find_nodes(op="call_function", target=operator.truediv)
        divisors = {node: node.args[-1] for node in divisions if node.args}
        sites = _core.run_pass("true division", graph, budget=current_budget(None))
        for node, divisor in divisors.items():
            if node.target is operator.mul:
                remember(node, self, divisor)
        self._report = report_of("true division", sites, graph_module, len(graph.nodes))
        return graph_module

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        for node in self.get_transformed_nodes(graph_module):
            node.target = operator.truediv
            node.args = (node.args[0], recall(node, self))
        return graph_module
