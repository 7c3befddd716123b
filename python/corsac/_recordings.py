"""What was recorded of a program, by the types and sizes of calls and the situations that they were made in."""

from __future__ import annotations

import contextlib
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

import torch

from corsac import _core
from corsac._aten import key_of_tensor
from corsac._guard_text import guards_as_text
from corsac._lines import in_brackets
from corsac._logs import BREAKS, GUARDS, is_on
from corsac._native_graph import CompileError
from corsac._recompilation import Recompilations
from corsac._record import Recorded, form_of, record
from corsac._refusal import Kind, Refusal
from corsac._rewritten import Rewritten, WrittenInTraining
from corsac._sizes import SizeConditions, as_size
from corsac._stages import Changes, Failure, Ran


class NotForThis(Exception):
    """A program is for calls like this one, but not for this one."""


class ForDynamo(Exception):
    """Dynamo does better with a program than who it was recorded for."""


#: For how many sets of sizes there are programs.
SIZES = 16
#: How many programs there are for one of them, in situations that come and go.
SITUATIONS = 4
#: How many more there are that differ in values which decide.
WAYS = 16
#: How often a program is recorded in vain: much is noted, or made, once.
ATTEMPTS = {Kind.DYNAMO: 3, Kind.HOST: 2, Kind.TRAINS: 1}
#: How often programs may be made anew that nothing came of: state that changes from call to call.
IN_VAIN = 8
#: After how many of them tensors are taken anew in each call that others have written to.
REWRITES = 2
#: How many sets of sizes are remembered that were met once.
MET = 256
#: How many programs are made for calls with the same arguments whose state has other sizes: caches grow to as many.
LENGTHS = 256
#: What may be given besides tensors: a program is for these values.
_CONSTANTS = (type(None), bool, int, str, torch.dtype, torch.device)
#: Why there are no programs for some calls.
NO_CALL = "an argument is an iterator, a set or a large container"
#: Integers from here on are constants.
LARGEST = 2**31
#: What integers are called in keys, in which they are sizes.
_NUMBER = "number"
#: Containers, of which each call may make a new one.
_CONTAINERS = (dict, list, tuple)
#: How many elements containers among the arguments may have in all.
ELEMENTS = 1000
#: Objects that are the same ones in many calls.
_FIXED = (torch.nn.Module, type, types.FunctionType, types.MethodType, types.ModuleType)


#: What programs are told apart by, tensors, objects, and numbers by their names.
_Found = tuple[Any, tuple[torch.Tensor, ...], Sequence[Any], Mapping[str, float]]


