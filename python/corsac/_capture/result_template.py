"""Templates of the results of captured programs: containers and objects to be filled with tensors."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.utils._pytree import SUPPORTED_NODES, TreeSpec, _get_node_type, tree_flatten

from corsac._capture.numbers import Expression, evaluated
from corsac._capture.refusal import UnknownObject
from corsac._models.example_inputs import CONSTANTS
from corsac._pytorch.aten import has_attributes
from corsac.fx import Node

#: Types returned as they are, besides objects that the model or the program already has.
_CONSTANTS = (*CONSTANTS, bytes, torch.layout)
_SHARED = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
#: Key of the values that were read, among objects by id: no object has this id.
_VALUES = -1
#: Types of constants that graphs return beside tensors.
RETURNED = (types.NoneType, bool, int, float, str)
#: Largest depth of containers that graphs return.
_DEEPEST = 50
#: Makes a value from the tensors of a call, and from the objects made already, by id.
_Maker = Callable[[Sequence[torch.Tensor], dict[int, Any]], Any]


def is_plain(
    returned: Any,
    depth: int = 0,
    *,
    kind: type[Any] = torch.Tensor,
    constants: tuple[type[Any], ...] = (),
) -> bool:
    """Whether a graph can return this: tensors, or in their place values of ``kind``, and values of the types
    ``constants``, alone or in Python's own containers, which are not nested deeply."""
    if depth > _DEEPEST:
        return False
    if type(returned) is dict and any(type(key) is not str for key in returned):
        return False
    if type(returned) in (tuple, list, dict):
        parts = returned.values() if type(returned) is dict else returned
        return all(is_plain(own, depth + 1, kind=kind, constants=constants) for own in parts)
    return isinstance(returned, kind) or type(returned) in constants


def returned_by_graph(returned: Any, nodes: Sequence[Node]) -> Any:
    """What a graph returns for a program that returns this, with nodes in the place of tensors: the nodes alone, if it
    is of classes that graphs do not return."""
    return returned if is_plain(returned, kind=Node, constants=RETURNED) else tuple(nodes)


def is_key(key: Any, is_known: Callable[[Any], bool]) -> bool:
    """Whether a key of a dictionary is the same in each call."""
    if type(key) is tuple or type(key) is torch.Size:
        return all(is_key(own, is_known) for own in key)
    if isinstance(key, torch.Tensor):
        return False
    return isinstance(key, _CONSTANTS) or is_known(key)


def flat_results(output: Node) -> tuple[list[Any], TreeSpec]:
    """The values that a graph returns, and the structure of their containers: Python's own ones in the place of the
    immutable ones of nodes."""
    return tree_flatten(_ordinary(output.args[0]))


def _ordinary(value: Any) -> Any:
    """Convert containers of nodes to Python's own."""
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(map(_ordinary, value))
    if isinstance(value, dict):
        return {key: _ordinary(own) for key, own in value.items()}
    return value


