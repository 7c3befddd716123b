"""Quantisers of the inputs of layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from corsac.quantization import _operators  # noqa: F401  registers torch.ops.corsac


class StaticInput(nn.Module):
    """Rounds numbers to 256 levels of one range, which is fixed.

    Args:
        scale: the difference of two levels.
        zero_point: the level of 0, from 0 to 255.
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(self, scale: float, zero_point: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float32))
        self.register_buffer("zero_point", torch.tensor(zero_point, dtype=torch.int32))
        self._read()

    def _read(self) -> None:
        # The operators have numbers; reading them in each call would make programs depend on values.
        self._steps = float(self.scale), int(self.zero_point)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._read()

    def forward(self, input: Tensor) -> Tensor:
        """The rounded numbers, of the shape of ``input``."""
        scale, zero_point = self._steps
        corsac = torch.ops.corsac
        levels = corsac.quantize_per_tensor(input, scale, zero_point, 0, 255, torch.uint8)
        return corsac.dequantize_per_tensor(levels, scale, zero_point, 0, 255, torch.uint8)

    def extra_repr(self) -> str:
        scale, zero_point = self._steps
        return f"scale={scale:.4g}, zero_point={zero_point}"


class DynamicInput(nn.Module):
    """Rounds each row of numbers to 256 levels of its own range."""

    def forward(self, input: Tensor) -> Tensor:
        """The rounded numbers, of the shape of ``input``."""
        corsac = torch.ops.corsac
        scales, zero_points = corsac.choose_qparams_per_token(input, -128, 127)
        steps = scales, zero_points, -128, 127, torch.int8
        return corsac.dequantize_per_token(
            corsac.quantize_per_token(input, *steps), *steps, torch.float32
        )
