"""Turns symbolic numbers into tensors."""

from __future__ import annotations

from typing import Any

import torch.fx.passes._tensorify_python_scalars as _torch
from torch._subclasses import fake_tensor

from ..graph_module import GraphModule
from ._through_torch import changed_in_place

__all__: list[str] = []


def tensorify_python_scalars(
    gm: GraphModule, shape_env: Any, fake_mode: fake_tensor.FakeTensorMode
) -> None:
    """Replace computations with symbolic floats taken from tensors by computations with tensors.

    PyTorch's pass runs on the program converted to torch.fx; ``gm`` is changed, and its nodes are replaced by
    new objects.
    """
    changed_in_place(gm, lambda c: _torch.tensorify_python_scalars(c, shape_env, fake_mode))
