"""Changes of state that a recorded program brings about again in each call."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from corsac._deferred import DeferredCall
from corsac._result_template import ResultTemplate


def _base(own: Any) -> Any:
    """The class whose methods change a container, and run no code of the program."""
    return next(base for base in _CONTAINERS if isinstance(own, base))


def _replace(own: Any, key: Any, values: list[Any]) -> None:
    base = _base(own)
    base.clear(own)
    base.update(own, values) if base is set else base.extend(own, values)


#: What containers of programs are derived from, if not made by.
_CONTAINERS = (OrderedDict, dict, list, deque, set)
#: What is done to an object, with a key and values.
_EDITS: dict[str, Callable[[Any, Any, list[Any]], None]] = {
    "set": lambda own, key, values: _base(own).__setitem__(own, key, values[0]),
    "delete": lambda own, key, values: _base(own).__delitem__(own, key),
    "replace": _replace,
    "append": lambda own, key, values: _base(own).extend(own, values),
    "fill": lambda own, key, values: setattr(own, "cell_contents", values[0]),
    "attribute": lambda own, key, values: object.__setattr__(own, key, values[0]),
}


#: A change: an object, what is done to it, a key, and values.
Edit = tuple[Any, str, Any, list[Any]]


def found_now(edit: Edit) -> tuple[list[Any], list[Any]]:
    """The values of a change, and what is there if somebody has made it."""
    own, kind, key, values = edit
    if kind == "set":
        return values, [_base(own).__getitem__(own, key)] if _base(own).__contains__(
            own, key
        ) else []
    if kind == "delete":
        return [False], [_base(own).__contains__(own, key)]
    if kind == "fill":
        return values, [own.cell_contents]
    if kind == "attribute":
        return values, [getattr(own, key)]
    if isinstance(own, set):
        return [set(values)], [set(own)]
    elements = list(own)
    return values, elements if kind == "replace" else elements[len(elements) - len(values) :]


class Replay:
    """What a program returns, and the changes that it makes to objects that were there before.

    Args:
        template: builds a tuple of what the program returns and the values that it puts into objects.
        sources: where the tensors of the template come from: results of the graph, in their order, by None; inputs by
            their numbers; tensors that are the same in each call.
        edits: the number of an object, what is done to it, a key, and how many values that takes.
        calls: functions that are called after that, and how many arguments each takes.
    """

    def __init__(
        self,
        template: ResultTemplate,
        sources: Sequence[int | torch.Tensor | None],
        edits: Sequence[tuple[int, str, Any, int]],
        calls: Sequence[tuple[DeferredCall, int]] = (),
    ) -> None:
        self._template, self._sources, self._edits = template, sources, edits
        self._calls = calls

    def __len__(self) -> int:
        return len(self._edits) + len(self._calls)

    def effects(self) -> list[str]:
        """The changes, as text."""
        edits = [kind if key is None else f"{kind} {key!r}" for _, kind, key, _ in self._edits]
        return [*edits, *(call.line for call, _ in self._calls)]

    def __call__(
        self,
        results: Sequence[Any],
        inputs: Sequence[torch.Tensor],
        objects: Sequence[Any],
        values: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        """Makes the changes to ``objects``.

        Args:
            results: what the graph gives.
            inputs: what it was given.
            objects: the objects by their numbers.
            values: those that nodes have read.

        Returns:
            What the program returns.
        """
        returned, edits, left = self._outcome(results, inputs, objects, values)
        for own, kind, key, values_of_edit in edits:
            _EDITS[kind](own, key, values_of_edit)
        for call, count in self._calls:
            call(left[:count])
            del left[:count]
        return returned

    def outcome(
        self,
        results: Sequence[Any],
        inputs: Sequence[torch.Tensor],
        objects: Sequence[Any],
        values: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[Any, list[Edit]]:
        """What the program returns, and the changes, which are not made. As for calls."""
        returned, edits, _ = self._outcome(results, inputs, objects, values)
        return returned, edits

    def _outcome(
        self,
        results: Sequence[Any],
        inputs: Sequence[torch.Tensor],
        objects: Sequence[Any],
        values: Mapping[str, Any],
    ) -> tuple[Any, list[Edit], list[Any]]:
        """The same, and the arguments of calls."""
        computed = iter(results)
        tensors = [
            next(computed) if own is None else inputs[own] if isinstance(own, int) else own
            for own in self._sources
        ]
        returned, *left = self._template.build(tensors, objects, values)
        edits = []
        for number, kind, key, count in self._edits:
            edits.append((objects[number], kind, key, left[:count]))
            del left[:count]
        return returned, edits, left


__all__ = ["Replay"]
