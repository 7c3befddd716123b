"""Fused modules of statically quantised models. The names are those of ``torch.ao.nn.intrinsic.quantized``."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from corsac.quantization.quantized import static
from corsac.quantization.quantized._output import RoundedOutput, same_parts

__all__ = [
    "BNReLU2d",
    "BNReLU3d",
    "ConvAdd2d",
    "ConvAddReLU2d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearLeakyReLU",
    "LinearReLU",
    "LinearTanh",
]


class _WithReLU:
    def _after(self, value: Tensor) -> Tensor:
        return F.relu(value)


class LinearReLU(_WithReLU, static.Linear):
    """A linear layer and ReLU, with a quantised weight and rounded results."""


class ConvReLU1d(_WithReLU, static.Conv1d):
    """A convolution and ReLU, with a quantised weight and rounded results."""


class ConvReLU2d(_WithReLU, static.Conv2d):
    """A convolution and ReLU, with a quantised weight and rounded results."""


class ConvReLU3d(_WithReLU, static.Conv3d):
    """A convolution and ReLU, with a quantised weight and rounded results."""


class LinearLeakyReLU(static.Linear):
    """A linear layer and leaky ReLU, with a quantised weight and rounded results."""

    negative_slope: float

    def _take(self, mod: Any) -> None:
        self.negative_slope = mod[1].negative_slope

    def _after(self, value: Tensor) -> Tensor:
        return F.leaky_relu(value, self.negative_slope)


class LinearTanh(static.Linear):
    """A linear layer and tanh, with a quantised weight and rounded results."""

    def _after(self, value: Tensor) -> Tensor:
        return value.tanh()


class ConvAdd2d(static.Conv2d):
    """The sum of the result of a convolution and another value: ``add(conv(input), extra_input)``, rounded."""

    add: Any

    def _take(self, mod: Any) -> None:
        self.add = mod.add

    def forward(self, input: Tensor, extra_input: Tensor) -> Tensor:
        # The convolution as it is, without rounding.
        convolved = self._conv_forward(input, self.dequantised(), self.bias)
        return self.rounded(self._after(self.add(convolved, extra_input)))


class ConvAddReLU2d(_WithReLU, ConvAdd2d):
    """:class:`ConvAdd2d` with ReLU."""


class _NormReLU(RoundedOutput, nn.Module):
    """A batch norm and ReLU with rounded results."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    def forward(self, input: Tensor) -> Tensor:
        return self.rounded(F.relu(self.norm(input)))

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The module of an observed fused one; parameters are shared."""
        made = cls(same_parts(type(mod[0]), mod[0]))
        made.train(mod.training)
        made.set_output(getattr(mod, "activation_post_process", None))
        return made

    def extra_repr(self) -> str:
        return self._described_output().lstrip(", ")


class BNReLU2d(_NormReLU):
    """A batch norm and ReLU, with rounded results."""


class BNReLU3d(_NormReLU):
    """A batch norm and ReLU, with rounded results."""
