"""Measures of how far values are from other values. The names are those of ``torch.ao.ns.fx.utils``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["compute_cosine_similarity", "compute_normalized_l2_error", "compute_sqnr"]


def _of_values(measure: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], Any]:
    """A measure that also takes tuples and lists, and tensors of PyTorch's quantised types."""

    @functools.wraps(measure)
    def measured(x: Any, y: Any) -> Any:
        if isinstance(x, (tuple, list)):
            return [measured(left, right) for left, right in zip(x, y, strict=True)]
        return measure(*(one.dequantize() if one.is_quantized else one for one in (x, y)))

    return measured


@_of_values
def compute_sqnr(x: Tensor, y: Tensor) -> Tensor:
    """The ratio of the power of ``x`` and that of the difference of ``y``, in decibels."""
    return 20 * torch.log10(torch.norm(x) / torch.norm(x - y))


@_of_values
def compute_normalized_l2_error(x: Tensor, y: Tensor) -> Tensor:
    """The norm of the difference of ``y``, divided by the norm of ``x``."""
    return torch.sqrt(((x - y) ** 2).sum() / (x**2).sum())


@_of_values
def compute_cosine_similarity(x: Tensor, y: Tensor) -> Tensor:
    """The cosine of the angle between ``x`` and ``y`` as vectors, [1]."""
    return torch.nn.functional.cosine_similarity(x.reshape(1, -1), y.reshape(1, -1))
