"""Conditions that a program puts on its inputs, checked before each call."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from corsac._files.dynamic_shapes import Size
from corsac.pt2._archive import Pt2ImportError

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Add: operator.add, ast.Sub: operator.sub,
    ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.USub: operator.neg, ast.Not: operator.not_,
}  # fmt: skip
#: Functions that PyTorch writes into conditions.
_FUNCTIONS = {"max": max, "Max": max, "min": min, "Min": min, "Mod": operator.mod, "PythonMod": operator.mod}  # fmt: skip
_FUNCTIONS |= {"FloorDiv": operator.floordiv}

#: A function of the leaves of the arguments.
Term = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class Leaf:
    """A leaf of the arguments.

    Attributes:
        name: its name for messages.
        shape: the sizes of a tensor; None for others.
        value: the value that others than tensors have to have; None for any.
    """

    name: str
    shape: tuple[int | Size, ...] | None = None
    value: Any = None
    is_fixed: bool = False


class InputCheck:
    """A hook that compares the arguments of each call with what the program was exported for.

    Attributes:
        arguments: the structures of the arguments by their names, with positions in ``leaves`` as leaves.
        leaves: the leaves of the arguments.
        ranges: the least and largest values of symbols.
        conditions: texts of conditions, which are about leaves by ``places``.
    """

    def __init__(
        self,
        arguments: Mapping[str, Any],
        leaves: Sequence[Leaf],
        ranges: Mapping[str, tuple[int, int | None]],
        conditions: Sequence[str],
        places: Mapping[str, int],
    ) -> None:
        self.arguments, self.leaves, self.ranges = dict(arguments), list(leaves), dict(ranges)
        self.conditions, self.places = list(conditions), dict(places)
        self._terms: list[Term] = [self._term(own) for own in self.conditions]

    def __getstate__(self) -> dict[str, Any]:
        return {key: own for key, own in self.__dict__.items() if key != "_terms"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._terms = [self._term(own) for own in self.conditions]

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Any) -> None:
        if len(args) > len(self.arguments):
            return  # The call itself raises the error.
        given: list[Any] = [own.value for own in self.leaves]
        named = dict(zip(self.arguments, args, strict=False)) | kwargs
        for name, structure in self.arguments.items():
            if name in named:
                _take(structure, named[name], given, name)
        values: dict[str, int] = {}
        for leaf, own in zip(self.leaves, given, strict=True):
            self._compare(leaf, own, values)
        for text, term in zip(self.conditions, self._terms, strict=True):
            if not term(given):
                raise ValueError(f"the program was exported for inputs with {text}")

    def _compare(self, leaf: Leaf, given: Any, values: dict[str, int]) -> None:
        if leaf.shape is None:
            if leaf.is_fixed and (type(given) is not type(leaf.value) or given != leaf.value):
                raise ValueError(f"input {leaf.name}: expected {leaf.value!r}, got {given!r:.100}")
            return
        if not isinstance(given, torch.Tensor):
            raise TypeError(f"input {leaf.name}: expected a tensor, got {type(given).__name__}")
        if given.dim() != len(leaf.shape):
            raise ValueError(
                f"input {leaf.name}: expected {len(leaf.shape)} dimensions, got {given.dim()}"
            )
        for dim, expected in enumerate(leaf.shape):
            where, size = f"input {leaf.name}, dimension {dim}", given.shape[dim]
            if isinstance(expected, Size):
                self._compare_symbol(where, expected, size, values)
            elif size != expected:
                raise ValueError(f"{where}: expected {expected}, got {size}")

    def _compare_symbol(self, where: str, expected: Size, size: int, values: dict[str, int]) -> None:
        value = expected.value_for(size)
        if value is None:
            raise ValueError(f"{where}: {size}, which {expected} never is")
        least, most = self.ranges.get(expected.symbol, (0, None))
        if value < least or (most is not None and value > most):
            limits = f"{least} to {most}" if most is not None else f"{least} or more"
            raise ValueError(f"{where}: expected {expected.symbol} of {limits}, got {value}")
        known = values.setdefault(expected.symbol, value)
        if known != value:
            raise ValueError(f"{where}: expected {expected.at(known)}, got {size}")

    # -- conditions as text ------------------------------------------------------------------------

    def _term(self, text: str) -> Term:
        try:
            return self._compiled(ast.parse(text, mode="eval").body)
        except (SyntaxError, RecursionError, MemoryError, ValueError, TypeError, KeyError) as error:
            raise Pt2ImportError(f"a condition that cannot be read: {text:.200}") from error

    def _compiled(self, node: ast.AST) -> Term:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            value = node.value
            return lambda leaves: value
        if isinstance(node, ast.BoolOp):
            parts = [self._compiled(own) for own in node.values]
            every = isinstance(node.op, ast.And)
            return lambda leaves: (all if every else any)(own(leaves) for own in parts)
        if isinstance(node, ast.UnaryOp):
            return _applied(_OPERATORS[type(node.op)], [self._compiled(node.operand)])
        if isinstance(node, ast.BinOp):
            pair = [self._compiled(node.left), self._compiled(node.right)]
            return _applied(_OPERATORS[type(node.op)], pair)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return _applied(_FUNCTIONS[node.func.id], [self._compiled(own) for own in node.args])
        return self._read(node)

    def _comparison(self, node: ast.Compare) -> Term:
        terms = [self._compiled(own) for own in (node.left, *node.comparators)]
        functions = [_OPERATORS[type(own)] for own in node.ops]
        pairs = [
            _applied(function, [left, right])
            for function, left, right in zip(functions, terms, terms[1:], strict=False)
        ]
        return lambda leaves: all(own(leaves) for own in pairs)

    def _read(self, node: ast.AST) -> Term:
        """A leaf, or a size or stride of one: ``L['x'].size()[0]``."""
        place = self.places.get(ast.unparse(node))
        if place is not None:
            return lambda leaves: leaves[place]
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
            raise ValueError("no size")
        call, dim = node.value, node.slice.value
        if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Attribute):
            raise ValueError("no size")
        method, place = call.func.attr, self.places.get(ast.unparse(call.func.value))
        if place is None or method not in ("size", "stride") or type(dim) is not int:
            raise ValueError("no size")
        shape = self.leaves[place].shape
        if shape is None or not 0 <= dim < len(shape):
            raise ValueError("no dimension")
        return lambda leaves: getattr(leaves[place], method)(dim)


def _take(structure: Any, value: Any, given: list[Any], where: str) -> None:
    """Put the leaves of an argument to their positions."""
    if isinstance(structure, int):
        given[structure] = value
    elif isinstance(structure, dict):
        if not isinstance(value, Mapping) or set(value) != set(structure):
            raise TypeError(f"input {where}: expected a dictionary of {', '.join(map(repr, structure))}")
        for key, own in structure.items():
            _take(own, value[key], given, f"{where}[{key!r}]")
    else:
        if not isinstance(value, type(structure)) or len(value) != len(structure):
            kind = type(structure).__name__
            raise TypeError(f"input {where}: expected a {kind} of {len(structure)}")
        for at, (own, part) in enumerate(zip(structure, value, strict=True)):
            _take(own, part, given, f"{where}[{at}]")


def _applied(function: Callable[..., Any], terms: Sequence[Term]) -> Term:
    return lambda leaves: function(*(own(leaves) for own in terms))


__all__ = ["InputCheck", "Leaf"]
