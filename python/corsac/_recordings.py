"""What was recorded of a program, by the types and sizes of calls and the situations that they were made in."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import torch

from corsac import _core
from corsac._recorder import Kind, Recorded, Refusal, form_of, record

#: For how many sets of sizes there are programs.
SIZES = 16
#: How many programs there are for one of them, in situations that come and go.
SITUATIONS = 4
#: How often a program is recorded in vain: much is noted, or made, once.
ATTEMPTS = {Kind.DYNAMO: 3, Kind.HOST: 2, Kind.TRAINS: 1}
#: How often programs may be made anew that nothing came of: state that changes from call to call.
IN_VAIN = 8
#: How many sets of sizes are remembered that were met once.
MET = 256
#: What may be given besides tensors: a program is for these values.
_CONSTANTS = (type(None), bool, int, str, torch.dtype, torch.device)
#: Containers, of which each call may make a new one.
_CONTAINERS = (dict, list, tuple, set, frozenset)


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a call.

    Attributes:
        tensors: those that are tensors, each once.
        key: types and sizes of tensors, whether they have attributes, and what the others are.
        objects: those that are neither tensors nor constants: a program is for these objects.
        kinds: the key with the classes of objects in their places; None if there are none.
    """

    tensors: tuple[torch.Tensor, ...]
    key: Any
    objects: tuple[Any, ...] = ()
    kinds: Any = None

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Self | None:
        """The call with these arguments; None if one is a container."""
        tensors: dict[int, torch.Tensor] = {}
        key: list[Any] = []
        objects = []
        for own in (*args, *kwargs.values()):
            kind = type(own)
            if isinstance(own, torch.Tensor):
                if id(own) in tensors:
                    # Programs may ask whether two of their arguments are one.
                    key.append(("the same as", list(tensors).index(id(own))))
                else:
                    tensors[id(own)] = own
                    # Nested tensors have no sizes.
                    shape = None if own.is_nested else own.shape
                    key.append((own.dtype, shape, kind, bool(own.__dict__)))
            elif kind is float:
                # Zero has two signs.
                key.append((float, own.hex()))
            elif kind in _CONSTANTS:
                key.append((kind, own))
            elif isinstance(own, _CONTAINERS) or hasattr(own, "__next__"):
                return None
            else:
                objects.append(own)
                key.append(("object", id(own)))
        kinds = None
        if objects:
            classes = iter(objects)
            kinds = [(type(next(classes)),) if own[0] == "object" else own for own in key]
            kinds = (tuple(kwargs), tuple(kinds))
        return cls(tuple(tensors.values()), (tuple(kwargs), tuple(key)), tuple(objects), kinds)

    def describe(self) -> str:
        """Sizes and constants, as text."""
        names, own = self.key
        first = len(own) - len(names)
        texts = [_described(*parts) for parts in own]
        named = [f"{name}={text}" for name, text in zip(names, texts[first:], strict=True)]
        return ", ".join([*texts[:first], *named])


def _described(kind: Any, value: Any, *_: Any) -> str:
    if isinstance(kind, torch.dtype):
        return str(list(value))
    if kind == "object":
        return "an object"
    return f"{kind} {value}" if isinstance(kind, str) else str(value)


