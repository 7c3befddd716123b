"""Values of quantised types in graphs that are rewritten as floats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from corsac.quantization._dtypes import UNDERLYING, full_range


@dataclass(frozen=True)
class Steps:
    """The numbers of a quantised type: ``(q - zero_point) * scale``."""

    scale: float
    zero_point: int
    dtype: torch.dtype

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of ``corsac::quantize_per_tensor`` after the tensor."""
        return self.scale, self.zero_point, *full_range(self.dtype), UNDERLYING[self.dtype]


@dataclass
class Levels:
    """A value of a quantised type.

    Attributes:
        real: the node of its floats.
        steps: those of the whole value; None if each channel has its own, or if they are known in the call only.
        integers: the node of its integers, if there is one.
    """

    real: Any
    steps: Steps | None
    integers: Any = None

    def write(self, made: Any) -> None:
        """Be the result from here on: the value is written to in place."""
        if isinstance(made, Levels):
            self.real, self.steps, self.integers = made.real, made.steps, made.integers


@dataclass
class Several:
    """A tuple of values, of which some are of a quantised type.

    Attributes:
        node: the node of the floats.
        steps: those of the values.
        plain: the places of values of other types.
    """

    node: Any
    steps: Steps
    plain: tuple[int, ...] = ()


@dataclass
class Packed:
    """A packed weight.

    Attributes:
        weight: the node of its floats.
        bias: the node of the bias, or None.
        half: whether it is of half precision.
        convolution: stride, padding, dilation, groups and output padding.
        transposed: whether the convolution is transposed.
    """

    weight: Any
    bias: Any
    half: bool = False
    convolution: dict[str, Any] | None = None
    transposed: bool = False
