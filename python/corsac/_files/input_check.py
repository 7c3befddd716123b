"""Hooks that compare the inputs of a module with the types and sizes that it was read for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from corsac._files.dynamic_shapes import Size


@dataclass(frozen=True)
class Leaf:
    """A tensor or other value among the arguments of a module.

    Attributes:
        name: its name for messages.
        dtype: the element type of a tensor; None for others.
        shape: the sizes of a tensor.
        value: the value that others have to have, if ``is_fixed``.
    """

    name: str
    dtype: torch.dtype | None = None
    shape: tuple[int | Size, ...] = ()
    value: Any = None
    is_fixed: bool = False


class InputCheck:
    """A hook before the calls of a module.

    Attributes:
        arguments: the structures of the arguments by their names, with positions in ``leaves`` as leaves.
        leaves: the leaves of the arguments.
        ranges: the least and largest values of symbols, None for no largest one.
    """

    def __init__(
        self,
        arguments: Mapping[str, Any],
        leaves: Sequence[Leaf],
        ranges: Mapping[str, tuple[int, int | None]],
    ) -> None:
        self.arguments, self.leaves, self.ranges = dict(arguments), list(leaves), dict(ranges)

    @classmethod
    def of(cls, module: Any) -> InputCheck | None:
        """The check of a module, if it has one."""
        hooks = module._forward_pre_hooks.values() if isinstance(module, torch.nn.Module) else ()
        return next((own for own in hooks if isinstance(own, cls)), None)

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

    def _compare(self, leaf: Leaf, given: Any, values: dict[str, int]) -> None:
        if leaf.dtype is None:
            if leaf.is_fixed and (type(given) is not type(leaf.value) or given != leaf.value):
                raise ValueError(f"input {leaf.name}: expected {leaf.value!r}, got {given!r:.100}")
            return
        if not isinstance(given, torch.Tensor):
            raise TypeError(f"input {leaf.name}: expected a tensor, got {type(given).__name__}")
        if given.dtype != leaf.dtype or given.dim() != len(leaf.shape):
            raise ValueError(
                f"input {leaf.name}: expected {len(leaf.shape)} dimensions of {leaf.dtype}, got {given.dim()} of "
                f"{given.dtype}"
            )
        for dim, expected in enumerate(leaf.shape):
            where, size = f"input {leaf.name}, dimension {dim}", given.shape[dim]
            if isinstance(expected, Size):
                self._compare_symbol(where, expected, size, values)
            elif size != expected:
                raise ValueError(f"{where}: expected {expected}, got {size}")

    def _compare_symbol(
        self, where: str, expected: Size, size: int, values: dict[str, int]
    ) -> None:
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


def _take(structure: Any, value: Any, given: list[Any], where: str) -> None:
    """Put the leaves of an argument to their positions."""
    if isinstance(structure, int):
        given[structure] = value
    elif isinstance(structure, dict):
        if not isinstance(value, Mapping) or set(value) != set(structure):
            keys = ", ".join(map(repr, structure))
            raise TypeError(f"input {where}: expected a dictionary of {keys}")
        for key, own in structure.items():
            _take(own, value[key], given, f"{where}[{key!r}]")
    else:
        if not isinstance(value, type(structure)) or len(value) != len(structure):
            kind = type(structure).__name__
            raise TypeError(f"input {where}: expected a {kind} of {len(structure)}")
        for at, (own, part) in enumerate(zip(structure, value, strict=True)):
            _take(own, part, given, f"{where}[{at}]")


__all__ = ["InputCheck", "Leaf"]
