"""Forms of weights: integers of 8 bits for each channel, or of 4 bits for each group; bfloat16."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from corsac.quantization.quantized._steps import WeightSteps

#: Sizes of groups for which the engine has kernels.
GROUPS = (32, 64, 128)
#: Scales that are tried for a group, as parts of the one that reaches its largest number.
_PARTS = tuple(1.0 - 0.03 * at for at in range(14))


@dataclass(frozen=True)
class WeightForm:
    """The form of weights.

    Attributes:
        bits: 8 or 4; 16 for bfloat16.
        group: how many numbers of a row have one scale; 0 if they all have.
    """

    bits: int = 8
    group: int = 0

    @classmethod
    def parse(cls, text: str) -> WeightForm:
        """Of ``"int8"``, ``"int4"`` or ``"int4:64"``.

        Raises:
            ValueError: the text is none of these.
        """
        if text == "int8":
            return cls()
        found = re.fullmatch(r"int4(?::(\d+))?", text) if isinstance(text, str) else None
        group = int(found[1] or GROUPS[0]) if found else 0
        if group not in GROUPS:
            sizes = ", ".join(f"'int4:{size}'" for size in GROUPS)
            raise ValueError(f"weights: expected 'int8', {sizes}, got {text!r}")
        return cls(4, group)

    def __str__(self) -> str:
        return {8: "int8", 16: "bfloat16"}.get(self.bits, f"int4:{self.group}")


def steps_of(weight: Tensor, axis: int = 0) -> WeightSteps:
    """Steps of int8, symmetric around 0, for each channel along ``axis``."""
    numbers = weight.detach().to(torch.float32)
    largest = numbers.abs().transpose(0, axis).flatten(1).amax(1)
    scales = (largest / 127.0).clamp(min=torch.finfo(torch.float32).tiny)
    zeros = torch.zeros(len(scales), dtype=torch.int32)
    return WeightSteps(scales, zeros, axis, -127, 127, torch.int8)


def groups_of(weight: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Integers of 4 bits, and their scales, of a matrix [out, in].

    The scales are exact in half precision. Of several for each group, the one with the least squared error is taken;
    the sign is that with which the largest number becomes -8, of which there is one level more.

    Returns:
        int8, [out, in], from -8 to 7; float32, [out, in / group].
    """
    rows = weight.detach().to(torch.float32).reshape(-1, group)
    largest = rows.gather(1, rows.abs().argmax(1, keepdim=True))
    best = torch.full_like(largest, torch.inf)
    scales = torch.zeros_like(largest)
    for reach in (-8.0, 7.0):
        for part in _PARTS:
            tried = _half(largest * (part / reach))
            levels = torch.clamp(torch.round(rows / tried), -8, 7)
            error = (levels * tried - rows).square_().sum(1, keepdim=True)
            better = error < best
            best, scales = torch.where(better, error, best), torch.where(better, tried, scales)
    levels = torch.clamp(torch.round(rows / scales), -8, 7).to(torch.int8)
    return levels.reshape(weight.shape), scales.reshape(weight.shape[0], -1)


def _half(scales: Tensor) -> Tensor:
    """The nearest numbers of half precision that are not 0."""
    rounded = scales.to(torch.float16).to(torch.float32)
    tiny = torch.finfo(torch.float16).tiny
    return torch.where(rounded.abs() < tiny, tiny, rounded.clamp(-65504.0, 65504.0))
