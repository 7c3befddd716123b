"""Element types and sizes of torch and ONNX."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from corsac.analysis import Dim

Size = int | Dim

# Numbers of onnx.TensorProto.
ELEMENT_TYPES = {
    torch.float32: 1,
    torch.uint8: 2,
    torch.int8: 3,
    torch.int16: 5,
    torch.int32: 6,
    torch.int64: 7,
    torch.bool: 9,
    torch.float16: 10,
    torch.float64: 11,
    torch.bfloat16: 16,
}

INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


class Unsupported(Exception):
    """A node has no exact translation; the message is the reason."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Type of a tensor, as analysis found it."""

    dtype: torch.dtype
    shape: tuple[Size, ...]
    is_quantized: bool = False


def element_type(dtype: torch.dtype) -> int:
    """The ONNX number of ``dtype``."""
    found = ELEMENT_TYPES.get(dtype)
    if found is None:
        raise Unsupported(f"no translation of {name_of(dtype)}")
    return found


def name_of(dtype: torch.dtype) -> str:
    """Short name of a dtype: ``float32``."""
    return str(dtype).removeprefix("torch.")


def is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point


def common_dtype(*operands: Any) -> torch.dtype:
    """The dtype in which torch computes with these tensors and numbers."""
    result = None
    tensors = [_fake_tensor(operand) for operand in operands]
    result = tensors[0]
    for other in tensors[1:]:
        dtype = torch.result_type(result, other)
        rank = max(getattr(result, "ndim", -1), getattr(other, "ndim", -1))
        both_numbers = not isinstance(result, torch.Tensor) and not isinstance(other, torch.Tensor)
        result = other if both_numbers else torch.empty((1,) * rank, dtype=dtype, device="meta")
    return result.dtype if isinstance(result, torch.Tensor) else torch.result_type(result, result)


def _fake_tensor(operand: Any) -> Any:
    if isinstance(operand, Dim):
        return 2
    if isinstance(operand, (bool, int, float)):
        return operand
    return torch.empty((1,) * len(operand.shape), dtype=operand.dtype, device="meta")


def is_static(shape: Sequence[Size]) -> bool:
    return all(isinstance(size, int) for size in shape)


def broadcast(*shapes: Sequence[Size]) -> tuple[Size, ...]:
    """The shape to which ``shapes`` are broadcast."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Size] = []
    for axis in range(-rank, 0):
        sizes = [shape[axis] for shape in shapes if len(shape) >= -axis]
        result.append(next((size for size in sizes if size != 1), 1))
    return tuple(result)


def positive_dim(dim: int, rank: int) -> int:
    """``dim`` as a non-negative number."""
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise Unsupported(f"dimension {dim} of {rank}")
    return dim % max(rank, 1)


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def compute_dim(
    dim: Dim,
    symbol: Callable[[str], Any],
    combine: Callable[[str, Any, Any], Any],
    number: Callable[[int], Any],
) -> Any:
    """Evaluate an expression over symbols by means of ``symbol``, ``combine`` and ``number``.

    ``combine`` is called with ``add``, ``sub``, ``mul`` or ``floordiv`` and two operands.
    """

    def visit(node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return symbol(node.id)
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return number(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return combine("sub", number(0), visit(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            name = _OPERATORS[type(node.op)].__name__
            return combine(name, visit(node.left), visit(node.right))
        raise Unsupported(f"the size {dim} has no translation")

    try:
        tree = ast.parse(str(dim), mode="eval")
    except SyntaxError as error:
        raise Unsupported(f"the size {dim} has no translation") from error
    return visit(tree.body)
