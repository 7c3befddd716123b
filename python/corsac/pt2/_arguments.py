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
        kind = kind.removeprefix("as_")
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
        return self._list(kind, value)

    def _list(self, kind: str, value: Any) -> list[Any]:
        if kind == "tensors":
            return [self._named(own["name"]) for own in value]
        if kind == "optional_tensors":
            return [self.value(own) for own in value]
        if kind == "nested_tensors":
            return [[self._named(own["name"]) for own in part] for part in value]
        if kind in ("sym_ints", "sym_floats", "sym_bools"):
            return [self._symbol(own) for own in value]
        if kind == "floats":
            return [_number(own) for own in value]
        if kind.removesuffix("s") in _PLAIN and kind.endswith("s"):
            return [_checked(own, _PLAIN[kind.removesuffix("s")]) for own in value]
        if kind == "int_lists":
            return [[_checked(own, int) for own in part] for part in value]
        raise Pt2ImportError(f"an argument that is a {kind.replace('_', ' ')}")

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
