"""Numbers that depend on values of tensors, in a program that is being recorded and when it is run.

What ``x.max().item()`` gives is another number in each call. The program gets a number object of its own
(``crates/corsac-python/src/capture/symbols.rs``); what it computes with it is an expression, comparisons are conditions,
and an operator of PyTorch that takes it gets a tensor of one element.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch

#: An expression: a number, the value that a node has read, by the name of the node, or a function of two.
Expression = Any
#: A comparison of two expressions, and what it gave.
Condition = tuple[str, Expression, Expression, bool]
#: The first part of an expression that is the value of a node.
_VALUE = "value"

_Tensor = torch.Tensor
#: Functions that compute the same of a number and of a tensor of one element of the other operand's type.
_TAKE_TENSORS = frozenset(
    [
        *("add", "sub", "mul", "div", "true_divide", "add_", "sub_", "mul_", "div_"),
        *("__add__", "__radd__", "__iadd__", "__sub__", "__rsub__", "__isub__", "__mul__"),
        *("__rmul__", "__imul__", "__truediv__", "__rtruediv__", "__itruediv__", "__rdiv__"),
        *("lt", "le", "gt", "ge", "eq", "ne", "__lt__", "__le__", "__gt__", "__ge__"),
        *("__eq__", "__ne__"),
    ]
)


def value_of(name: str) -> Expression:
    """The value that the node of this name reads."""
    return _VALUE, name, 0


def depends_on_values(expression: Expression) -> bool:
    """Whether an expression is of values, not of sizes."""
    if type(expression) is not tuple:
        return False
    name, *parts = expression
    return name == _VALUE or any(map(depends_on_values, parts))


def names_in(expression: Expression) -> set[str]:
    """The nodes of which an expression has values."""
    if type(expression) is not tuple:
        return set()
    name, first, second = expression
    return {first} if name == _VALUE else names_in(first) | names_in(second)


def evaluated(expression: Expression, values: Mapping[str, Any]) -> Any:
    """The number that an expression is, where nodes have read these values.

    Raises:
        ArithmeticError: it is none.
    """
    if type(expression) is not tuple:
        return expression
    name, first, second = expression
    if name == _VALUE:
        return values[first]
    return getattr(operator, name)(evaluated(first, values), evaluated(second, values))


def holds(condition: Condition, values: Mapping[str, Any]) -> bool:
    """Whether a comparison gives what it gave.

    Raises:
        ArithmeticError: a side is no number.
    """
    name, left, right, expected = condition
    first, second = evaluated(left, values), evaluated(right, values)
    if name == "is_":
        return is_same_value(first, second) is expected
    return getattr(operator, name)(first, second) is expected


def is_same_value(found: Any, expected: Any) -> bool:
    """Whether programs cannot tell two numbers apart, or nested lists of them: zero has two signs."""
    if type(found) is not type(expected):
        return False
    if isinstance(found, list | tuple):
        return len(found) == len(expected) and all(map(is_same_value, found, expected))
    if type(found) is float:
        # No number is written in one way.
        return found.hex() == expected.hex()
    if type(found) is complex:
        return is_same_value(found.real, expected.real) and is_same_value(found.imag, expected.imag)
    return bool(found == expected)


def takes_tensor(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.dtype | None:
    """The type of the tensor of one element that an operator may get in the place of a number; None if it may not."""
    tensors = [own for own in args if isinstance(own, _Tensor)]
    if name in _TAKE_TENSORS and len(args) == 2 and len(tensors) == 1 and not kwargs:
        dtype = tensors[0].dtype
        return dtype if dtype.is_floating_point else None
    return None


__all__ = [
    "Condition",
    "Expression",
    "depends_on_values",
    "evaluated",
    "holds",
    "is_same_value",
    "names_in",
    "takes_tensor",
    "value_of",
]
