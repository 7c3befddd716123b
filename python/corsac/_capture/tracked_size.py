"""Sizes for functions that run in the place of PyTorch's, whose instructions nobody watches."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corsac._capture.sizes import Expression, Sizes

#: Methods whose results have expressions, and comparisons, which become conditions.
_ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
#: Methods that read the number.
_READS = (
    *("bool", "float", "int", "hash", "repr", "format", "round", "trunc", "ceil", "floor"),
    *("neg", "pos", "abs", "invert", "truediv", "rtruediv", "pow", "rpow", "divmod", "rdivmod"),
)


class TrackedSize(int):
    """A size with its expression. Arithmetic gives expressions, comparisons become conditions, and any other method fixes
    the number. For C code it is an ordinary integer.

    Attributes:
        expression: the expression of sizes that it stands for.
        sizes: gets the conditions.
    """

    expression: Expression
    sizes: Sizes

    @classmethod
    def of(cls, number: int, expression: Expression, sizes: Sizes) -> TrackedSize:
        """The present value of an expression."""
        made = cls(number)
        made.expression, made.sizes = expression, sizes
        return made


def _expression(own: Any) -> Expression:
    return own.expression if isinstance(own, TrackedSize) else own


def _computes(name: str, *, swapped: bool) -> Callable[[TrackedSize, Any], Any]:
    function = getattr(operator, name)

    def compute(own: TrackedSize, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        left, right = (other, own) if swapped else (own, other)
        expression = name, _expression(left), _expression(right)
        return TrackedSize.of(function(left.real, right.real), expression, own.sizes)

    return compute


def _compares(name: str) -> Callable[[TrackedSize, Any], Any]:
    function = getattr(int, f"__{name}__")

    def compare(own: TrackedSize, other: Any) -> Any:
        result = function(own, other)
        if result is not NotImplemented:
            own.sizes.require(name, own.expression, _expression(other), result)
        return result

    return compare


def _reads(name: str) -> Callable[..., Any]:
    function = getattr(int, f"__{name}__")

    def read(own: TrackedSize, *args: Any) -> Any:
        own.sizes.require("eq", own.expression, own.real, True)
        return function(own, *args)

    return read


for _name in _ARITHMETIC:
    setattr(TrackedSize, f"__{_name}__", _computes(_name, swapped=False))
    setattr(TrackedSize, f"__r{_name}__", _computes(_name, swapped=True))
for _name in _COMPARISONS:
    setattr(TrackedSize, f"__{_name}__", _compares(_name))
for _name in _READS:
    setattr(TrackedSize, f"__{_name}__", _reads(_name))


__all__ = ["TrackedSize"]
