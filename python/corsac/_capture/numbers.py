"""Numbers that depend on values of tensors, while a program is recorded and when it is run.

The result of ``x.max().item()`` differs between calls. The recorded program gets a symbolic number
(``crates/corsac-python/src/capture/symbols.rs``): arithmetic with it makes expressions, comparisons make conditions,
and operators of PyTorch that take it get a tensor of one element instead.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch

#: An expression: a number, the value read by a node, by the name of the node, or a function of two expressions.
Expression = Any
#: A comparison: the name of the function, two expressions, and the result.
Condition = tuple[str, Expression, Expression, bool]
#: Tag of an expression that is the value of a node.
_VALUE = "value"

_Tensor = torch.Tensor
#: Functions with the same result for a number and for a one-element tensor of the other operand's dtype.
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
    """Whether an expression depends on values of tensors, not only on sizes."""
    if type(expression) is not tuple:
        return False
    name, *parts = expression
    return name == _VALUE or any(map(depends_on_values, parts))


def names_in(expression: Expression) -> set[str]:
    """The names of the nodes whose values occur in an expression."""
    if type(expression) is not tuple:
        return set()
    name, first, second = expression
    return {first} if name == _VALUE else names_in(first) | names_in(second)


def evaluated(expression: Expression, values: Mapping[str, Any]) -> Any:
    """Evaluate an expression with these values of nodes.

    Raises:
        ArithmeticError: it has no value.
    """
    if type(expression) is not tuple:
        return expression
    name, first, second = expression
    if name == _VALUE:
        return values[first]
    return getattr(operator, name)(evaluated(first, values), evaluated(second, values))


def holds(condition: Condition, values: Mapping[str, Any]) -> bool:
    """Whether a comparison has the same result as when it was recorded.

    Raises:
        ArithmeticError: a side has no value.
    """
    name, left, right, expected = condition
    first, second = evaluated(left, values), evaluated(right, values)
    if name == "is_":
        return is_same_value(first, second) is expected
    return getattr(operator, name)(first, second) is expected


def is_same_value(found: Any, expected: Any) -> bool:
    """Whether two numbers, or nested lists of them, are indistinguishable: 0.0 and -0.0 differ, NaNs are equal."""
    if type(found) is not type(expected):
        return False
    if isinstance(found, list | tuple):
        return len(found) == len(expected) and all(map(is_same_value, found, expected))
    if type(found) is float:
        # As text: NaN equals itself, and the signs of zeros differ.
        return found.hex() == expected.hex()
    if type(found) is complex:
        return is_same_value(found.real, expected.real) and is_same_value(found.imag, expected.imag)
    return bool(found == expected)


def takes_tensor(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.dtype | None:
    """The dtype of the one-element tensor that an operator may get in the place of a number; None if it may not."""
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
