"""Replay of the changes of state of a recorded program in each call."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import torch

from corsac._capture.deferred import DeferredCall
from corsac._capture.result_template import ResultTemplate, returned_by_graph
from corsac.fx import Node
from corsac.fx.proxy import TraceError


def _base(own: Any) -> Any:
    """The built-in class of a container, whose methods run no code of the program."""
    return next(base for base in _CONTAINERS if isinstance(own, base))


def _replace(own: Any, key: Any, values: list[Any]) -> None:
    base = _base(own)
    base.clear(own)
    base.update(own, values) if base is set else base.extend(own, values)


#: Built-in classes of containers, or their base classes.
_CONTAINERS = (OrderedDict, dict, list, deque, set)
#: Functions that make a change of each kind to an object, with a key and values.
_EDITS: dict[str, Callable[[Any, Any, list[Any]], None]] = {
    "set": lambda own, key, values: _base(own).__setitem__(own, key, values[0]),
    "delete": lambda own, key, values: _base(own).__delitem__(own, key),
    "replace": _replace,
    "append": lambda own, key, values: _base(own).extend(own, values),
    "fill": lambda own, key, values: setattr(own, "cell_contents", values[0]),
    "attribute": lambda own, key, values: object.__setattr__(own, key, values[0]),
}


#: A change: an object, the kind of change, a key, and values.
Edit = tuple[Any, str, Any, list[Any]]


def found_now(edit: Edit) -> tuple[list[Any], list[Any]]:
    """The values of a change, and the present values in its place, which are equal if it has been made."""
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
    """Builds the return value of a program, and repeats its changes of existing objects.

    Args:
        template: builds a tuple of the return value and of the values to put into objects.
        sources: origin of each tensor of the template: None for the next result of the graph, the index of an input,
            or a tensor that is the same in each call.
        edits: changes: the index of an object, the kind of change, a key, and the number of values.
        calls: functions to call after that, with the number of arguments of each.
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

    def changes(self) -> list[str]:
        """The changes of objects, as text."""
        return [kind if key is None else f"{kind} {key!r}" for _, kind, key, _ in self._edits]

    def effects(self) -> list[str]:
        """The changes, and the calls after them, which print, log or warn."""
        return [*self.changes(), *(call.line for call, _ in self._calls)]

    def __call__(
        self,
        results: Sequence[Any],
        inputs: Sequence[torch.Tensor],
        objects: Sequence[Any],
        values: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        """Make the changes to ``objects``.

        Args:
            results: the results of the graph.
            inputs: its inputs.
            objects: the objects, by index.
            values: the values that nodes have read, by name of the node.

        Returns:
            The return value of the program.
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
        """The return value of the program, and the changes, which are not made. Arguments as for :meth:`__call__`."""
        returned, edits, _ = self._outcome(results, inputs, objects, values)
        return returned, edits

    def structure(self, results: Sequence[Node], inputs: Sequence[Node]) -> Any:
        """What a graph returns that gives the program's return value: nodes and constants in its containers, or if it
        is of other classes, a tuple of the nodes of its tensors.

        Raises:
            TraceError: a tensor is returned that is the same in each call.
        """
        if any(isinstance(own, torch.Tensor) for own in self._sources):
            raise TraceError("the model returns a tensor that it does not compute")
        returned, _, _ = self._outcome(results, cast(Any, inputs), (), {})
        return returned_by_graph(returned, self._tensors(results, inputs))

    def _tensors(self, results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """The tensors of the return value and of the effects, in order."""
        computed = iter(results)
        return [
            next(computed) if own is None else inputs[own] if isinstance(own, int) else own
            for own in self._sources
        ]

    def _outcome(
        self,
        results: Sequence[Any],
        inputs: Sequence[torch.Tensor],
        objects: Sequence[Any],
        values: Mapping[str, Any],
    ) -> tuple[Any, list[Edit], list[Any]]:
        """As :meth:`outcome`, with the arguments of deferred calls."""
        tensors = self._tensors(results, inputs)
        returned, *left = self._template.build(tensors, objects, values)
        edits = []
        for number, kind, key, count in self._edits:
            edits.append((objects[number], kind, key, left[:count]))
            del left[:count]
        return returned, edits, left


__all__ = ["Replay"]