@dataclass(slots=True)
class Call:
    """The arguments of a call.

    Attributes:
        tensors: those that are tensors, each once.
        key: types and sizes of tensors, whether they have attributes, and what the others are.
        objects: those that are neither tensors nor constants: a program is for these objects.
        structures: containers, and objects that calls make anew: a program is for what they hold.
        integers: those that are integers and not negative: by their numbers, or their names.
        inputs: the tensors that a program takes: also those that it finds in containers and in state, and those that
            hold something else in each call.
        met: the containers and objects in which it finds them, by their numbers.
        numbers: the numbers that it finds in state and that may be any, by their names.
        found: what guards have found, by their identity: what programs are told apart by, tensors, objects, and numbers.
        ran: what stages have given of programs in which values decide.
        changes: what they have changed.
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
        """What stages have changed is put back, so that the call begins anew."""
        if self.changes is not None:
            self.changes.rewind()
            self.changes = None
            self.ran.clear()

    def given(self, integers: Sequence[int]) -> tuple[torch.Tensor, ...]:
        """What programs take of the arguments: tensors, and these of the integers, as sizes of tensors without elements."""
        if not integers:
            return self.tensors
        return (*self.tensors, *(as_size(self.integers[own][1]) for own in integers))

    def forget(self) -> None:
        """What was found, and what was computed, may be another one now."""
        self.found.clear()
        self.ran.clear()
        self.changes = None

    def state(self, guards: _core.Guards) -> _Found | None:
        """What guards find in containers and in state, which is looked at once."""
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
            is_new: whether an object is another one than those of its class in the calls before.
            structures: whether programs may be for what containers and new objects hold.

        Returns:
            The call; None if an argument is an iterator, a set, a large container, or one that only ``structures``
            are for.
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
                    # Programs may ask whether two of their arguments are one.
                    key.append(("the same as", list(tensors).index(id(own))))
                else:
                    tensors[id(own)] = own
                    key.append(key_of_tensor(own))
            elif (part := _key_of_constant(own)) is not None:
                key.append(part)
            elif isinstance(own, _CONTAINERS):
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
    """What a program is for if this is an argument; None if it is no constant."""
    kind = type(own)
    if kind is float:
        # Zero has two signs.
        return float, own.hex()
    return (kind, own) if kind in _CONSTANTS else None


def _key_of_container(container: Any) -> Any:
    """What a container holds, as far as programs for it differ in any case; None if that is much."""
    left = ELEMENTS

    def key(own: Any) -> Any:
        nonlocal left
        if isinstance(own, torch.Tensor):
            return key_of_tensor(own)
        if (known := _key_of_constant(own)) is not None:
            return known
        if not isinstance(own, _CONTAINERS):
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
    """What programs differ in by the tensors that they find in containers and in state, and those among them that
    are no arguments, each once."""
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


def state_of(
    call: Call, recorded: Recorded, why_not: Callable[[str, torch.Tensor], str | None]
) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """As of :func:`state_key`, of what a program was recorded with; None and nothing if it looks at no state.

    Raises:
        CompileError: ``why_not`` says why a tensor there cannot be an input.
    """
    if recorded.state is None:
        return None, ()
    key, found = state_key(call, recorded.state)
    for own in found:
        if (reason := why_not("a tensor in its state", own)) is not None:
            raise CompileError(reason)
    return key, found


def _sizeless(key: Any) -> Any:
    """A key in which sizes are left out, and ranks are not."""
    if isinstance(key, torch.Size):
        return len(key)
    return tuple(map(_sizeless, key)) if type(key) is tuple else key


def _described(kind: Any, value: Any, *_: Any) -> str:
    if kind == _NUMBER:
        return str(*value)
    if isinstance(kind, torch.dtype):
        return str(list(value))
    if kind == "object":
        return "an object"
    if isinstance(kind, type) and issubclass(kind, _CONTAINERS):
        return f"a {kind.__name__}"
    return f"{kind} {value}" if isinstance(kind, str) else str(value)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A program and the situation that it is for.

    Attributes:
        call: the arguments that it is for, without tensors.
        run: runs it.
        guards: tell whether Python would do the same again.
        watch: tells whether the tensors are as they were that the program reads besides.
        form: strides and the like of its inputs, if it has asked for them.
        state: types and sizes of tensors that it finds in containers and in state; None if it looks at none.
        changes: whether it changes state.
        sizes: what has to be so of the sizes of inputs, if they may be others than ``call`` and ``state`` say.
        decides: tells of a call whether values decide that it is for this program; None if none do.
        rewritten: the tensors that hold something else in each call; None if there are none, and none is written to.
        integers: the arguments that may be other integers, by their numbers among those.
        constants: those that may not, and what they are.
        decided: why the last call for which that was asked was for another program, and what was and is there.
    """

    call: Call
    run: Callable[..., Any]
    guards: _core.Guards
    watch: _core.Watch
    form: Any
    state: Any = None
    changes: bool = False
    sizes: SizeConditions | None = None
    decides: Callable[[Call], bool] | None = None
    rewritten: Rewritten | WrittenInTraining | None = None
    integers: tuple[int, ...] = ()
    constants: tuple[tuple[int, int], ...] = ()
    decided: Callable[[], Failure | None] = lambda: None

    def is_current(self, call: Call, trains: bool) -> bool:
        """Whether it would do now what the program does; notes in ``call`` what the program takes."""
        if not trains and torch.is_grad_enabled() and self.watch.requires_grad():
            return False
        if not (self.finds_inputs(call, trains) and self.may_write(call)):
            return False
        if self.form is not None and self.form != form_of(call.inputs):
            return False
        return (
            self.guards.hold()
            and self.watch.is_current()
            and (self.decides is None or self.decides(call))
        )

    def finds_inputs(self, call: Call, trains: bool, of_any_size: bool = False) -> bool:
        """Notes in a call what the program takes; whether that is of the types, and where nothing is said of any size
        of the sizes, that it is for."""
        if self.state is None:
            call.inputs = call.given(self.integers)
        elif not self._finds_state(call, trains, of_any_size):
            return False
        if self.rewritten is not None:
            call.inputs += self.rewritten.tensors
        return True

    def may_write(self, call: Call) -> bool:
        """Whether nothing else lies where it writes, of what it takes."""
        return self.rewritten is None or self.rewritten.are_current(call.inputs)

    def _finds_state(self, call: Call, trains: bool, of_any_size: bool) -> bool:
        found = call.state(self.guards)
        if found is None:
            return False
        key, state, call.met, call.numbers = found
        same = _sizeless(key) == _sizeless(self.state) if of_any_size else key == self.state
        if not same:
            return False
        if not trains and torch.is_grad_enabled() and any(own.requires_grad for own in state):
            return False
        call.inputs = (*call.given(self.integers), *state)
        return True

    def fits(self, call: Call, trains: bool) -> bool:
        """Whether it would do now what the program does, with other sizes; notes in ``call`` what the program takes."""
        if self.sizes is None or (
            not trains and torch.is_grad_enabled() and self.watch.requires_grad()
        ):
            return False
        return (
            all(call.integers[number][1] == own for number, own in self.constants)
            and self.finds_inputs(call, trains, of_any_size=True)
            and self.may_write(call)
            and self.guards.hold()
            and self.watch.is_current()
            and self.sizes.hold(call.inputs)
        )


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
    #: Whether programs change state.
    changes: bool = False


