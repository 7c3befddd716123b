"""Arguments of the nodes of a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from corsac.pt2._archive import Pt2ImportError
from corsac.pt2._weights import DTYPES

_MEMORY_FORMATS = {
    1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d, 4: torch.preserve_format,
}  # fmt: skip
_LAYOUTS = {7: torch.strided}
_NUMBERS = {"Infinity": float("inf"), "-Infinity": -float("inf"), "NaN": float("nan")}
_PLAIN: dict[str, type] = {"int": int, "bool": bool, "string": str}
#: Kinds of lists, by the kind of their items.
_LISTS = {
    "tensors": "tensor",
    "optional_tensors": "optional_tensor",
    "nested_tensors": "tensors",
    "sym_ints": "sym_int",
    "sym_floats": "sym_float",
    "sym_bools": "sym_bool",
    "floats": "float",
    "ints": "int",
    "bools": "bool",
    "strings": "string",
    "int_lists": "ints",
}
#: The fields of unions for values that are known when the program runs, and for those that are known before.
_SYMBOLS = ("as_name", "as_int", "as_float", "as_bool")


def choice(value: Any) -> tuple[str, Any]:
    """The kind and the value of a union."""
    if not isinstance(value, dict):
        raise Pt2ImportError(f"{value!r:.100} is no argument")
    found = [(key, own) for key, own in value.items() if own is not None]
    if len(found) != 1:
        raise Pt2ImportError(f"{value!r:.100} is no argument")
    return found[0]


class Arguments:
    """Makes arguments of nodes.

    Args:
        named: the node with a name.
    """

    def __init__(self, named: Callable[[Any], Any]) -> None:
        self._named = named

    def value(self, argument: Any) -> Any:
        """The value of an argument."""
        kind, value = choice(argument)
        return self._of(kind.removeprefix("as_"), value)

    def _of(self, kind: str, value: Any) -> Any:
        if kind == "none":
            return None
        if kind == "tensor":
            return self._named(value["name"])
        if kind in ("sym_int", "sym_float", "sym_bool"):
            return self._symbol(value)
        if kind in _PLAIN:
            return _checked(value, _PLAIN[kind])
        if kind == "float":
            return _number(value)
        if kind == "scalar_type":
            return DTYPES[value]
        if kind == "memory_format":
            return _MEMORY_FORMATS[value]
        if kind == "layout":
            return _LAYOUTS[value]
        if kind == "device":
            # The tensors of the archive are on the processor.
            return torch.device("cpu")
        if kind == "complex":
            return complex(_number(value["real"]), _number(value["imag"]))
        if kind == "optional_tensor":
            return self.value(value)
        if kind not in _LISTS:
            raise Pt2ImportError(f"an argument that is a {kind.replace('_', ' ')}")
        return [self._of(_LISTS[kind], own) for own in value]

    def _symbol(self, value: Any) -> Any:
        kind, own = choice(value)
        if kind == "as_name":
            return self._named(own)
        if kind not in _SYMBOLS:
            raise Pt2ImportError(f"{value!r:.100} is no number")
        return _number(own) if kind == "as_float" else _checked(own, _PLAIN[kind[3:]])


def _checked(value: Any, type_: type) -> Any:
    if type(value) is not type_:
        raise Pt2ImportError(f"{value!r:.100}, expected a {type_.__name__}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, str):
        return _NUMBERS[value]
    if type(value) not in (int, float):
        raise Pt2ImportError(f"{value!r:.100}, expected a number")
    return float(value)


__all__ = ["Arguments", "choice"]
