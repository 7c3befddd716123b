"""Nodes as plain data, for ``--json``."""

from __future__ import annotations

from typing import Any

import torch

from corsac import fx


def rows(graph: fx.Graph) -> list[dict[str, Any]]:
    """One dictionary per node: definition, arguments, users, and source."""
    return [row(node) for node in graph.nodes]


def row(node: fx.Node) -> dict[str, Any]:
    """A node as a dictionary; arguments in Python notation."""
    source = node.source
    return {
        "name": node.name,
        "op": node.op,
        "target": node._pretty_print_target(node.target),
        "args": str(node.args),
        "kwargs": str(node.kwargs),
        "users": [user.name for user in node.users],
        "source": None
        if source is None
        else {"file": source.file, "line": source.line, "function": source.function},
    }


def described_tensor(tensor: Any) -> dict[str, Any]:
    """The shape and dtype of a tensor; other inputs in Python notation."""
    if not isinstance(tensor, torch.Tensor):
        return {"value": repr(tensor)}
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
