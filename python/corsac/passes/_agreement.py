"""Comparison of two results of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

#: Default tolerances, relative to the largest value: some hundred roundings.
_TOLERANCES = {
    torch.bfloat16: 5e-2,
    torch.float16: 1e-2,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
}


@dataclass(frozen=True)
class Agreement:
    """Largest difference between two results (``error``), and largest finite value (``scale``)."""

    error: float
    scale: float

    def within(self, tolerance: float) -> bool:
        """Whether the difference is at most ``tolerance`` times the largest value, or 1 if that is larger."""
        return self.error <= tolerance * max(self.scale, 1.0)


def default_tolerance(value: Any) -> float:
    """Default tolerance for a result like ``value``, relative to its largest value.

    1e-9 for float64, 1e-4 for float32, 1e-2 for float16, 5e-2 for bfloat16, 0 for other types; the
    largest of those that occur.
    """
    leaves, _ = tree_flatten(value)
    dtypes = {leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor)}
    return max((_TOLERANCES.get(dtype, 0.0) for dtype in dtypes), default=0.0)


def compare_outputs(expected: Any, actual: Any) -> Agreement | str:
    """Difference between the tensors of both results, or a description of a difference in structure,
    shape or dtype."""
    leaves, structure = tree_flatten(expected)
    other_leaves, other_structure = tree_flatten(actual)
    if structure != other_structure:
        return f"the original returns {structure}, the result {other_structure}"
    error = scale = 0.0
    for number, (left, right) in enumerate(zip(leaves, other_leaves, strict=True)):
        if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
            if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor) or left != right:
                return f"output {number} is {left!r} from the original, {right!r} from the result"
            continue
        if (left.shape, left.dtype) != (right.shape, right.dtype):
            return (
                f"output {number} is {tuple(left.shape)} {left.dtype} from the original, "
                f"{tuple(right.shape)} {right.dtype} from the result"
            )
        if left.numel() == 0:
            continue
        if left.is_quantized:
            left, right = left.dequantize(), right.dequantize()
        wide = torch.complex128 if left.is_complex() else torch.float64
        left, right = left.to(wide), right.to(wide)
        # Equal infinities and NaNs agree.
        same = (left == right) | (left.isnan() & right.isnan())
        difference = torch.where(same, 0.0, (left - right).abs())
        if difference.isnan().any():
            return f"output {number} has NaNs or infinities that differ"
        error = max(error, float(difference.max()))
        finite = left.abs()[left.isfinite()]
        scale = max(scale, float(finite.max()) if finite.numel() else 0.0)
    return Agreement(error, scale)
