"""Scales and zero points of ranges of values.

Real values are ``(q - zero_point) * scale``. The numbers are those of PyTorch, operation by operation:
https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.observer.MinMaxObserver.html
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from corsac.quantization import _dtypes

PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)
PER_CHANNEL = (
    torch.per_channel_affine,
    torch.per_channel_affine_float_qparams,
    torch.per_channel_symmetric,
)
SYMMETRIC = (torch.per_tensor_symmetric, torch.per_channel_symmetric)


def validate_qmin_qmax(quant_min: int, quant_max: int) -> None:
    """Raise ``AssertionError`` unless zero is in the range, which has more than one value."""
    if not quant_min <= 0 <= quant_max:
        raise AssertionError(
            f"expected a range of quantised values that includes 0, got {quant_min} to {quant_max}"
        )
    if quant_min == quant_max:
        raise AssertionError(f"expected quant_min less than quant_max, got {quant_min} for both")


def calculate_qmin_qmax(
    quant_min: int | None,
    quant_max: int | None,
    has_customized_qrange: bool,
    dtype: torch.dtype,
    reduce_range: bool,
) -> tuple[int, int]:
    """The smallest and the largest quantised value that an observer uses.

    Args:
        quant_min: the user's smallest value.
        quant_max: the user's largest value.
        has_customized_qrange: whether the user's values count; the range is that of the type if not.
        dtype: the quantised type.
        reduce_range: halves a range of at most 8 bits, for kernels that saturate in 16 bits.
    """
    if not has_customized_qrange:
        low, high = _dtypes.full_range(dtype)
        halved = reduce_range and dtype in _dtypes.UINT8 | _dtypes.INT8
        return (low // 2, high // 2) if halved else (low, high)
    bits = 8 if dtype in _dtypes.INT8 else 32 if dtype in _dtypes.INT32 else None
    values = quant_max - quant_min + 1
    if bits is not None and not 0 < values <= 2**bits:
        raise AssertionError(
            f"expected a range of at most {2**bits} values for {dtype}, got {values}"
        )
    return (quant_min // 2, quant_max // 2) if reduce_range else (quant_min, quant_max)


def check_min_max_valid(min_val: Tensor, max_val: Tensor) -> bool:
    """Whether a range was recorded: a warning if not; ``AssertionError`` if it is upside down."""
    unseen = min_val.numel() == 0 or max_val.numel() == 0
    if not unseen and (min_val.dim() == 0 or max_val.dim() == 0):
        unseen = bool(min_val == float("inf")) and bool(max_val == float("-inf"))
    if unseen:
        warnings.warn(
            "calculate_qparams before the observer has seen any values: the scale is 1, the zero point 0",
            stacklevel=3,
        )
        return False
    if bool((min_val > max_val).any()):
        raise AssertionError(f"min {min_val} should be less than max {max_val}")
    return True


def qparams_of_range(
    low: Tensor,
    high: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    eps: Tensor,
    has_customized_qrange: bool,
    qscheme: torch.qscheme,
) -> tuple[Tensor, Tensor]:
    """The scales, and the zero points as int64, int32 or real numbers, for ranges of values.

    Args:
        low: smallest values, [] or [channels].
        high: largest values, of the same shape.
        quant_min: the smallest quantised value.
        quant_max: the largest quantised value.
        dtype: the quantised type.
        eps: the smallest scale, [1].
        has_customized_qrange: whether the user chose ``quant_min`` and ``quant_max``.
        qscheme: per tensor or per channel, affine or symmetric.

    Returns:
        Two tensors, [1] or [channels].
    """
    steps = float(quant_max - quant_min)
    below = torch.min(low, torch.zeros_like(low))
    above = torch.max(high, torch.zeros_like(high))
    if qscheme in SYMMETRIC:
        scale = torch.max(torch.max(-below, above) / (steps / 2), eps)
        middle = 0
        if dtype in _dtypes.UINT8:
            middle = (quant_min + quant_max) // 2 if has_customized_qrange else 128
        elif dtype == torch.uint16:
            middle = 2**15
        zero_point = torch.full(below.size(), middle, dtype=torch.int64, device=below.device)
    elif qscheme == torch.per_channel_affine_float_qparams:
        scale = (high - low) / steps
        scale = torch.where(scale > eps, scale, torch.ones_like(scale))
        zero_point = -1 * low / scale
    else:
        scale = torch.max((above - below) / steps, eps)
        zero_point = quant_min - torch.round(below / scale).to(torch.int)
        zero_point = torch.clamp(zero_point, quant_min, quant_max)
    return scale.reshape(-1) if scale.dim() == 0 else scale, (
        zero_point.reshape(-1) if zero_point.dim() == 0 else zero_point
    )


def determine_qparams(
    min_val: Tensor,
    max_val: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    eps: Tensor,
    has_customized_qrange: bool,
    qscheme: torch.qscheme = torch.per_tensor_affine,
) -> tuple[Tensor, Tensor]:
    """:func:`qparams_of_range` as float64 and int64; scale 1 and zero point 0 for a range that was not recorded."""
    if not check_min_max_valid(min_val, max_val):
        device = min_val.device.type
        return torch.tensor([1.0], device=device), torch.tensor([0], device=device)
    scale, zero_point = qparams_of_range(
        min_val,
        max_val,
        quant_min,
        quant_max,
        dtype,
        eps.to(min_val.device),
        has_customized_qrange,
        qscheme,
    )
    return scale.to(torch.double), zero_point.to(torch.int64)
