"""Numbers of 8 bits that are powers of two."""

from __future__ import annotations

import torch

_FRACTION, _HALF = 0x7FFFFF, 0x400000


def to_powers_of_two(input: torch.Tensor, round_mode: str, saturate: bool) -> torch.Tensor:
    """Numbers that are not negative as ``float8_e8m0fnu``, which has 2^-127 to 2^127 and NaN.

    Args:
        input: the numbers.
        round_mode: ``up``, ``down`` or ``nearest``.
        saturate: whether numbers out of range become the nearest one, and not NaN.
    """
    bits = input.float().view(torch.int32) & 0x7FFFFFFF
    exponent, fraction = bits >> 23, bits & _FRACTION
    # The least number is a subnormal one of float32.
    start = torch.where(exponent == 0, _HALF, 0)
    if round_mode == "up":
        exponent = exponent + (fraction > start)
    elif round_mode == "nearest":
        exponent = exponent + (fraction >= torch.where(exponent == 0, _HALF + _HALF // 2, _HALF))
    elif round_mode != "down":
        raise ValueError(f"the round_mode {round_mode!r}, expected up, down or nearest")
    exponent = exponent.clamp(max=254) if saturate else torch.where(bits < _HALF, 255, exponent)
    exponent = torch.where(input.isnan(), 255, exponent)
    return exponent.to(torch.uint8).view(torch.float8_e8m0fnu)
