"""Sizes of inputs that are expressions of symbols."""

from __future__ import annotations

import ast
from typing import Any

from corsac._files.dynamic_shapes import Size
from corsac.pt2._archive import Pt2ImportError


def size_of(value: Any) -> int | Size:
    """The size that an archive has for a dimension: a number, or ``factor * symbol + offset``."""
    if "as_int" in value:
        found = value["as_int"]
    else:
        text = value["as_expr"]["expr_str"]
        try:
            found = _linear(ast.parse(text, mode="eval").body)
        except (SyntaxError, RecursionError, MemoryError, ValueError, TypeError) as error:
            raise Pt2ImportError(f"a size that cannot be read: {text!r:.200}") from error
    if isinstance(found, Size) and not (0 < found.factor < 2**31 and abs(found.offset) < 2**31):
        raise Pt2ImportError(f"a size of {found}")
    if type(found) is int and not 0 <= found < 2**62:
        raise Pt2ImportError(f"a size of {found}")
    return found


def _linear(node: ast.expr) -> int | Size:
    """The value of an expression of sympy, as ``srepr`` writes it."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
        raise ValueError("no function")
    name = node.func.id
    if name == "Integer":
        value = ast.literal_eval(node.args[0])
        if type(value) is not int:
            raise ValueError("no integer")
        return value
    if name == "Symbol":
        value = ast.literal_eval(node.args[0])
        if not isinstance(value, str) or not value.isidentifier():
            raise ValueError("no symbol")
        return Size(value)
    values = [_linear(own) for own in node.args]
    symbols = [own for own in values if isinstance(own, Size)]
    numbers = [own for own in values if not isinstance(own, Size)]
    if len(symbols) != 1 or len(numbers) != 1 or name not in ("Add", "Mul"):
        raise ValueError("not linear")
    symbol, number = symbols[0], numbers[0]
    if name == "Add":
        return Size(symbol.symbol, symbol.factor, symbol.offset + number)
    return Size(symbol.symbol, symbol.factor * number, symbol.offset * number)


__all__ = ["size_of"]