@dataclass(slots=True)
class _Family:
    """Calls that differ in sizes.

    Attributes:
        first: the first program, for the sizes of one call.
        shapes: the shapes of its inputs.
        integers: the integers among its arguments.
        dynamic: dimensions that have been others since: the number of an input, and of a dimension.
        others: the numbers of integers that have been others since.
        entries: programs for many sizes, the last one first.
    """

    first: Entry
    shapes: list[torch.Size]
    integers: list[int]
    dynamic: set[tuple[int, int]] = field(default_factory=set)
    others: set[int] = field(default_factory=set)
    entries: list[Entry] = field(default_factory=list)

    def inputs(self, call: Call) -> tuple[torch.Tensor, ...] | None:
        """The inputs of programs in a call; None if it is another one in more than sizes."""
        if self.first.state is None:
            return call.tensors
        found = call.state(self.first.guards)
        if found is None:
            return None
        key, state, *_ = found
        return (*call.tensors, *state) if _sizeless(key) == _sizeless(self.first.state) else None

    def differing(self, call: Call) -> list[int]:
        """Which integers have not been the same in all calls."""
        pairs = zip(call.integers, self.integers, strict=True)
        self.others.update(n for n, ((_, own), then) in enumerate(pairs) if own != then)
        return sorted(self.others)

    def differs(self, inputs: Sequence[torch.Tensor]) -> dict[int, set[int]]:
        """Which dimensions of inputs have not been the same in all calls, by the identity of tensors."""
        for number, (own, shape) in enumerate(zip(inputs, self.shapes, strict=True)):
            differ = (dim for dim, size in enumerate(shape) if size != own.size(dim))
            self.dynamic.update((number, dim) for dim in differ)
        found: dict[int, set[int]] = {}
        for number, dim in self.dynamic:
            found.setdefault(id(inputs[number]), set()).add(dim)
        return found


@contextlib.contextmanager
def random_numbers_kept() -> Iterator[None]:
    """Random numbers that are drawn in the block are drawn again after it."""
    random = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(random)


