"""Values of a graph that do not depend on inputs, and quantised weights in their places."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from corsac.quantization import _operators  # noqa: F401  registers torch.ops.corsac
from corsac.quantization.pt2e._nodes import attribute, base, mapped, writes_first

#: Operators that quantise.
QUANTISE = frozenset(
    [
        torch.ops.corsac.quantize_per_tensor.default,
        torch.ops.corsac.quantize_per_tensor.tensor,
        torch.ops.corsac.quantize_per_channel.default,
    ]
)


class Constants:
    """Values that only depend on attributes which the graph does not write to.

    Args:
        model: the graph module.
        passed: nodes that pass their input on, as observers do.
    """

    def __init__(self, model: Any, passed: Collection[Any] = ()) -> None:
        self._model, self._passed = model, passed
        written = {base(node.args[0]) for node in model.graph.nodes if writes_first(node)}
        self._written = {node.target for node in written if node.op == "get_attr"}
        self._known: dict[Any, Tensor | None] = {}

    def value(self, node: Any) -> Tensor | None:
        """The tensor that a node computes; None if it depends on inputs, on what is written to, or on chance."""
        waiting = [node]
        while waiting:
            own = waiting[-1]
            if own in self._known:
                waiting.pop()
                continue
            unknown = [one for one in own.all_input_nodes if one not in self._known]
            if unknown:
                waiting += unknown
                continue
            self._known[own] = self._computed(own)
            waiting.pop()
        return self._known[node]

    def _computed(self, node: Any) -> Tensor | None:
        if node.op == "get_attr":
            value = attribute(self._model, node.target)
            is_constant = isinstance(value, Tensor) and node.target not in self._written
            return value.detach() if is_constant else None
        inputs = [self._known[one] for one in node.all_input_nodes]
        if not inputs or any(one is None for one in inputs):
            return None
        if node in self._passed:
            return inputs[0]
        tags = getattr(node.target, "tags", ())
        if (
            node.op != "call_function"
            or not isinstance(node.target, torch._ops.OpOverload)
            or torch.Tag.nondeterministic_seeded in tags
            or writes_first(node)
        ):
            return None
        with torch.no_grad():
            result = node.target(
                *mapped(node.args, self._known.__getitem__),
                **mapped(dict(node.kwargs), self._known.__getitem__),
            )
        return result if isinstance(result, Tensor) else None


def fold_quantised(model: Any) -> None:
    """Replace the operators that quantise weights by attributes with integers."""
    graph, constants, number = model.graph, Constants(model), 0
    for node in [*graph.nodes]:
        if node.op != "call_function" or node.target not in QUANTISE:
            continue
        value = constants.value(node)
        if value is None:
            continue
        while hasattr(model, f"_frozen_param{number}"):
            number += 1
        name = f"_frozen_param{number}"
        model.register_buffer(name, value)
        with graph.inserting_before(node):
            folded = graph.create_node("get_attr", name, (), {})
        node.replace_all_uses_with(folded)
        folded.meta.update(node.meta)
        own = node.name
        graph.erase_node(node)
        folded.name = own
    remove_unread(graph)


def remove_unread(graph: Any) -> None:
    """Remove what computes values that nothing reads."""
    graph.eliminate_dead_code()
    for node in [*graph.nodes]:
        if node.op == "get_attr" and not node.users:
            graph.erase_node(node)
