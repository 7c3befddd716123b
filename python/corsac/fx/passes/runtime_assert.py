"""Runtime assertions on symbolic shapes."""

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
    """Insert checks of the assumptions on data-dependent sizes made while ``gm`` was traced.

    PyTorch's pass runs on the program converted to torch.fx.

    Args:
        gm: a module whose nodes have symbolic values in their metadata. It is changed, and its nodes are
            replaced by new objects.
        shape_env: the shape environment, with the symbols and assumptions.
        name: the name of the program in logs.
        export: whether the program is to be exported.
    """

    def run(converted: Any) -> None:
        _torch.insert_deferred_runtime_asserts(converted, shape_env, name, export)

    changed_in_place(gm, run)
