"""New tensors and casts."""

from __future__ import annotations

from typing import Any

import torch

from corsac.onnx._builder import Builder, Tensor
from corsac.onnx._table import translates
from corsac.onnx._types import Unsupported, is_float, is_static

#: Largest number of elements of a constant that is stored in full.
STORED = 1 << 16


def _full(g: Builder, value: Any) -> Tensor:
    """A tensor of the type that analysis found, filled with one number."""
    _on_cpu(g)
    if is_static(g.out.shape) and not isinstance(value, Tensor) and _numel(g) <= STORED:
        filled = torch.full(tuple(g.out.shape), _number(value), dtype=g.out.dtype)
        return g.known(filled)
    return g.expand(g.scalar(value, g.out.dtype), g.out.shape)


def _number(value: Any) -> Any:
    if not isinstance(value, (bool, int, float)):
        raise Unsupported("a number that is not known")
    return value


def _numel(g: Builder) -> int:
    return torch.Size(g.out.shape).numel()


def _on_cpu(g: Builder) -> None:
    layout = getattr(g.out, "is_quantized", False)
    if layout:
        raise Unsupported("quantised tensors")


def _device(options: dict[str, Any]) -> None:
    device = options.get("device")
    if device is not None and torch.device(device).type != "cpu":
        raise Unsupported(f"a tensor on {device}")
    if options.get("layout") not in (None, torch.strided):
        raise Unsupported("a tensor that is not dense")


@translates("zeros", "zeros_like", "new_zeros")
def zeros(g: Builder, **options: Any) -> Tensor:
    """Zeros."""
    _device(options)
    return _full(g, 0)


@translates("zero", "zero_")
def zero(g: Builder, input: Tensor) -> Tensor:
    """Zeros."""
    return _full(g, 0)


@translates("ones", "ones_like", "new_ones")
def ones(g: Builder, **options: Any) -> Tensor:
    """Ones."""
    _device(options)
    return _full(g, 1)


@translates("full", "full_like", "new_full")
def full(g: Builder, *, fill_value: Any, **options: Any) -> Tensor:
    """A tensor filled with one number."""
    _device(options)
    return _full(g, fill_value)


@translates("fill")
def fill(g: Builder, input: Tensor, value: Any) -> Tensor:
    """A tensor filled with one number."""
    return _full(g, value)


@translates("scalar_tensor")
def scalar_tensor(g: Builder, s: Any, **options: Any) -> Tensor:
    """A number as a tensor of rank 0."""
    _device(options)
    return _full(g, s)


@translates("tensor", "as_tensor")
def tensor(g: Builder, data: Any, **options: Any) -> Tensor:
    """A tensor of numbers."""
    _device(options)
    if isinstance(data, Tensor):
        return g.cast(data, g.out.dtype)
    try:
        return g.known(torch.tensor(data, dtype=g.out.dtype))
    except (TypeError, ValueError, RuntimeError) as error:
        raise Unsupported("elements that are not known") from error


@translates("arange")
def arange(g: Builder, start: Any = 0, end: Any = None, step: Any = 1, **options: Any) -> Tensor:
    """Numbers from start to end in steps."""
    _device(options)
    start, end = (0, start) if end is None else (start, end)
    dtype = g.out.dtype
    if is_static(g.out.shape) and all(isinstance(x, (int, float)) for x in (start, end, step)):
        return g.known(torch.arange(start, end, step, dtype=dtype))
    if is_float(dtype):
        raise Unsupported("a number of steps that is not known")
    numbers = [g.scalar(number, dtype) for number in (start, end, step)]
    return g.op("Range", *numbers, shape=g.out.shape)


@translates("linspace")
def linspace(g: Builder, start: Any, end: Any, steps: Any, **options: Any) -> Tensor:
    """Evenly spaced numbers."""
    _device(options)
    if not all(isinstance(number, (int, float)) for number in (start, end, steps)):
        raise Unsupported("numbers that are not known")
    return g.known(torch.linspace(start, end, steps, dtype=g.out.dtype))


@translates("eye")
def eye(g: Builder, **options: Any) -> Tensor:
    """The identity matrix: ones on the diagonal."""
    _device(options)
    if not is_static(g.out.shape):
        raise Unsupported("a size that is not known")
    return g.known(torch.eye(*g.out.shape, dtype=g.out.dtype))


@translates("to", "_to_copy", "type", "type_as", "prims.convert_element_type", "float", "double",
            "half", "int", "long", "short", "char", "byte", "bool", "bfloat16")  # fmt: skip
def to(g: Builder, input: Tensor, **options: Any) -> Tensor:
    """The same elements in another dtype."""
    for value in options.values():
        if isinstance(value, torch.device) or (isinstance(value, str) and "torch" not in value):
            _device({"device": value})
    return g.cast(input, g.out.dtype)
