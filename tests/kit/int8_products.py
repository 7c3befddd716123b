"""What PyTorch's int8 products give on this processor."""

from __future__ import annotations

import functools
import warnings

import torch


@functools.cache
def pytorch_saturates() -> bool:
    """Whether sums of two products overflow 16 bits in PyTorch, as they do on x86 processors without VNNI. Results
    with full 8 bits are then wrong, and nothing to compare with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.quantize_per_tensor(torch.full((1, 8), 255.0), 1.0, 0, torch.quint8)
        weight = torch.quantize_per_tensor(torch.full((1, 8), 127.0), 1.0, 0, torch.qint8)
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "x86"
    try:
        packed = torch.ops.quantized.linear_prepack(weight, None)
        found = torch.ops.quantized.linear(x, packed, 2048.0, 0)
    finally:
        torch.backends.quantized.engine = before
    return int(found.int_repr()) != round(8 * 255 * 127 / 2048)
