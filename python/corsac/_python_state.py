"""What a program may change besides tensors: attributes of modules and of objects, lists, dictionaries."""

from __future__ import annotations

import logging
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, Self

import torch

#: How far from a module, or from a function, objects are looked at.
_DEPTH = 3
_MISSING = object()
#: What notes of one call may be, that the next one finds.
_CONSTANTS = frozenset([type(None), bool, int, float, str])
#: What has more entries is data.
_LARGE = 500
#: What cannot change.
IMMUTABLE = type(None) | bool | int | float | complex | str | bytes | torch.dtype | torch.device
#: What cannot change, or is not the program's.
_LEAVES = IMMUTABLE | type | types.ModuleType | torch.Tensor | types.BuiltinFunctionType

#: Most of what is met, and a leaf.
_PLAIN = frozenset([type(None), bool, int, float, str, torch.Tensor, torch.nn.Parameter])


class PythonState:
    """Attributes and contents as they were, of what a model or a function can reach in a few steps."""

    def __init__(self) -> None:
        #: Each container with a copy of it, and what it is.
        self._seen: dict[int, tuple[Any, Any, str]] = {}

    @classmethod
    def of(cls, model: torch.nn.Module, program: Callable[..., Any]) -> Self:
        """The state of a model and of the program, which is the model or a function."""
        state = cls()
        for name, module in model.named_modules():
            state._add(module.__dict__, name or "the model", _DEPTH)
        for cls in dict.fromkeys(map(type, model.modules())):
            if not cls.__module__.startswith("torch.nn."):
                state._add_function(cls.__dict__.get("forward"))
        if isinstance(program, torch.nn.Module):
            return state
        if isinstance(program, types.FunctionType | types.MethodType):
            state._add_function(program)
        state._add(getattr(program, "__self__", program), "the program", _DEPTH)
        return state

    def _add_function(self, function: Any, inner: bool = True) -> None:
        """Adds what a function reads and, with ``inner``, what those beside it read that it may call."""
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        function = getattr(function, "__func__", function)
        if not isinstance(function, types.FunctionType):
            return
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            self._cells(cell, value)
        place = function.__globals__
        read = {name: place[name] for name in function.__code__.co_names if name in place}
        self._globals(place, read)
        for value in (*read.values(), *(function.__defaults__ or ())):
            self._add(value, "a variable", _DEPTH - 1)
            if inner and getattr(value, "__module__", None) == function.__module__:
                self._add_function(value, inner=False)
        self._add(function.__kwdefaults__, "a default", _DEPTH - 1)

    def _cells(self, cell: Any, value: Any) -> None:
        self._seen[id(cell)] = (cell, value, "a variable")
        self._add(value, "a variable", _DEPTH - 1)

    def _globals(self, place: dict[str, Any], read: dict[str, Any]) -> None:
        known = self._seen.setdefault(id(place), (_Variables(place), {}, "a variable"))
        known[1].update(read)

    def _add(self, value: Any, name: str, depth: int) -> None:
        if isinstance(value, _LEAVES) or depth < 0 or id(value) in self._seen:
            return
        kind = type(value)
        # Other kinds may give something else for what they hold, each time.
        if kind in (dict, OrderedDict, defaultdict):
            self._seen[id(value)] = (value, dict(value), name)
            if len(value) > _LARGE:
                return
            for key, own in list(value.items()):
                if type(own) not in _PLAIN:
                    self._add(own, f"{name}.{key}", depth - 1)
        elif kind is list and len(value) <= _LARGE:
            self._seen[id(value)] = (value, list(value), name)
            for own in list(value):
                self._add(own, name, depth - 1)
        elif kind is set:
            self._seen[id(value)] = (value, set(value), name)
        elif isinstance(value, tuple) and len(value) <= _LARGE:
            for own in value:
                self._add(own, name, depth - 1)
        elif not isinstance(value, types.FunctionType | types.MethodType | logging.Logger):
            # Loggers remember what they are asked.
            attributes = getattr(value, "__dict__", None)
            if type(attributes) is dict:
                self._add(attributes, name, depth)

    def knows(self, value: Any) -> bool:
        """Whether an object was there before the program ran."""
        attributes = getattr(value, "__dict__", None)
        return id(value) in self._seen or (
            type(attributes) is dict and id(attributes) in self._seen
        )

    def change(self) -> str | None:
        """What is not as it was, or None."""
        for container, before, name in self._seen.values():
            if _is_changed(container, before):
                return name
        return None

    def is_set_to_constants(self) -> bool:
        """Whether all that has changed are attributes, and entries of dictionaries, that are constants now."""
        for container, before, _ in self._seen.values():
            if not _is_changed(container, before):
                continue
            if not isinstance(container, dict) or not container.keys() >= before.keys():
                return False
            new = (own for key, own in container.items() if before.get(key, _MISSING) is not own)
            if not all(type(own) in _CONSTANTS for own in new):
                return False
        return True

    def restore(self) -> None:
        """Put everything back."""
        for container, before, _ in self._seen.values():
            if not _is_changed(container, before):
                continue
            if isinstance(container, types.CellType):
                container.cell_contents = before
            elif isinstance(container, _Variables):
                container.place.update(before)
            elif isinstance(container, list):
                container[:] = before
            else:
                container.clear()
                container.update(before)


class _Variables:
    """Variables of a module that a function reads or writes."""

    def __init__(self, place: dict[str, Any]) -> None:
        self.place = place


def _is_changed(container: Any, before: Any) -> bool:
    if isinstance(container, types.CellType):
        return _content(container) is not before
    if isinstance(container, _Variables):
        place = container.place
        return any(place.get(name, _MISSING) is not own for name, own in before.items())
    if len(container) != len(before):
        return True
    if isinstance(container, dict):
        return any(container.get(key, _MISSING) is not own for key, own in before.items())
    if isinstance(container, list):
        return any(one is not other for one, other in zip(container, before, strict=True))
    return bool(container != before)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


__all__ = ["PythonState"]
