"""Calls of programs: their arguments, and the keys of these."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch

from corsac import _core
from corsac._capture.record import Recorded
from corsac._capture.sizes import as_size
from corsac._capture.stages import Changes, Ran
from corsac._models.example_inputs import CONSTANTS
from corsac._pytorch.aten import key_of_tensor

#: Types of arguments besides tensors that programs are specialised to by value. As keys, 0.0 and -0.0 are the same.
_CONSTANTS = frozenset(CONSTANTS) - {float, complex}
#: Reason why there are no programs for some calls.
NO_CALL = "an argument is an iterator, a set or a large container"
#: Integers from this one on are constants.
LARGEST = 2**31
#: Tag of integers in keys, in which they are represented as sizes.
_NUMBER = "number"
#: Containers, which may be new in each call.
CONTAINERS = (dict, list, tuple)
#: Largest total number of elements of containers among the arguments.
ELEMENTS = 1000
#: Classes of objects that are usually the same in many calls.
_FIXED = (torch.nn.Module, type, types.FunctionType, types.MethodType, types.ModuleType)


#: State found by guards: key of programs, tensors, objects, and numbers by name.
_Found = tuple[Any, tuple[torch.Tensor, ...], Sequence[Any], Mapping[str, float]]


@dataclass(slots=True)
class Call:
    """The arguments of a call.

    Attributes:
        tensors: the tensors, each once.
        key: types and sizes of tensors, whether they have attributes, and the other arguments.
        objects: arguments that are neither tensors nor constants: programs are specialised to these objects.
        structures: containers, and objects made anew for each call: programs are specialised to their contents.
        integers: the non-negative integers, with their position or name.
        inputs: the tensors that a program takes: also those found in containers and in state, and those whose values
            differ between calls.
        met: the containers and objects in which they are found, by index.
        numbers: the numbers found in state that may vary, by name.
        found: the state found by guards, by id of the guards.
        ran: results of stages that have run in this call.
        changes: the state that they may have changed.
    """

    tensors: tuple[torch.Tensor, ...]
    key: Any
    objects: tuple[Any, ...] = ()
    structures: tuple[Any, ...] = ()
    integers: tuple[tuple[int | str, int], ...] = ()
    inputs: tuple[torch.Tensor, ...] = ()
    met: Sequence[Any] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    found: dict[int, _Found | None] = field(default_factory=dict)
    ran: Ran = field(default_factory=dict)
    changes: Changes | None = None

    def rewind(self) -> None:
        """Undo the changes of stages, so that the call can begin again."""
        if self.changes is not None:
            self.changes.rewind()
            self.changes = None
            self.ran.clear()

    def given(self, integers: Sequence[int]) -> tuple[torch.Tensor, ...]:
        """The inputs among the arguments: tensors, and the integers of these indices, as sizes of empty tensors."""
        if not integers:
            return self.tensors
        return (*self.tensors, *(as_size(self.integers[own][1]) for own in integers))

    def forget(self) -> None:
        """Forget the found state and computed results, which may have changed."""
        self.found.clear()
        self.ran.clear()
        self.changes = None

    def state(self, guards: _core.Guards) -> _Found | None:
        """The state that guards find in containers and in Python, looked up once per call; None if it is missing."""
        if id(guards) not in self.found:
            found = guards.find(list(self.structures))
            self.found[id(guards)] = (
                None if found is None else (*state_key(self, found[0]), *found[1:])
            )
        return self.found[id(guards)]

    @classmethod
    def of(
        cls,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        is_new: Callable[[Any], bool] = lambda own: False,
        structures: bool = False,
    ) -> Self | None:
        """The call with these arguments.

        Args:
            args, kwargs: the arguments.
            is_new: whether an object differs from those of its class in earlier calls.
            structures: whether programs may be specialised to the contents of containers and new objects.

        Returns:
            The call; None if an argument is an iterator, a set, a large container, or needs ``structures``.
        """
        tensors: dict[int, torch.Tensor] = {}
        key: list[Any] = []
        objects, held, integers = [], [], []
        for place, own in (*enumerate(args), *kwargs.items()):
            if type(own) is int and 0 <= own < LARGEST:
                integers.append((place, own))
                key.append((_NUMBER, torch.Size([own])))
            elif isinstance(own, torch.Tensor):
                if id(own) in tensors:
                    # Programs may check whether two arguments are the same object.
                    key.append(("the same as", list(tensors).index(id(own))))
                else:
                    tensors[id(own)] = own
                    key.append(key_of_tensor(own))
            elif (part := _key_of_constant(own)) is not None:
                key.append(part)
            elif isinstance(own, CONTAINERS):
                part = _key_of_container(own) if structures else None
                if part is None:
                    return None
                key.append(part)
                held.append(own)
            elif isinstance(own, set | frozenset) or hasattr(own, "__next__"):
                return None
            elif isinstance(own, _FIXED) or not is_new(own):
                objects.append(own)
                key.append(("object", id(own)))
            elif structures:
                held.append(own)
                key.append(("object", type(own)))
            else:
                return None
        return cls(
            tuple(tensors.values()),
            (tuple(kwargs), tuple(key)),
            tuple(objects),
            tuple(held),
            tuple(integers),
            tuple(tensors.values()),
        )

    def describe(self) -> str:
        """Sizes and constants, as text."""
        names, own = self.key
        first = len(own) - len(names)
        texts = [_described(*parts) for parts in own]
        named = [f"{name}={text}" for name, text in zip(names, texts[first:], strict=True)]
        return ", ".join([*texts[:first], *named])


def _key_of_constant(own: Any) -> tuple[Any, ...] | None:
    """Key of a constant argument; None if it is not a constant."""
    kind = type(own)
    if kind is float:
        # As text, since 0.0 and -0.0 differ.
        return float, own.hex()
    return (kind, own) if kind in _CONSTANTS else None


def _key_of_container(container: Any) -> Any:
    """Key of a container: the types of its contents, on which every program depends; None if it is too large."""
    left = ELEMENTS

    def key(own: Any) -> Any:
        nonlocal left
        if isinstance(own, torch.Tensor):
            return key_of_tensor(own)
        if (known := _key_of_constant(own)) is not None:
            return known
        if not isinstance(own, CONTAINERS):
            return "object", type(own)
        left -= len(own)
        if left < 0:
            raise OverflowError
        if isinstance(own, dict):
            names = tuple(name if type(name) is str else type(name) for name in own)
            return type(own), names, tuple(map(key, own.values()))
        return type(own), tuple(map(key, own))

    try:
        return key(container)
    except (OverflowError, RecursionError):
        return None


def state_key(call: Call, tensors: Sequence[torch.Tensor]) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """Key of the tensors that a program finds in containers and in state; and those of them that are not arguments,
    each once."""
    known = {id(own): number for number, own in enumerate(call.tensors)}
    found: list[torch.Tensor] = []
    key: list[Any] = []
    for own in tensors:
        if id(own) in known:
            key.append(known[id(own)])
        else:
            known[id(own)] = len(known)
            found.append(own)
            key.append((*key_of_tensor(own), own.layout, own.device))
    return tuple(key), tuple(found)


def places_of(state: Any, first: int) -> list[int]:
    """The indices among the inputs of the tensors in a key of :func:`state_key`; the first ``first`` inputs are
    arguments."""
    places = []
    for own in state:
        if type(own) is int:
            places.append(own)
        else:
            places.append(first)
            first += 1
    return places


def state_of(
    call: Call, recorded: Recorded, why_not: Callable[[str, torch.Tensor], str | None]
) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """:func:`state_key` for the state that a program was recorded with; None and no tensors if it has none.

    Raises:
        CompileError: a tensor in state cannot be an input, for the reason returned by ``why_not``.
    """
    if recorded.state is None:
        return None, ()
    key, found = state_key(call, recorded.state)
    for own in found:
        if (reason := why_not("a tensor in its state", own)) is not None:
            raise _core.CompileError(reason)
    return key, found


def sizeless(key: Any) -> Any:
    """A key with sizes replaced by ranks."""
    if isinstance(key, torch.Size):
        return len(key)
    return tuple(map(sizeless, key)) if type(key) is tuple else key


def _described(kind: Any, value: Any, *_: Any) -> str:
    if kind == _NUMBER:
        return str(*value)
    if isinstance(kind, torch.dtype):
        return str(list(value))
    if kind == "object":
        return "an object"
    if isinstance(kind, type) and issubclass(kind, CONTAINERS):
        return f"a {kind.__name__}"
    return f"{kind} {value}" if isinstance(kind, str) else str(value)


__all__ = ["CONTAINERS", "NO_CALL", "Call", "places_of", "sizeless", "state_of"]
