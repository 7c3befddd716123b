"""Scales and zero points of weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from corsac.quantization import _operators  # noqa: F401  registers torch.ops.corsac
from corsac.quantization._dtypes import UNDERLYING
from corsac.quantization._finite import infinite_numbers

_PER_CHANNEL = (
    torch.per_channel_affine,
    torch.per_channel_symmetric,
    torch.per_channel_affine_float_qparams,
)


@dataclass
class WeightSteps:
    """The integers that a weight becomes: ``round(weight / scales) + zero_points``.

    Attributes:
        scales: float32, [] or [channels].
        zero_points: int32, or float32 if zero is between two integers; as many.
        axis: the dimension of the channels.
        quant_min: the smallest integer.
        quant_max: the largest integer.
        dtype: the type of the integers.
    """

    scales: torch.Tensor
    zero_points: torch.Tensor
    axis: int
    quant_min: int
    quant_max: int
    dtype: torch.dtype

    @classmethod
    def of_observer(cls, observer: Any, name: str, weight: torch.Tensor) -> WeightSteps:
        """The steps for what an observer, or a fake quantiser, has seen of a weight.

        Raises:
            ValueError: the weight has NaN or infinity, or the type is none of integers.
        """
        wrong = infinite_numbers(weight)
        if wrong:
            raise ValueError(
                f"{name} has NaN or infinity, expected finite numbers to quantise: {wrong}"
            )
        dtype = UNDERLYING.get(observer.dtype)
        if dtype is None or dtype.is_floating_point:
            raise ValueError(f"{name}: expected a type of integers, got {observer.dtype}")
        scales, zero_points = observer.calculate_qparams()
        per_channel = observer.qscheme in _PER_CHANNEL
        floats = observer.qscheme == torch.per_channel_affine_float_qparams
        shape = (-1,) if per_channel else ()
        return cls(
            scales=scales.detach().to(torch.float32).reshape(shape),
            zero_points=zero_points.detach()
            .to(torch.float32 if floats else torch.int32)
            .reshape(shape),
            axis=int(observer.ch_axis) if per_channel else 0,
            quant_min=int(observer.quant_min),
            quant_max=int(observer.quant_max),
            dtype=dtype,
        )

    @property
    def per_tensor(self) -> bool:
        """Whether there is one scale for the whole weight."""
        return self.scales.dim() == 0

    def expanded(self, weight: torch.Tensor, axis: int) -> WeightSteps:
        """The same with a scale and a zero point for each channel, along ``axis`` if there was one for all."""
        if not self.per_tensor:
            return self
        channels = weight.shape[axis]
        return WeightSteps(
            self.scales.expand(channels).clone(),
            self.zero_points.expand(channels).clone(),
            axis,
            self.quant_min,
            self.quant_max,
            self.dtype,
        )

    def quantise(self, weight: torch.Tensor) -> torch.Tensor:
        """The integers of a weight."""
        weight = weight.detach().to(torch.float32)
        bounds = self.quant_min, self.quant_max, self.dtype
        if self.zero_points.is_floating_point():
            # Zero is between two integers: the sum is rounded.
            shape = [1] * weight.dim()
            shape[self.axis] = -1
            scales, zero_points = self.scales.reshape(shape), self.zero_points.reshape(shape)
            levels = torch.round(weight * (1.0 / scales) + zero_points)
            return levels.clamp(self.quant_min, self.quant_max).to(self.dtype)
        corsac = torch.ops.corsac
        if self.per_tensor:
            return corsac.quantize_per_tensor(
                weight, float(self.scales), int(self.zero_points), *bounds
            )
        return corsac.quantize_per_channel(
            weight, self.scales, self.zero_points, self.axis, *bounds
        )
