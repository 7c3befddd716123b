"""Assertions of what symbolic shapes have to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.fx.passes.runtime_assert as _torch

from ..graph_module import GraphModule
from ._through_torch import changed_in_place

if TYPE_CHECKING:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
else:
    ShapeEnv = Any

__all__ = ["insert_deferred_runtime_asserts"]


def insert_deferred_runtime_asserts(
    gm: GraphModule, shape_env: ShapeEnv, name: str, export: bool = False
) -> None:
    """Insert checks of what was found out about data-dependent sizes while ``gm`` was traced.

    PyTorch's pass does it, on the program converted to torch.fx.

    Args:
        gm: a module whose nodes have symbolic values in their metadata. It is changed, and its nodes
            are other objects afterwards.
        shape_env: what knows the symbols, and what has to hold of them.
        name: what logs call the program.
        export: whether it is to be exported.
    """

    def run(converted: Any) -> None:
        _torch.insert_deferred_runtime_asserts(converted, shape_env, name, export)

    changed_in_place(gm, run)
