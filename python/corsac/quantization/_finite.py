"""Numbers that are not finite."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def infinite_numbers(tensor: Tensor) -> str:
    """``"2 of 64"``: how many numbers are NaN or infinite; empty if none is."""
    wrong = ~torch.isfinite(tensor.detach())
    return f"{int(wrong.sum())} of {tensor.numel()}" if bool(wrong.any()) else ""


def infinite_parameter(model: nn.Module) -> str:
    """``"fc.weight has NaN or infinity: 2 of 64 numbers"``, of the first parameter that has some; empty if none has."""
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and parameter.device.type != "meta":
            wrong = infinite_numbers(parameter)
            if wrong:
                return f"{name} has NaN or infinity: {wrong} numbers"
    return ""