class ResultTemplate:
    """Builds the result of a captured program, with the tensors of another call.

    Containers and objects are made anew in each call. Objects may be of any class that is written in
    Python and has its attributes in a ``__dict__``, such as the caches of Hugging Face.

    Args:
        returned: the value that the program returned when it was captured.
        is_known: whether an object existed before the program ran: it is shared by all results.
        numbers: indices of existing objects that differ between calls, by id.
        number: returns the expression of a number that depends on values; None for constants.

    Attributes:
        tensors: the tensors in ``returned``, in the order in which :meth:`build` takes them.
    """

    def __init__(
        self,
        returned: Any,
        is_known: Callable[[Any], bool],
        numbers: Mapping[int, int] = MappingProxyType({}),
        number: Callable[[Any], Expression] | None = None,
    ) -> None:
        self.tensors: list[torch.Tensor] = []
        self._is_known, self._numbers, self._number = is_known, numbers, number
        #: Those of ``numbers`` that occur in the result.
        self._given: dict[int, int] = {}
        self._places: dict[int, int] = {}
        #: Keeps values alive: otherwise containers made meanwhile could get the same id.
        self._held: list[Any] = []
        self._active: set[int] = set()
        self._makers: dict[int, _Maker] = {}
        #: Number of tensors met, with repetitions.
        self._met = 0
        self._make = self._maker(returned)
        # Values of the captured run are not kept alive.
        del self._is_known, self._held, self._active, self._makers, self._met
        del self._numbers, self._places, self._number

    def build(
        self,
        tensors: Sequence[torch.Tensor],
        objects: Sequence[Any] = (),
        values: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        """Build the result from computed ``tensors``, ``objects`` by index, and ``values`` that nodes have read, by the
        names of the nodes."""
        made = {key: objects[number] for key, number in self._given.items()}
        made[_VALUES] = values
        return self._make(tensors, made)

    def _maker(self, value: Any) -> _Maker:
        if isinstance(value, torch.Tensor):
            if has_attributes(value):
                raise UnknownObject("it returns a tensor with attributes")
            self._met += 1
            number = self._places.setdefault(id(value), len(self.tensors))
            if number == len(self.tensors):
                self.tensors.append(value)
            return lambda tensors, made: tensors[number]
        if isinstance(value, types.FunctionType) and not self._is_known(value):
            raise UnknownObject("it returns a function that it has made")
        if isinstance(value, (*_CONSTANTS, *_SHARED)):
            expression = None
            if self._number is not None and (type(value) is int or type(value) is float):
                expression = self._number(value)
            if expression is not None:
                return lambda tensors, made: evaluated(expression, made[_VALUES])
            return lambda tensors, made: value
        key = id(value)
        if key in self._makers:
            return self._makers[key]
        if key in self._active:
            raise UnknownObject(f"it returns a {type(value).__name__} that has itself in it")
        self._held.append(value)
        self._active.add(key)
        try:
            make = self._container(value)
        finally:
            self._active.discard(key)

        def once(tensors: Sequence[torch.Tensor], made: dict[int, Any]) -> Any:
            if key not in made:
                made[key] = make(tensors, made)
            return made[key]

        self._makers[key] = once
        return once

    def _container(self, value: Any) -> _Maker:
        cls = type(value)
        key = id(value)
        if key in self._numbers:
            self._given[key] = self._numbers[key]
            # The object itself is not kept.
            return lambda tensors, made: made[key]
        if self._is_known(value):
            return lambda tensors, made: value
        if cls is torch.Size:
            # A pytree would make a tuple of it.
            sizes = [self._maker(part) for part in value]
            return lambda tensors, made: torch.Size([own(tensors, made) for own in sizes])
        registered = SUPPORTED_NODES.get(_get_node_type(value))
        if isinstance(value, dict):
            for own in value:
                if id(own) in self._numbers or not is_key(own, self._is_known):
                    raise UnknownObject(
                        f"it returns a dictionary with a {type(own).__name__} as a key"
                    )
        if registered is not None:
            parts, context = registered.flatten_fn(value)
            makers = [self._maker(part) for part in parts]
            unflatten = registered.unflatten_fn
            return lambda tensors, made: unflatten([own(tensors, made) for own in makers], context)
        if cls is set or cls is frozenset:
            if not all(isinstance(own, _CONSTANTS) for own in value):
                raise UnknownObject(f"it returns a {cls.__name__} of objects")
            kept = tuple(value)
            if self._number is not None and any(self._number(own) is not None for own in kept):
                raise UnknownObject(f"it returns a {cls.__name__} of numbers that depend on values")
            return lambda tensors, made: cls(kept)
        attributes = getattr(value, "__dict__", None)
        if isinstance(value, Iterator) or type(attributes) is not dict or not _is_plain(cls):
            raise UnknownObject(f"it returns a {cls.__name__}")
        count = self._met
        named = {name: self._maker(own) for name, own in attributes.items()}
        if self._met == count:
            # It may exist elsewhere, too.
            raise UnknownObject(f"it returns a {cls.__name__} without tensors")

        def make(tensors: Sequence[torch.Tensor], made: dict[int, Any]) -> Any:
            new = object.__new__(cls)
            new.__dict__.update({name: own(tensors, made) for name, own in named.items()})
            return new

        return make


def _is_plain(cls: type) -> bool:
    """Whether objects of a class are fully determined by their ``__dict__``."""
    return (
        cls.__new__ is object.__new__
        and not hasattr(cls, "__del__")
        and not issubclass(cls, torch.nn.Module)
        and all(
            base is object or (base.__flags__ & (1 << 9) and not base.__dict__.get("__slots__"))
            for base in cls.__mro__
        )
    )


__all__ = ["RETURNED", "ResultTemplate", "flat_results", "is_key", "is_plain", "returned_by_graph"]
