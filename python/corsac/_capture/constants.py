"""Constant folding of recorded tensors that are made in several steps."""

from __future__ import annotations

import torch

from corsac import _core
from corsac.fx import Graph


def fold_written(
    tensors: _core.RecordedTensors, graph: Graph, returned: list[torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Replace nodes that do not depend on inputs by attributes with their values, where writes are involved, such as
    masks that are written part by part; return the tensors by name. Constants without writes are left to
    :func:`corsac.passes.fold_constants`."""
    kept = dict(tensors.written_constants(returned))
    named: dict[str, torch.Tensor] = {}
    for node, own in kept.items():
        if isinstance(own, torch.Tensor) and any(user not in kept for user in node.users):
            name = f"_constant{len(named)}"
            with torch.inference_mode(False):
                named[name] = own.clone()
            with graph.inserting_before(node):
                new = graph.create_node("get_attr", name, (), {})
            node.replace_all_uses_with(new, lambda user: user not in kept)
    for node in reversed(kept):
        if not node.users:
            graph.erase_node(node)
    return named


__all__ = ["fold_written"]
