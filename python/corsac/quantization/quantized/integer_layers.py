"""Layers of :func:`corsac.quantize`: weights of 8 or 4 bits, and inputs that are quantised, too."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corsac.quantization import _operators
from corsac.quantization.quantized._steps import WeightSteps
from corsac.quantization.quantized._weight import QuantisedWeight


class IntegerLayer(QuantisedWeight):
    """A layer whose weight is integers, and which rounds its input by ``input_quantiser``, if that is given.

    The integers are the buffer ``integers``; ``weight`` is floats, for programs that look at it, or at its type.
    """

    integers: Tensor
    input_quantiser: nn.Module | None

    def set_weight(self, steps: WeightSteps | None, weight: Tensor) -> None:
        """Quantise ``weight``, floats, in these steps."""
        assert steps is not None
        owner: Any = self
        self.input_quantiser = None
        steps = steps.expanded(weight, self._output_axis)
        self.axis, self.quant_min, self.quant_max = steps.axis, steps.quant_min, steps.quant_max
        owner.register_buffer("integers", steps.quantise(weight))
        owner.register_buffer("weight_scale", steps.scales.clone())
        owner.register_buffer("weight_zero_point", steps.zero_points.clone())

    def dequantised(self) -> Tensor:
        """The weight as floats."""
        return torch.ops.corsac.dequantize_per_channel(
            self.integers,
            self.weight_scale,
            self.weight_zero_point,
            self.axis,
            self.quant_min,
            self.quant_max,
            self.integers.dtype,
        )

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The weight as floats."""
        return self.dequantised()

    def rounded(self, input: Tensor) -> Tensor:
        """The input as it is multiplied."""
        return input if self.input_quantiser is None else self.input_quantiser(input)

    def extra_repr(self) -> str:
        described: Any = self._float.extra_repr
        return f"{described(self)}, weight={str(self.integers.dtype).removeprefix('torch.')}"


class IntegerLinear(IntegerLayer, nn.Linear):  # type: ignore[override]
    """``nn.Linear`` of integers."""

    _float = nn.Linear

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(self.rounded(input), self.dequantised(), self.bias)


class _Convolution(IntegerLayer):
    def forward(self, input: Tensor) -> Tensor:
        own: Any = self
        return own._conv_forward(self.rounded(input), self.dequantised(), own.bias)


class IntegerConv1d(_Convolution, nn.Conv1d):  # type: ignore[override]
    """``nn.Conv1d`` of integers."""

    _float = nn.Conv1d


class IntegerConv2d(_Convolution, nn.Conv2d):  # type: ignore[override]
    """``nn.Conv2d`` of integers."""

    _float = nn.Conv2d


class IntegerConv3d(_Convolution, nn.Conv3d):  # type: ignore[override]
    """``nn.Conv3d`` of integers."""

    _float = nn.Conv3d


class IntegerEmbedding(IntegerLayer, nn.Embedding):  # type: ignore[override]
    """``nn.Embedding`` of integers: only the rows that are looked up are dequantised."""

    _float = nn.Embedding

    def forward(self, input: Tensor) -> Tensor:
        assert self.weight_scale is not None and self.weight_zero_point is not None
        return torch.ops.corsac.dequantize_per_token(
            self.integers[input],
            self.weight_scale[input].unsqueeze(-1),
            self.weight_zero_point[input].unsqueeze(-1),
            self.quant_min,
            self.quant_max,
            self.integers.dtype,
            torch.float32,
        )


class GroupedLayer(IntegerLayer):
    """A layer with a weight [out, in] of 4 bits, and a scale for each group of numbers of a row.

    The integers are the buffer ``packed``, two in a byte. ``from_float`` takes them, int8 from -8 to 7, and the scales,
    float32, [out, in / group], in the place of steps.
    """

    packed: Tensor
    group: int

    def set_weight(self, steps: Any, weight: Tensor) -> None:
        """Take the integers and scales of ``weight``."""
        owner: Any = self
        integers, scales = steps
        self.input_quantiser = None
        self.group = integers.shape[1] // scales.shape[1]
        owner.register_buffer("packed", _operators.pack_int4(integers))
        owner.register_buffer("weight_scale", scales.to(torch.float32))

    def _numbers(self, packed: Tensor, scales: Tensor) -> Tensor:
        """Rows of the weight as floats."""
        corsac = torch.ops.corsac
        integers = corsac.unpack_int4(packed)
        return corsac.dequantize_per_channel_group(
            integers, scales, None, -8, 7, torch.int8, self.group, torch.float32
        )

    def dequantised(self) -> Tensor:
        """The weight as floats, [out, in]."""
        assert self.weight_scale is not None
        return self._numbers(self.packed, self.weight_scale)

    def extra_repr(self) -> str:
        described: Any = self._float.extra_repr
        return f"{described(self)}, weight=int4, group={self.group}"


class GroupedLinear(GroupedLayer, IntegerLinear):
    """``nn.Linear`` of 4 bits."""


class GroupedEmbedding(GroupedLayer, nn.Embedding):  # type: ignore[override]
    """``nn.Embedding`` of 4 bits: only the rows that are looked up are dequantised."""

    _float = nn.Embedding

    def forward(self, input: Tensor) -> Tensor:
        assert self.weight_scale is not None
        rows = input.flatten()
        numbers = self._numbers(self.packed[rows], self.weight_scale[rows])
        return numbers.reshape(*input.shape, self.embedding_dim)
