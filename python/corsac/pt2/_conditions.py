"""Conditions that a program puts on the sizes of its inputs, as nodes that check them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from corsac._files.dynamic_shapes import Size
from corsac._files.input_check import Leaf
from corsac.fx import Graph, Node
from corsac.pt2._archive import Pt2ImportError

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Add: operator.add, ast.Sub: operator.sub,
    ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.USub: operator.neg, ast.Not: torch.sym_not, ast.And: operator.and_, ast.Or: operator.or_,
}  # fmt: skip
#: Functions that PyTorch writes into conditions.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "max": torch.sym_max, "Max": torch.sym_max, "min": torch.sym_min, "Min": torch.sym_min,
    "Mod": operator.mod, "PythonMod": operator.mod, "FloorDiv": operator.floordiv,
}  # fmt: skip


class Conditions:
    """Makes nodes that check conditions.

    Args:
        graph: the graph.
        inputs: the nodes of the leaves of its arguments.
        leaves: these leaves.
        places: positions of leaves by the texts that stand for them in conditions: ``L['x']``.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[Node],
        leaves: Sequence[Leaf],
        places: Mapping[str, int],
    ) -> None:
        self._graph, self._inputs = graph, inputs
        self._leaves, self._places = leaves, places
        self._sizes: dict[tuple[int, str, int], Node] = {}

    def check(self, text: str) -> None:
        """Make nodes that raise an error unless a condition is true."""
        try:
            condition = ast.parse(text, mode="eval").body
            if self._is_known(condition):
                return
            value = self._value(condition)
        except (SyntaxError, RecursionError, MemoryError, ValueError, TypeError, KeyError) as error:
            if isinstance(error, Pt2ImportError):
                raise
            raise Pt2ImportError(f"a condition that cannot be read: {text:.200}") from error
        message = f"the program was exported for inputs with {text}"
        self._graph.call_function(torch.ops.aten._assert_scalar.default, (value, message))

    def _is_known(self, node: ast.expr) -> bool:
        """Whether it compares sizes that are one symbol, which is checked elsewhere."""
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            return False
        left, right = (self._declared(own) for own in (node.left, node.comparators[0]))
        return isinstance(node.ops[0], ast.Eq) and left is not None and left == right

    def _declared(self, node: ast.expr) -> int | Size | None:
        if isinstance(node, ast.Constant):
            return node.value if type(node.value) is int else None
        try:
            place, method, dim = self._read(node)
        except ValueError:
            return None
        return self._leaves[place].shape[dim] if method == "size" else None

    def _value(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            return node.value
        if isinstance(node, ast.BoolOp):
            first, *others = (self._value(own) for own in node.values)
            for own in others:
                first = self._called(_OPERATORS[type(node.op)], first, own)
            return first
        if isinstance(node, ast.UnaryOp):
            return self._called(_OPERATORS[type(node.op)], self._value(node.operand))
        if isinstance(node, ast.BinOp):
            pair = self._value(node.left), self._value(node.right)
            return self._called(_OPERATORS[type(node.op)], *pair)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            pair = self._value(node.left), self._value(node.comparators[0])
            return self._called(_OPERATORS[type(node.ops[0])], *pair)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._called(_FUNCTIONS[node.func.id], *(self._value(own) for own in node.args))
        place = self._places.get(ast.unparse(node))
        if place is not None and self._leaves[place].dtype is None:
            return self._inputs[place]
        key = self._read(node)
        if key not in self._sizes:
            place, method, dim = key
            self._sizes[key] = self._graph.call_method(method, (self._inputs[place], dim))
        return self._sizes[key]

    def _called(self, function: Callable[..., Any], *args: Any) -> Any:
        if not any(isinstance(own, Node) for own in args):
            return function(*args)
        return self._graph.call_function(function, args)

    def _read(self, node: ast.AST) -> tuple[int, str, int]:
        """The leaf, the method and the dimension of ``L['x'].size()[0]``."""
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
            raise ValueError("no size")
        call, dim = node.value, node.slice.value
        if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Attribute):
            raise ValueError("no size")
        method, place = call.func.attr, self._places.get(ast.unparse(call.func.value))
        if place is None or method not in ("size", "stride") or type(dim) is not int:
            raise ValueError("no size")
        if not 0 <= dim < len(self._leaves[place].shape):
            raise ValueError("no dimension")
        return place, method, dim


__all__ = ["Conditions"]
