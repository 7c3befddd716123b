"""Layers of :func:`corsac.quantize` that compute in bfloat16, and take and give float32."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corsac.quantization.quantized._steps import WeightSteps
from corsac.quantization.quantized._weight import QuantisedWeight


class HalfLayer(QuantisedWeight):
    """A layer whose weight is bfloat16, the buffer ``rounded_weight``; ``weight`` is floats, for programs that look at it,
    or at its type."""

    rounded_weight: Tensor

    def set_weight(self, steps: WeightSteps | None, weight: Tensor) -> None:
        """Round ``weight``, floats."""
        owner: Any = self
        owner.register_buffer("rounded_weight", weight.detach().to(torch.bfloat16))

    def dequantised(self) -> Tensor:
        """The weight as floats."""
        return self.rounded_weight.to(torch.float32)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The weight as floats."""
        return self.dequantised()

    def rounded_bias(self) -> Tensor | None:
        """The bias as it is added."""
        owner: Any = self
        return None if owner.bias is None else owner.bias.to(torch.bfloat16)

    def extra_repr(self) -> str:
        described: Any = self._float.extra_repr
        return f"{described(self)}, weight=bfloat16"


class HalfLinear(HalfLayer, nn.Linear):  # type: ignore[override]
    """``nn.Linear`` in bfloat16."""

    _float = nn.Linear

    def forward(self, input: Tensor) -> Tensor:
        rounded = input.to(torch.bfloat16)
        return F.linear(rounded, self.rounded_weight, self.rounded_bias()).to(torch.float32)


class _Convolution(HalfLayer):
    def forward(self, input: Tensor) -> Tensor:
        own: Any = self
        rounded = input.to(torch.bfloat16)
        result = own._conv_forward(rounded, self.rounded_weight, self.rounded_bias())
        return result.to(torch.float32)


class HalfConv1d(_Convolution, nn.Conv1d):  # type: ignore[override]
    """``nn.Conv1d`` in bfloat16."""

    _float = nn.Conv1d


class HalfConv2d(_Convolution, nn.Conv2d):  # type: ignore[override]
    """``nn.Conv2d`` in bfloat16."""

    _float = nn.Conv2d


class HalfConv3d(_Convolution, nn.Conv3d):  # type: ignore[override]
    """``nn.Conv3d`` in bfloat16."""

    _float = nn.Conv3d


class HalfEmbedding(HalfLayer, nn.Embedding):  # type: ignore[override]
    """``nn.Embedding`` with a table of bfloat16."""

    _float = nn.Embedding

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.rounded_weight).to(torch.float32)
