"""Compares results with PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from corsac.minifier._fault import DIFFERS, NOT_FINITE, Fault

#: Relative tolerance of an element, by element type; also a tenth of it relative to the largest element (at
#: least 1), since sums lose small terms.
TOLERANCES = {
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
    torch.float32: 1e-4,
    torch.float64: 1e-6,
    torch.complex64: 1e-4,
    torch.complex128: 1e-6,
}
#: Factor by which the error against float64 may exceed that of PyTorch's own result.
_AS_FAR = 10.0

#: Values after a call, with their names.
Values = Sequence[tuple[str, Any]]


def not_finite(values: Values) -> bool:
    """Whether there is NaN or an infinity among floating-point values."""
    return any(_is_float(own) and not bool(own.isfinite().all()) for _, own in values)


def difference(found: Values, expected: Values, tolerance: float | None) -> Fault | None:
    """The first difference of ``found`` from ``expected``: NaN and infinities first, then types, then
    values."""
    for (name, own), (_, other) in zip(found, expected, strict=False):
        if _is_float(own) and _is_float(other) and own.shape == other.shape:
            bad = ~own.isfinite() & other.isfinite()
            if bool(bad.any()):
                count, value = int(bad.sum()), own[bad].reshape(-1)[0].item()
                return Fault(NOT_FINITE, f"{NOT_FINITE}: {name} has {value} in {count} places")
    if len(found) != len(expected):
        return _differs("number of results", f"expected {len(expected)} results, got {len(found)}")
    for (name, own), (_, other) in zip(found, expected, strict=True):
        if _type(own) != _type(other):
            return _differs("type", f"{name}: expected {_type(other)}, got {_type(own)}")
        if not isinstance(other, torch.Tensor):
            if own != other:
                return _differs("value", f"{name}: expected {other!r}, got {own!r}")
            continue
        far = _distance(own, other, tolerance)
        if far is not None:
            return _differs("values", f"{name}: {far}")
    return None


def as_good(found: Values, expected: Values, exact: Values, tolerance: float | None) -> bool:
    """Whether ``found`` is about as near to the results in float64 as PyTorch's: rounding errors that a graph
    amplifies are no fault."""
    if not len(found) == len(expected) == len(exact):
        return False
    for (_, own), (_, other), (_, true) in zip(found, expected, exact, strict=True):
        if not _is_float(other) or _distance(own, other, tolerance) is None:
            continue
        if not _is_float(true) or true.shape != other.shape:
            return False
        error, allowed = (
            float((x.to(true.dtype) - true).abs().nan_to_num(0.0).max()) for x in (own, other)
        )
        if error > _AS_FAR * allowed:
            return False
    return True


def _differs(what: str, text: str) -> Fault:
    return Fault(f"{DIFFERS}: {what}", f"{DIFFERS}: {text}")


def _distance(own: torch.Tensor, other: torch.Tensor, tolerance: float | None) -> str | None:
    """Description of how far apart two tensors of one type are; None if within the tolerance."""
    own, other = own.detach(), other.detach()
    if other.dtype not in TOLERANCES:
        if torch.equal(own, other):
            return None
        return f"{int((own != other).sum())} of {other.numel()} values differ"
    relative = TOLERANCES[other.dtype] if tolerance is None else tolerance
    wide = torch.complex128 if other.is_complex() else torch.float64
    own, other = own.to(wide), other.to(wide)
    same = (own == other) | (own.isnan() & other.isnan())
    finite = other.abs().masked_fill(~other.isfinite(), 0.0)
    largest = float(finite.max()) if finite.numel() else 0.0
    error = (own - other).abs().masked_fill(same, 0.0).nan_to_num(nan=float("inf"))
    allowed = relative * finite + relative / 10 * max(1.0, largest)
    if not bool((error > allowed).any()):
        return None
    return f"values differ by up to {float(error.max()):.3g}, where the largest is {largest:.3g}"


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _type(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} on {value.device}"
