"""Sizes of inputs that are symbols, as ``dynamic_shapes`` of :func:`corsac.save` declares them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

#: Sizes as text: ``batch``, ``2*batch``, ``2*batch + 1``.
_SIZE = re.compile(r"(?:([1-9]\d*)\s*\*\s*)?([^\W\d]\w*)(?:\s*([+-])\s*(\d+))?")
#: Largest values from this on stand for none.
NO_LIMIT = 2**31
#: Names of the hints of ``torch.export.Dim`` for sizes without a name.
_AUTOMATIC = ("AUTO", "DYNAMIC")


@dataclass(frozen=True)
class Size:
    """``factor * symbol + offset``."""

    symbol: str
    factor: int = 1
    offset: int = 0

    @classmethod
    def parse(cls, text: str) -> Size | None:
        """The size that a text describes; None if it describes none."""
        found = _SIZE.fullmatch(text.strip())
        if found is None:
            return None
        offset = int(found[4] or 0) * (-1 if found[3] == "-" else 1)
        return cls(found[2], int(found[1] or 1), offset)

    def at(self, value: int) -> int:
        """The size where the symbol has this value."""
        return self.factor * value + self.offset

    def value_for(self, size: int) -> int | None:
        """The value of the symbol for a size; None if there is none."""
        value, rest = divmod(size - self.offset, self.factor)
        return value if rest == 0 and value >= 0 else None

    def as_dim(self, symbol: Any) -> Any:
        """As ``torch.export`` has it, of the ``Dim`` for the symbol."""
        product = symbol if self.factor == 1 else self.factor * symbol
        return product + self.offset if self.offset else product

    def __str__(self) -> str:
        product = self.symbol if self.factor == 1 else f"{self.factor}*{self.symbol}"
        if self.offset == 0:
            return product
        return f"{product} {'+' if self.offset > 0 else '-'} {abs(self.offset)}"


@dataclass
class DynamicShapes:
    """Symbolic sizes of the inputs of a model.

    Attributes:
        names: the names of the inputs.
        sizes: the symbolic sizes of each input, by dimension.
        ranges: the least and largest values of symbols, None where they are not declared.
    """

    names: Sequence[str]
    sizes: list[dict[int, Size]]
    ranges: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, declared: Any, names: Sequence[str], inputs: Sequence[torch.Tensor]
    ) -> DynamicShapes:
        """Read ``dynamic_shapes``: by name or position of the input, or for each in order; then by dimension, or for each
        in order; then a name, a ``torch.export.Dim``, or None for a fixed size. Inputs of a parameter ``*args`` may be
        in a tuple or list, as for ``torch.export``.

        Raises:
            TypeError, ValueError: it declares something else, or contradicts ``inputs`` or itself.
        """
        made = cls(names, [{} for _ in inputs])
        declared = made._without_nesting(declared)
        for key, own in _items(declared, "dynamic_shapes", len(inputs)):
            number = made._number(key)
            for dim, size in _items(own, f"dynamic_shapes[{key!r}]", inputs[number].dim()):
                made._declare(number, dim, size, inputs[number])
        made.values(inputs)
        return made

    def _without_nesting(self, declared: Any) -> Any:
        """``declared`` with the inputs of ``*args`` one by one."""
        if isinstance(declared, Mapping):
            flat: dict[Any, Any] = {}
            for key, own in declared.items():
                several = [name for name in self.names if name.rpartition("_")[0] == key]
                if key in self.names or not several or not isinstance(own, (tuple, list)):
                    flat[key] = own
                else:
                    flat |= dict(zip(several, _of_each(own, key, several), strict=True))
            return flat
        if not isinstance(declared, (tuple, list)) or not declared:
            return declared
        *first, last = declared
        several = list(self.names[len(first) :])
        is_variadic = (
            bool(several) and several[0].endswith("_0") and isinstance(last, (tuple, list))
        )
        if is_variadic and any(isinstance(own, (Mapping, tuple, list)) for own in last):
            return [*first, *_of_each(last, several[0].rpartition("_")[0], several)]
        return declared

    def _number(self, key: Any) -> int:
        if isinstance(key, str) and key in self.names:
            return list(self.names).index(key)
        if isinstance(key, int) and 0 <= key < len(self.sizes):
            return key
        raise ValueError(
            f"dynamic_shapes: {key!r} is no tensor among the inputs ({', '.join(self.names)})"
        )

    def _declare(self, number: int, dim: Any, declared: Any, example: torch.Tensor) -> None:
        where = f"dynamic_shapes of input {self.names[number]}, dimension {dim}"
        if not isinstance(dim, int) or not -example.dim() <= dim < example.dim():
            raise ValueError(f"{where}: the example has {example.dim()} dimensions")
        dim %= example.dim()
        size, least, most = _size(declared, f"{self.names[number]}_{dim}", where)
        if size is None:
            if isinstance(declared, int) and declared != example.shape[dim]:
                raise ValueError(f"{where}: {declared}, and the example has {example.shape[dim]}")
            return
        known = self.ranges.get(size.symbol, (None, None))
        both = [_same(*own) for own in zip(known, (least, most), strict=True)]
        if False in both:
            raise ValueError(f"{where}: {size.symbol} has another range in another dimension")
        self.ranges[size.symbol] = (
            known[0] if least is None else least,
            known[1] if most is None else most,
        )
        self.sizes[number][dim] = size

    def values(self, inputs: Sequence[torch.Tensor]) -> dict[str, int]:
        """The values of the symbols for these inputs.

        Raises:
            ValueError: a size is out of its range, or contradicts another one.
        """
        values: dict[str, int] = {}
        places: dict[str, str] = {}
        for name, sizes, own in zip(self.names, self.sizes, inputs, strict=True):
            for dim, size in sizes.items():
                where = f"input {name}, dimension {dim}"
                value = size.value_for(own.shape[dim])
                if value is None:
                    raise ValueError(f"{where}: {own.shape[dim]}, which {size} never is")
                least, most = self.ranges[size.symbol]
                if (least is not None and value < least) or (most is not None and value > most):
                    limits = f"{'' if least is None else least}..{'' if most is None else most}"
                    raise ValueError(f"{where}: {size.symbol} is {value}, which is not in {limits}")
                if values.setdefault(size.symbol, value) != value:
                    known = f"{values[size.symbol]} in {places[size.symbol]}"
                    raise ValueError(f"{where}: {size.symbol} is {value} here, and {known}")
                places.setdefault(size.symbol, where)
        return values

    def shapes(self, inputs: Sequence[torch.Tensor], values: Mapping[str, int]) -> list[list[int]]:
        """The shapes of the inputs where the symbols have these values."""
        return [
            [
                sizes[dim].at(values[sizes[dim].symbol]) if dim in sizes else size
                for dim, size in enumerate(own.shape)
            ]
            for own, sizes in zip(inputs, self.sizes, strict=True)
        ]

    def declared_shapes(self, inputs: Sequence[torch.Tensor]) -> list[list[int | str]]:
        """The shapes of the inputs, with symbolic sizes as texts."""
        return [
            [str(sizes[dim]) if dim in sizes else size for dim, size in enumerate(own.shape)]
            for own, sizes in zip(inputs, self.sizes, strict=True)
        ]

    def is_declared(self, name: str) -> bool:
        """Whether the symbol has a declared range, which may be open at one end."""
        return self.ranges[name] != (None, None)

    def dims(self) -> dict[str | int, list[int]]:
        """The symbolic dimensions, by position of the input."""
        return {number: list(sizes) for number, sizes in enumerate(self.sizes) if sizes}

    def for_export(self) -> tuple[Any, ...]:
        """The same for ``torch.export``."""
        dims = {
            name: torch.export.Dim(name, min=least, max=most)
            for name, (least, most) in self.ranges.items()
        }
        return tuple(
            {dim: size.as_dim(dims[size.symbol]) for dim, size in sizes.items()}
            for sizes in self.sizes
        )


def _of_each(declared: Sequence[Any], parameter: str, names: Sequence[str]) -> Sequence[Any]:
    """What is declared for each input of ``*args``.

    Raises:
        ValueError: there are more or fewer inputs.
    """
    if len(declared) != len(names):
        raise ValueError(
            f"dynamic_shapes of *{parameter} has {len(declared)} entries, and there are {len(names)} inputs"
        )
    return declared


def _items(declared: Any, what: str, count: int) -> list[tuple[Any, Any]]:
    """Pairs of a mapping, or of the positions in a sequence."""
    if declared is None:
        return []
    if isinstance(declared, Mapping):
        return list(declared.items())
    if isinstance(declared, (tuple, list)):
        if len(declared) > count:
            raise ValueError(f"{what} has {len(declared)} entries, and there are {count}")
        return list(enumerate(declared))
    raise TypeError(f"{what} is a {type(declared).__name__}, not a dictionary or a sequence")


def _size(declared: Any, automatic: str, where: str) -> tuple[Size | None, int | None, int | None]:
    """The size that is declared for a dimension, with the range of its symbol; None for a fixed one."""
    if declared is None or type(declared) is int:
        return None, None, None
    if isinstance(declared, str):
        size = Size.parse(declared)
        if size is None:
            raise ValueError(f"{where}: {declared!r} is no name, nor a multiple of one")
        return size, None, None
    kind = getattr(getattr(declared, "type", None), "name", None)
    if kind in _AUTOMATIC:
        least, most = getattr(declared, "min", None), getattr(declared, "max", None)
        return Size(automatic), least, most
    if kind == "STATIC":
        return None, None, None
    root = getattr(declared, "root", declared)
    if not isinstance(root, torch.export.Dim):
        raise TypeError(f"{where}: expected a name or a torch.export.Dim, got {declared!r}")
    offset = 0 if root is declared else int(declared.fn(0))
    factor = 1 if root is declared else int(declared.fn(1)) - offset
    if factor < 1 or (root is not declared and int(declared.fn(2)) != 2 * factor + offset):
        raise ValueError(f"{where}: {declared.__name__} is no multiple of {root.__name__}")
    # The least value of a Dim without one is 0.
    least = root.min or None
    most = root.max if isinstance(root.max, int) and root.max < NO_LIMIT else None
    return Size(root.__name__, factor, offset), least, most


def _same(known: int | None, own: int | None) -> bool:
    return known is None or own is None or known == own


__all__ = ["NO_LIMIT", "DynamicShapes", "Size"]
