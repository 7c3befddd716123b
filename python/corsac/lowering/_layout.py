"""Calls that depend on the memory layout of tensors.

Results of parts are contiguous, whatever strides PyTorch's would have.
"""

from __future__ import annotations

from typing import Any

import torch

from corsac.fx import Graph, Node
from corsac.onnx._table import operator_of

#: Functions that read elements by their place in memory.
_BY_PLACE = frozenset(["as_strided", "as_strided_copy", "as_strided_scatter"])
_VIEWS = {
    torch.ops.aten.view.default: torch.ops.aten.reshape.default,
    torch.ops.aten._unsafe_view.default: torch.ops.aten.reshape.default,
    torch.Tensor.view: torch.Tensor.reshape,
}


def reads_by_place(graph: Graph) -> dict[Node, str]:
    """The calls that read elements by their place in memory, and all nodes they depend on, with the reason
    why these cannot be computed elsewhere."""
    reasons: dict[Node, str] = {}
    for node in reversed(graph.nodes):
        if operator_of(node) in _BY_PLACE or node.target == "data_ptr":
            reasons[node] = f"{node.name} reads elements by their place in memory"
        if node in reasons:
            reasons |= dict.fromkeys(node.all_input_nodes, reasons[node])
    return reasons


def views_to_reshapes(nodes: list[Node]) -> None:
    """Replace the views among ``nodes`` by reshapes, which copy if strides do not allow a view.

    None of the nodes may share memory with a value that is written to.
    """
    for node in nodes:
        if _shows_another_type(node):
            continue
        if node.op == "call_method" and node.target == "view":
            node.target = "reshape"
        elif node.op == "call_function" and node.target in _VIEWS:
            node.target = _VIEWS[node.target]


def _shows_another_type(node: Node) -> bool:
    sizes: Any = node.args[1] if len(node.args) > 1 else None
    return "dtype" in node.kwargs or isinstance(sizes, torch.dtype)
