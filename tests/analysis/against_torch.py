"""Compares the results of the rules with PyTorch's."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.passes.shape_prop import TensorMetadata, _extract_tensor_metadata

from corsac import _core


def described(value: Any) -> Any:
    """``value`` with tensors as their metadata, and named tuples as tuples."""
    if isinstance(value, torch.Tensor):
        return _extract_tensor_metadata(value)
    if isinstance(value, (tuple, list)):
        items = [described(item) for item in value]
        return items if type(value) is list else tuple(items)
    return value


def difference(ours: Any, real: Any, *, grad: bool = True) -> str | None:
    """The difference of the inferred type from the real one, where known; None if there is none."""
    if isinstance(real, TensorMetadata):
        if not isinstance(ours, TensorMetadata):
            return f"{ours!r} is no tensor"
        if tuple(ours.shape) != tuple(real.shape):
            return f"shape {tuple(ours.shape)}, not {tuple(real.shape)}"
        if ours.dtype != real.dtype:
            return f"{ours.dtype}, not {real.dtype}"
        if ours.is_quantized != real.is_quantized:
            return "is_quantized"
        if grad and ours.requires_grad != real.requires_grad:
            return f"requires_grad {ours.requires_grad}"
        if ours.stride is None:
            return None
        if tuple(ours.stride) != tuple(real.stride):
            return f"strides {tuple(ours.stride)}, not {tuple(real.stride)} of {tuple(real.shape)}"
        if ours.memory_format != real.memory_format:
            return f"{ours.memory_format}, not {real.memory_format}"
        return None
    if isinstance(real, (tuple, list)):
        if not isinstance(ours, (tuple, list)) or len(ours) != len(real):
            return f"{ours!r} for {len(real)} items"
        found = (difference(a, b, grad=grad) for a, b in zip(ours, real, strict=True))
        return next((text for text in found if text), None)
    if isinstance(real, torch.Size):
        real = tuple(real)
    if ours is None or type(real).__name__ not in ("int", "bool", "float"):
        return None
    return None if ours == real else f"{ours!r}, not {real!r}"


def infer(target: Any, *args: Any, **kwargs: Any) -> Any:
    """The inferred type, in a tuple, or the text of the reason why there is none."""
    return _core.infer_type(target, args, kwargs)


def check(target: Any, args: Any, kwargs: Any, real: Any) -> str | None:
    """The difference of the rules from the result of ``target`` for these arguments; None if there is none."""
    answer = infer(target, *args, **kwargs)
    if isinstance(answer, str):
        return f"unknown: {answer}"
    return difference(answer[0], described(real), grad=False)
