"""Layers for training, the activations of which will be quantised dynamically, as in ``torch.ao.nn.qat.dynamic``."""

from __future__ import annotations

from typing import Any

import torch

from corsac.quantization import qat
from corsac.quantization.qconfig import _activation_is_memoryless

__all__ = ["Linear"]


class Linear(qat.Linear):
    """A linear layer with a fake-quantised weight; activations are observed one batch at a time.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.qat.dynamic.Linear.html
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: Any = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, qconfig, device, dtype)
        if not _activation_is_memoryless(qconfig):
            raise ValueError(
                "qat.dynamic.Linear: expected activations observed by a moving average with an averaging_constant "
                "of 1, which remembers nothing"
            )