class Runnable(Protocol):
    """What runs a program for its tensors."""

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A program and the situation that it is for.

    Attributes:
        call: the arguments that it is for, without tensors.
        run: runs it.
        guards: tell whether Python would do the same again.
        watch: tells whether the tensors are as they were that the program reads besides.
        form: strides and the like of its inputs, if it has asked for them.
    """

    call: Call
    run: Runnable
    guards: _core.Guards
    watch: _core.Watch
    form: Any

    def is_current(self, call: Call, trains: bool) -> bool:
        """Whether it would do now what the program does."""
        if not trains and torch.is_grad_enabled() and self.watch.requires_grad():
            return False
        if self.form is not None and self.form != form_of(call.tensors):
            return False
        return self.guards.hold() and self.watch.is_current()


@dataclass(slots=True)
class _Known:
    """What is known of calls with some types and sizes."""

    entries: list[Entry] = field(default_factory=list)
    refusal: Refusal | None = None
    #: How often it was recorded in vain.
    attempts: int = 0
    #: Whether the program is told that it is compiled.
    compiling: bool = False
    #: How often it was recorded since a program was used.
    in_vain: int = 0


class Recordings:
    """Programs for the calls of a model, recorded in calls that there is none for.

    Args:
        model: has the weights.
        program: is called; the model itself, or a function.
        make: makes what runs a program; it raises what :attr:`failures` are where it cannot.
        forget: is told of entries that are dropped.
        trains: whether autograd goes back through programs.
    """

    #: What says that a program cannot be made.
    failures: tuple[type[Exception], ...] = (Exception,)

    def __init__(
        self,
        model: torch.nn.Module,
        program: Callable[..., Any],
        make: Callable[[Call, Recorded], Entry],
        *,
        forget: Callable[[Entry], None] = lambda entry: None,
        trains: bool = False,
        sizes: int = SIZES,
    ) -> None:
        self._model, self._program = model, program
        self._make, self._dropped = make, forget
        self._trains, self._sizes = trains, sizes
        self._known: OrderedDict[Any, _Known] = OrderedDict()
        #: Sizes that were met once, when there were programs for as many as there may be.
        self._met: OrderedDict[Any, None] = OrderedDict()
        #: What became of calls with objects, whichever these were: caches are made anew for each text.
        self._of_kinds: OrderedDict[Any, _Known] = OrderedDict()
        self._lock = threading.RLock()

    def may_come_back(self, entry: Entry) -> bool:
        """Whether a program that is not used now may be again: not if tensors were written to."""
        return entry.watch.is_current()

    def key(self, call: Call) -> Any:
        """What programs for a call are found by."""
        return call.key

    def find(self, call: Call) -> Entry | Refusal | None:
        """The program for a call, why there is none, or None if it is to be recorded."""
        known = self._known.get(self.key(call))
        if known is None:
            of_kinds = self._of_kinds.get(call.kinds)
            return None if of_kinds is None else of_kinds.refusal
        for entry in known.entries:
            if entry.is_current(call, self._trains):
                known.in_vain = 0
                # Another thread may have dropped it meanwhile.
                with contextlib.suppress(KeyError):
                    self._known.move_to_end(self.key(call))
                if entry is not known.entries[0]:
                    known.entries = [entry, *(own for own in known.entries if own is not entry)]
                return entry
        if known.in_vain > IN_VAIN:
            return Refusal(Kind.HOST, "what it reads changes from call to call")
        return known.refusal

    def used(self, entries: Iterable[Entry]) -> None:
        """These were used, the last one last, by who asks nobody."""
        with self._lock:
            for entry in entries:
                key = self.key(entry.call)
                if key in self._known:
                    self._known.move_to_end(key)

    def look_again(self) -> None:
        """The model is another one: what was not captured may be now."""
        with self._lock:
            self._of_kinds.clear()
            for known in self._known.values():
                known.refusal, known.attempts, known.in_vain = None, 0, 0
                known.compiling = False

    def refuse(self, call: Call, reason: str) -> str:
        """Have calls like this one run by PyTorch: the program for them failed."""
        with self._lock:
            known = self._known.setdefault(self.key(call), _Known())
            for entry in known.entries:
                self._dropped(entry)
            known.entries = []
            known.refusal = Refusal(Kind.HOST, reason)
        return reason

    def entries(self) -> list[Entry]:
        """All programs."""
        return [own for known in list(self._known.values()) for own in list(known.entries)]

    def items(self) -> list[tuple[Any, Refusal]]:
        """Calls that are not captured, by their key, and why."""
        known = list(self._known.items())
        return [(key, own.refusal) for key, own in known if own.refusal is not None]

    def record(
        self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Entry | Refusal | None]:
        """Makes a call, and a program of it.

        Returns:
            What the program returns; what was made, or why nothing was.
        """
        key = self.key(call)
        if self._is_met_first(key):
            return self._program(*args, **kwargs), None
        before = self._known.get(key)
        result, recorded = record(
            self._model,
            self._program,
            args,
            kwargs,
            trains=self._trains,
            compiling=before is not None and before.compiling,
        )
        made = recorded if isinstance(recorded, Refusal) else self._made(call, recorded)
        with self._lock:
            known = self._known.setdefault(key, _Known())
            self._known.move_to_end(key)
            if isinstance(made, Refusal):
                self._refused(known, made)
                if call.kinds is not None:
                    self._refused(self._of_kinds.setdefault(call.kinds, _Known()), made)
                    while len(self._of_kinds) > MET:
                        self._of_kinds.popitem(last=False)
            else:
                same = [own for own in known.entries if own.is_current(call, self._trains)]
                if same:
                    # Another thread has made one meanwhile.
                    return result, same[0]
                known.in_vain += 1
                known.refusal = None
                # Tensors that were written to do not come back; in training they are read anew.
                kept = [own for own in known.entries if self.may_come_back(own)]
                stale = [own for own in known.entries if own not in kept]
                known.entries = [made, *kept[: SITUATIONS - 1]]
                for own in (*stale, *kept[SITUATIONS - 1 :]):
                    self._dropped(own)
            while len(self._known) > self._sizes:
                self._drop_oldest()
        return result, made

    def _refused(self, known: _Known, refusal: Refusal) -> None:
        """Nothing came of a call; of those like it neither if that was not for the first time."""
        known.attempts += 1
        if refusal.by_values and not known.compiling:
            known.compiling = True
        elif not refusal.passes or known.attempts >= ATTEMPTS[refusal.kind]:
            known.refusal = refusal

    def _is_met_first(self, key: Any) -> bool:
        """Whether sizes are new, and there are many: most of them do not come back."""
        with self._lock:
            if key in self._known or len(self._known) < self._sizes:
                return False
            if key in self._met:
                del self._met[key]
                return False
            self._met[key] = None
            while len(self._met) > MET:
                self._met.popitem(last=False)
            return True

    def _drop_oldest(self) -> None:
        _, known = self._known.popitem(last=False)
        for entry in known.entries:
            self._dropped(entry)

    def _made(self, call: Call, recorded: Recorded) -> Entry | Refusal:
        try:
            return self._make(call, recorded)
        except self.failures as error:
            return Refusal(Kind.HOST, f"{type(error).__name__}: {error}")


def record_at_once(
    model: torch.nn.Module, program: Callable[..., Any], args: tuple[Any, ...]
) -> Recorded | Refusal:
    """What a program does with such arguments, from as many calls as that takes: much is noted, or made, once."""
    recorded: Recorded | Refusal | None = None
    for _ in range(ATTEMPTS[Kind.DYNAMO]):
        compiling = isinstance(recorded, Refusal) and recorded.by_values
        _, recorded = record(model, program, args, {}, compiling=compiling)
        if isinstance(recorded, Recorded) or not (recorded.passes or recorded.by_values):
            break
    assert recorded is not None
    return recorded


__all__ = ["ATTEMPTS", "SIZES", "Call", "Entry", "Recordings", "record_at_once"]
