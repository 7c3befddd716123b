"""Numbers that are not finite."""

from __future__ import annotations

import torch
from torch import Tensor


def infinite_numbers(tensor: Tensor) -> str:
    """``"2 of 64"``: how many numbers are NaN or infinite; empty if none is."""
    wrong = ~torch.isfinite(tensor.detach())
    return f"{int(wrong.sum())} of {tensor.numel()}" if bool(wrong.any()) else ""
