"""Layers whose inputs are quantised, too, and linear layers with weights of 4 bits."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corsac.quantization import _operators
from corsac.quantization.quantized.layers import Conv1d, Conv2d, Conv3d, Linear


class _QuantisedInput:
    """A layer that rounds its input by ``input_quantiser``."""

    input_quantiser: nn.Module

    def forward(self, input: Tensor) -> Tensor:
        layer: Any = super()
        return layer.forward(self.input_quantiser(input))


class IntegerLinear(_QuantisedInput, Linear):
    """``nn.Linear`` of quantised numbers."""


class IntegerConv1d(_QuantisedInput, Conv1d):
    """``nn.Conv1d`` of quantised numbers."""


class IntegerConv2d(_QuantisedInput, Conv2d):
    """``nn.Conv2d`` of quantised numbers."""


class IntegerConv3d(_QuantisedInput, Conv3d):
    """``nn.Conv3d`` of quantised numbers."""


class GroupedLinear(nn.Linear):
    """``nn.Linear`` with a weight of 4 bits, and a scale for each group of numbers of a row.

    Args:
        layer: the float layer, whose bias is shared.
        integers: int8, [out, in], from -8 to 7.
        scales: float32, [out, in / group].
        input_quantiser: rounds the input, if given.
    """

    packed: Tensor
    weight_scale: Tensor
    input_quantiser: nn.Module | None

    def __init__(
        self,
        layer: nn.Linear,
        integers: Tensor,
        scales: Tensor,
        input_quantiser: nn.Module | None = None,
    ) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.training = layer.training
        self.group = integers.shape[1] // scales.shape[1]
        self.register_buffer("packed", _operators.pack_int4(integers))
        self.register_buffer("weight_scale", scales.to(torch.float32))
        self.register_parameter("bias", layer.bias)
        self.input_quantiser = input_quantiser

    def dequantised(self) -> Tensor:
        """The weight as floats, [out, in]."""
        corsac = torch.ops.corsac
        return corsac.dequantize_per_channel_group(
            corsac.unpack_int4(self.packed),
            self.weight_scale,
            None,
            -8,
            7,
            torch.int8,
            self.group,
            torch.float32,
        )

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The weight as floats, for programs that look at it."""
        return self.dequantised()

    def forward(self, input: Tensor) -> Tensor:
        if self.input_quantiser is not None:
            input = self.input_quantiser(input)
        return F.linear(input, self.dequantised(), self.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, weight=int4, group={self.group}"