class Recordings:
    """Programs for the calls of a model, recorded in calls that there is none for.

    Args:
        model: has the weights.
        program: is called; the model itself, or a function.
        make: makes what runs a program; it raises what :attr:`failures` are where it cannot.
        forget: is told of entries that are dropped.
        trains: whether autograd goes back through programs.
        replays: whether programs may change state.
        resize: makes a program that is for many sizes one for those of a call; None where there are none such.
        decides: whether values may decide what programs do.
        writes: whether programs may write to what was there before.
        dynamic: whether all sizes but 0 and 1 may be others from the first program on.
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
        replays: bool = False,
        resize: Callable[[Call, Entry], Entry] | None = None,
        sizes: int = SIZES,
        decides: bool = False,
        writes: bool = False,
        dynamic: bool = False,
    ) -> None:
        self._decides, self._writes, self._dynamic = decides, writes, dynamic
        self._model, self._program = model, program
        self._make, self._dropped = make, forget
        self._trains, self._replays, self._sizes = trains, replays, sizes
        self._resize = resize
        self.recompilations = Recompilations(model, program)
        #: By the key without sizes.
        self._families: OrderedDict[Any, list[_Family]] = OrderedDict()
        #: Whether there has been a program for many sizes.
        self._for_sizes = False
        self._known: OrderedDict[Any, _Known] = OrderedDict()
        #: Sizes that were met once, when there were programs for as many as there may be.
        self._met: OrderedDict[Any, None] = OrderedDict()
        #: The objects among arguments, by their class, as long as there is one of each.
        self._objects: dict[type, int | None] = {}
        self._lock = threading.RLock()

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """The call with these arguments; None if PyTorch is to run it, for :data:`NO_CALL`."""
        return Call.of(args, kwargs, is_new=self._is_new, structures=self._replays)

    def _is_new(self, own: Any) -> bool:
        """Whether calls have other objects of this class than the first one: each text a cache of its own."""
        known = self._objects.setdefault(type(own), id(own))
        if known != id(own):
            self._objects[type(own)] = None
            return True
        return False

    def may_come_back(self, entry: Entry) -> bool:
        """Whether a program that is not used now may be again: not if tensors were written to."""
        return entry.watch.is_current()

    def key(self, call: Call) -> Any:
        """What programs for a call are found by."""
        return call.key

    def find(self, call: Call) -> Entry | Refusal | None:
        """The program for a call, why there is none, or None if it is to be recorded."""
        call.forget()
        known = self._known.get(self.key(call))
        if known is None:
            return self._resized(call)
        entries = known.entries
        if len(entries) > 1:
            entries = _core.not_failing(entries)
        for entry in entries:
            if entry.is_current(call, self._trains):
                known.in_vain = 0
                # Another thread may have dropped it meanwhile.
                with contextlib.suppress(KeyError):
                    self._known.move_to_end(self.key(call))
                if entry is not known.entries[0]:
                    known.entries = [entry, *(own for own in known.entries if own is not entry)]
                return entry
        if known.refusal is None and (resized := self._resized(call)) is not None:
            return resized
        if known.changes and known.in_vain > ATTEMPTS[Kind.DYNAMO]:
            # Dynamo does not see all of it: how many entries a dictionary has, that a queue is full.
            return Refusal(Kind.HOST, "the state that it changes is another one in each call")
        if known.in_vain > IN_VAIN and any(own.decides for own in known.entries):
            with self._lock:
                self._refuse(known, Refusal(Kind.DYNAMO, "values decide that differ in each call"))
        if known.in_vain > IN_VAIN:
            return Refusal(Kind.HOST, "what it reads changes from call to call")
        return known.refusal

    def _resized(self, call: Call) -> Entry | None:
        """A program for the sizes of a call, made of one for many sizes."""
        if self._resize is None or not self._for_sizes:
            return None
        key = self.key(call)
        families = self._families.get(_sizeless(key), [])
        for entry in [entry for family in families for entry in family.entries]:
            if entry.fits(call, self._trains):
                try:
                    made = self._resize(call, entry)
                except self.failures:
                    continue
                with self._lock:
                    known = self._known.setdefault(key, _Known())
                    self._known.move_to_end(key)
                    known.in_vain = 0
                    known.entries = [made, *known.entries]
                    for own in known.entries[LENGTHS:]:
                        self._dropped(own)
                    del known.entries[LENGTHS:]
                    while len(self._known) > self._sizes:
                        self._drop_oldest()
                if made.decides is None or made.decides(call):
                    return made
        return None

    def _family(self, call: Call) -> tuple[_Family, tuple[torch.Tensor, ...]] | None:
        """The calls that one differs from in sizes, and its inputs; None if there are none."""
        for family in self._families.get(_sizeless(self.key(call)), []):
            inputs = family.inputs(call)
            if inputs is not None:
                return family, inputs
        return None

    def _dynamic_sizes(
        self, call: Call, family: tuple[_Family, tuple[torch.Tensor, ...]] | None
    ) -> dict[int, set[int]]:
        """The dimensions of inputs that may have other sizes, by the identity of tensors: those that have been others,
        and those that were said to be (:func:`torch._dynamo.mark_dynamic`), but for those that were said to be static."""
        if self._resize is None:
            return {}
        found = {} if family is None else family[0].differs(family[1])
        for own in call.tensors:
            marks = own.__dict__
            dims = set(found.get(id(own), ()))
            if self._dynamic:
                dims |= {dim for dim, size in enumerate(own.shape) if size > 1}
            for name in ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices"):
                dims |= set(marks.get(name, ()))
            dims -= set(marks.get("_dynamo_static_indices", ()))
            found[id(own)] = dims
        return {key: dims for key, dims in found.items() if dims}

    def _dynamic_integers(
        self, call: Call, family: tuple[_Family, tuple[torch.Tensor, ...]] | None
    ) -> dict[int, int | str]:
        """The arguments that may be other integers: their numbers among those, and where they are."""
        if self._resize is None or (family is None and not self._dynamic):
            return {}
        found = range(len(call.integers)) if family is None else family[0].differing(call)
        return {own: call.integers[own][0] for own in found}

    def _note_family(self, call: Call, made: Entry, family: _Family | None) -> None:
        """A call was recorded."""
        if self._resize is None:
            return
        if family is None:
            rewritten = () if made.rewritten is None else made.rewritten.tensors
            inputs = [*call.inputs[: len(call.inputs) - len(rewritten)]]
            del inputs[len(call.tensors) : len(call.tensors) + len(made.integers)]
            integers = [own for _, own in call.integers]
            family = _Family(made, [own.shape for own in inputs], integers)
            key = _sizeless(self.key(call))
            self._families[key] = [family, *self._families.get(key, [])[: SITUATIONS - 1]]
            while len(self._families) > self._sizes:
                self._families.popitem(last=False)
        if made.sizes is not None:
            self._for_sizes = True
            family.entries = [made, *family.entries[: SITUATIONS - 1]]

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
            for known in self._known.values():
                known.refusal, known.attempts, known.in_vain = None, 0, 0
                known.compiling = False

    def refuse(self, call: Call, reason: str) -> str:
        """Have calls like this one run by PyTorch: the program for them failed."""
        with self._lock:
            known = self._known.setdefault(self.key(call), _Known())
            self._refuse(known, Refusal(Kind.HOST, reason))
        return reason

    def _refuse(self, known: _Known, refusal: Refusal) -> None:
        for entry in known.entries:
            self._dropped(entry)
        known.entries, known.refusal, known.in_vain = [], refusal, 0

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
        counters: list[Any] = []
        if before is not None and self._decides:
            # Only what has been recorded already can turn out to be another number in each call.
            counters = [place for own in before.entries for place in own.guards.counters()]
        found = None if self._resize is None else self._family(call)
        why = None
        if before is not None and before.entries:
            why = self.recompilations.reason(before.entries[0], call, trains=self._trains)
        result, recorded = record(
            self._model,
            self._program,
            args,
            kwargs,
            trains=self._trains,
            compiling=before is not None and before.compiling,
            structures=call.structures if self._replays else None,
            dynamic=self._dynamic_sizes(call, found),
            decides=self._decides,
            counters=counters,
            rewritten=self._rewritten(before) if self._writes else None,
            integers=self._dynamic_integers(call, found),
        )
        with self._making():
            made = self._kept(call, key, recorded, None if found is None else found[0], why)
        if isinstance(made, Entry) and is_on(GUARDS):
            for line in [call.describe(), *self.guards_as_text(made)]:
                GUARDS.debug("%s", line)
        return result, made

    def _making(self) -> contextlib.AbstractContextManager[Any]:
        """What is held while a program is made of a recording, and put where other threads find it."""
        return contextlib.nullcontext()

    def _kept(
        self,
        call: Call,
        key: Any,
        recorded: Recorded | Refusal,
        family: _Family | None,
        why: Any,
    ) -> Entry | Refusal:
        """What a recording comes to, which is kept for the next calls.

        Args:
            call: the call that was recorded.
            key: what calls like it have in common.
            recorded: what was recorded.
            family: the calls that it differs from in sizes.
            why: what :attr:`recompilations` is told.
        """
        # What is made of it may run a part of it, and look for the same in what there is.
        with random_numbers_kept():
            made = recorded if isinstance(recorded, Refusal) else self._made(call, recorded)
        call.forget()
        with self._lock:
            known = self._known.setdefault(key, _Known())
            self._known.move_to_end(key)
            if isinstance(made, Refusal):
                self._refused(known, made)
            else:
                if not (made.changes or made.rewritten or made.decides):
                    # What decides may have been changed by this call.
                    same = [own for own in known.entries if own.is_current(call, self._trains)]
                    if same:
                        # Another thread has made one meanwhile.
                        return same[0]
                self._note_family(call, made, family)
                if why is not None:
                    self.recompilations.add(*why)
                known.in_vain += 1
                known.changes = made.changes
                known.refusal = None
                # Tensors that were written to do not come back; in training they are read anew.
                kept = [own for own in known.entries if self.may_come_back(own)]
                stale = [own for own in known.entries if own not in kept]
                count = SITUATIONS if made.decides is None else WAYS
                kept, more = _of_situations(kept, count - 1)
                known.entries = [made, *kept]
                for own in (*stale, *more):
                    self._dropped(own)
            while len(self._known) > self._sizes:
                self._drop_oldest()
        return made

    def rewritten(self) -> list[torch.Tensor]:
        """The tensors that hold something else in each call, of all programs."""
        return [
            own for entry in self.entries() if entry.rewritten for own in entry.rewritten.tensors
        ]

    def _rewritten(self, known: _Known | None) -> dict[int, torch.Tensor]:
        """The tensors that hold something else in each call, by identity: those of programs that there are, and buffers
        that somebody writes to again and again."""
        found: dict[int, torch.Tensor] = {}
        for own in known.entries if known is not None else ():
            tensors = () if own.rewritten is None else own.rewritten.tensors
            found.update((id(tensor), tensor) for tensor in tensors)
            if known is not None and known.in_vain >= REWRITES:
                written = own.watch.written()
                if not any(isinstance(tensor, torch.nn.Parameter) for tensor in written):
                    found.update((id(tensor), tensor) for tensor in written)
        return found

    def guards_as_text(self, entry: Entry) -> list[str]:
        """What is looked at before a program is used, a line each."""
        return guards_as_text(entry.guards, self._program)

    def _refused(self, known: _Known, refusal: Refusal) -> None:
        """Nothing came of a call; of those like it neither if that was not for the first time."""
        BREAKS.debug("not captured%s: %s", in_brackets(refusal.line), refusal.reason)
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
        except ForDynamo as reason:
            return Refusal(Kind.DYNAMO, str(reason))
        except NotForThis as reason:
            return Refusal(Kind.HOST, str(reason), passes=True)
        except self.failures as error:
            return Refusal(Kind.HOST, f"{type(error).__name__}: {error}")


def _of_situations(entries: list[Entry], count: int) -> tuple[list[Entry], list[Entry]]:
    """Those entries that belong to the first so many situations, whatever sizes they are for, and the others."""
    guards: dict[int, None] = {}
    for own in entries:
        if len(guards) < count:
            guards.setdefault(id(own.guards))
    kept = [own for own in entries if id(own.guards) in guards]
    return kept, [own for own in entries if id(own.guards) not in guards]


def record_at_once(
    model: torch.nn.Module,
    program: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] = MappingProxyType({}),
    *,
    dynamic: Mapping[int, Collection[int]] = MappingProxyType({}),
    replays: bool = False,
    decides: bool = False,
) -> Recorded | Refusal:
    """What a program does with such arguments, from as many calls as that takes: much is noted, or made, once."""
    given = (*args, *kwargs.values())
    structures = [own for own in given if isinstance(own, _CONTAINERS)] if replays else None
    recorded: Recorded | Refusal | None = None
    for _ in range(ATTEMPTS[Kind.DYNAMO]):
        compiling = isinstance(recorded, Refusal) and recorded.by_values
        _, recorded = record(
            model,
            program,
            args,
            dict(kwargs),
            compiling=compiling,
            structures=structures,
            dynamic=dynamic,
            decides=decides,
        )
        if isinstance(recorded, Recorded) or not (recorded.passes or recorded.by_values):
            break
    assert recorded is not None
    return recorded


__all__ = [
    "ATTEMPTS",
    "NO_CALL",
    "SIZES",
    "Call",
    "Entry",
    "ForDynamo",
    "NotForThis",
    "Recordings",
    "random_numbers_kept",
    "record_at_once",
    "state_of",
]
