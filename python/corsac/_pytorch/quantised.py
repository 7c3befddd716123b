"""Operators that quantise by parameters in tensors, as functions of PyTorch's operators.

``torch.ops.quantized_decomposed`` and ``torch.ops.corsac`` have them under the same names. One scale and one zero point
belong to a whole tensor; converted PT2E graphs compute them from each batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _checked(input: Tensor) -> Tensor:
    if input.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(
            f"numbers to quantise are of float32, bfloat16 or float16, not {input.dtype}"
        )
    return input


#: The attribute of a scale of double precision with the same number in single precision, in which it was computed:
#: recorded programs then need no double precision.
_SINGLE = "_corsac_single"


def _parameters(scale: Tensor, zero_point: Tensor) -> tuple[Tensor, Tensor]:
    """A scale of single precision, and a zero point, in the types of the operators."""
    single = scale.reshape(1)
    double = single.to(torch.float64)
    setattr(double, _SINGLE, single)
    return double, zero_point.reshape(1).to(torch.int64)


def _single(scale: Tensor) -> Tensor:
    found = getattr(scale, _SINGLE, None)
    return scale.to(torch.float32) if found is None else found


def written(scale: Tensor) -> None:
    """Note that a program has written to a scale, which is another number then."""
    if hasattr(scale, _SINGLE):
        delattr(scale, _SINGLE)


def choose_qparams(
    input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """A scale (float64) and a zero point (int64), of shape [1], for the range of a tensor and 0."""
    values = _checked(input)
    low = torch.clamp(torch.amin(values), max=0.0)
    high = torch.clamp(torch.amax(values), min=0.0)
    scale = torch.clamp(((high - low) / float(quant_max - quant_min)).to(torch.float32), min=eps)
    zero_point = quant_min - torch.round(low / scale)
    zero_point = torch.clamp(zero_point, quant_min, quant_max)
    return _parameters(scale, zero_point)


def choose_qparams_symmetric(
    input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """A scale (float64) and the zero point of the middle (int64), of shape [1], for the largest magnitude."""
    largest = torch.amax(torch.abs(_checked(input)))
    steps = float(quant_max - quant_min) / 2
    scale = torch.clamp((largest / steps).to(torch.float32), min=eps)
    middle = 128 if dtype == torch.uint8 else 0
    return _parameters(scale, torch.full_like(scale, middle))


def quantize_per_tensor(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    """``clamp(round(input / scale) + zero_point, quant_min, quant_max)``, ties to even."""
    inverse = 1.0 / _single(scale)
    levels = torch.round(_checked(input).to(torch.float32) * inverse) + zero_point.to(torch.float32)
    return torch.clamp(levels, quant_min, quant_max).to(dtype)


def dequantize_per_tensor(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """``(input - zero_point) * scale``, as float32 or ``out_dtype``."""
    if input.dtype != dtype:
        raise ValueError(f"quantised integers of {dtype} were expected, not of {input.dtype}")
    levels = input.to(torch.float32) - zero_point.to(torch.float32)
    result = levels * _single(scale)
    return result if out_dtype is None else result.to(out_dtype)


#: Functions by names of operators.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "choose_qparams.tensor": choose_qparams,
    "choose_qparams_symmetric.tensor": choose_qparams_symmetric,
    "quantize_per_tensor.tensor": quantize_per_tensor,
    "dequantize_per_tensor.tensor": dequantize_per_tensor,
}
_LIBRARIES = ("corsac", "quantized_decomposed")


def function_of(operator: Any) -> Callable[..., Any] | None:
    """The function that computes what an operator does, if it is one of these."""
    if not isinstance(operator, torch._ops.OpOverload) or operator.namespace not in _LIBRARIES:
        return None
    return FUNCTIONS.get(operator._schema.name.partition("::")[2] + "." + operator._overloadname)
