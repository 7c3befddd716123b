"""Calls that depend on the memory layout of tensors.

Results of parts are contiguous, whatever strides PyTorch's would have.
"""

from __future__ import annotations

from typing import Any

import torch

from corsac import _core
from corsac.fx import Graph, Node

#: Equivalents of views that accept any strides.
_RESHAPE_OF = {
    "view": "reshape",
    torch.ops.aten.view.default: torch.ops.aten.reshape.default,
    torch.ops.aten._unsafe_view.default: torch.ops.aten.reshape.default,
    torch.Tensor.view: torch.Tensor.reshape,
}


def reads_by_place(graph: Graph) -> dict[Node, str]:
    """The calls that read elements by their place in memory, and all nodes they depend on, with the reason
    why these cannot be computed elsewhere."""
    reasons: dict[Node, str] = {}
    for node in reversed(graph.nodes):
        calls = node.op in ("call_function", "call_method")
        if calls and "places" in _core.operator_classes(node.op, node.target):
            reasons[node] = f"{node.name} reads elements by their place in memory"
        if node in reasons:
            reasons |= dict.fromkeys(node.all_input_nodes, reasons[node])
    return reasons


def views_to_reshapes(nodes: list[Node]) -> None:
    """Replace the views among ``nodes`` by reshapes, which copy if strides do not allow a view.

    None of the nodes may share memory with a value that is written to.
    """
    for node in nodes:
        if node.op in ("call_function", "call_method") and not _shows_another_type(node):
            node.target = _RESHAPE_OF.get(node.target, node.target)


def _shows_another_type(node: Node) -> bool:
    sizes: Any = node.args[1] if len(node.args) > 1 else None
    return "dtype" in node.kwargs or isinstance(sizes, torch.dtype)
