"""Types of inputs, without their elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from corsac._core import Dim


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The type of a tensor, in place of a tensor for :func:`corsac.analysis.propagate`.

    Attributes:
        shape: sizes: numbers, names of symbols (``"batch"``), or expressions over symbols
            (``2 * Dim("seq")``). A symbol stands for any size from 2.
        dtype: the type of the elements.
        memory_format: the memory format; contiguous for None.
        device: the device of the tensor.
        requires_grad: whether autograd records operations on it.
    """

    shape: Sequence[int | str | Dim]
    dtype: torch.dtype = torch.float32
    memory_format: torch.memory_format | None = None
    device: str = "cpu"
    requires_grad: bool = False
