"""Recorded programs of a model, by the types and sizes of calls and by the state of Python and PyTorch."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch

from corsac import _core
from corsac._capture.calls import CONTAINERS, Call, sizeless
from corsac._capture.guard_text import guards_as_text
from corsac._capture.recompilation import Recompilations
from corsac._capture.record import Recorded, form_of, record
from corsac._capture.recording_options import RecordingOptions
from corsac._capture.refusal import Kind, Refusal
from corsac._capture.rewritten import Rewritten, WrittenInTraining
from corsac._capture.sizes import SizeConditions
from corsac._capture.stages import Failure
from corsac._messages.lines import in_brackets
from corsac._messages.logs import BREAKS, GUARDS, is_on


class NotForThis(Exception):
    """A program does not apply to the recorded call, though it may to others like it."""


class ForDynamo(Exception):
    """A recorded program is better captured by Dynamo."""


#: Largest number of sets of sizes with programs.
SIZES = 16
#: Largest number of programs for one of them, for states of Python and PyTorch that alternate.
PROGRAMS = 4
#: The same for programs whose control flow depends on values.
BRANCHES = 16
#: Number of attempts to record a program: some state is set up in the first calls.
ATTEMPTS = {Kind.DYNAMO: 3, Kind.HOST: 2, Kind.TRAINS: 1}
#: Number of recordings in a row that may never be used, because state changes between calls.
IN_VAIN = 8
#: Number of them after which tensors that others have written to become inputs.
REWRITES = 2
#: Number of sets of sizes remembered that occurred once.
MET = 256
#: Largest number of programs for the same arguments but other sizes in state: caches grow that often.
LENGTHS = 256


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A program, and the conditions under which it applies.

    Attributes:
        call: the call that it is for, without tensors.
        run: runs it.
        guards: conditions on Python state.
        model_guards: detects changes of the tensors that the program reads besides its inputs.
        form: strides and similar properties of its inputs, if it has read some.
        state: types and sizes of tensors found in containers and in state; None if there are none.
        changes: whether it changes state.
        sizes: conditions on the sizes of inputs, if these may differ from ``call`` and ``state``.
        decides: returns whether the values of a call are those that the program is for; None if none matter.
        rewritten: check of the tensors whose values differ between calls; None if there are none and none is written.
        integers: indices of integer arguments that may vary.
        constants: indices and values of those that may not.
        decided: describes why the last call checked by ``decides`` was for another program.
    """

    call: Call
    run: Callable[..., Any]
    guards: _core.Guards
    model_guards: _core.ModelGuards
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
        """Whether the program applies to a call; stores the inputs in ``call``."""
        if not trains and torch.is_grad_enabled() and self.model_guards.requires_grad():
            return False
        if not (self.finds_inputs(call, trains) and self.may_write(call)):
            return False
        if self.form is not None and self.form != form_of(call.inputs):
            return False
        return (
            self.guards.hold()
            and self.model_guards.is_current()
            and (self.decides is None or self.decides(call))
        )

    def finds_inputs(self, call: Call, trains: bool, of_any_size: bool = False) -> bool:
        """Store the inputs of the program in ``call``; return whether types, and unless ``of_any_size`` also sizes, are
        those that the program is for."""
        if self.state is None:
            call.inputs = call.given(self.integers)
        elif not self._finds_state(call, trains, of_any_size):
            return False
        if self.rewritten is not None:
            call.inputs += self.rewritten.tensors
        return True

    def may_write(self, call: Call) -> bool:
        """Whether its writes are allowed: no other tensor of the call shares the memory."""
        return self.rewritten is None or self.rewritten.are_current(call.inputs)

    def _finds_state(self, call: Call, trains: bool, of_any_size: bool) -> bool:
        found = call.state(self.guards)
        if found is None:
            return False
        key, state, call.met, call.numbers = found
        same = sizeless(key) == sizeless(self.state) if of_any_size else key == self.state
        if not same:
            return False
        if not trains and torch.is_grad_enabled() and any(own.requires_grad for own in state):
            return False
        call.inputs = (*call.given(self.integers), *state)
        return True

    def fits(self, call: Call, trains: bool) -> bool:
        """Whether the program applies to a call with other sizes; stores the inputs in ``call``."""
        if self.sizes is None or (
            not trains and torch.is_grad_enabled() and self.model_guards.requires_grad()
        ):
            return False
        return (
            all(call.integers[number][1] == own for number, own in self.constants)
            and self.finds_inputs(call, trains, of_any_size=True)
            and self.may_write(call)
            and self.guards.hold()
            and self.model_guards.is_current()
            and self.sizes.hold(call.inputs)
        )


@dataclass(slots=True)
class _Known:
    """Programs and statistics for calls with the same types and sizes."""

    entries: list[Entry] = field(default_factory=list)
    refusal: Refusal | None = None
    #: Number of attempts to record that were refused.
    attempts: int = 0
    #: Whether ``torch.compiler.is_compiling()`` is true in the program.
    compiling: bool = False
    #: Number of recordings since a program was last used.
    in_vain: int = 0
    #: Whether programs change state.
    changes: bool = False


@dataclass(slots=True)
class _Family:
    """Calls that differ only in sizes.

    Attributes:
        first: the first program, for the sizes of one call.
        shapes: the shapes of its inputs.
        integers: the integers among its arguments.
        dynamic: dimensions whose sizes have differed since: indices of an input and of a dimension.
        others: indices of integers that have differed since.
        entries: programs with symbolic sizes, the last one first.
    """

    first: Entry
    shapes: list[torch.Size]
    integers: list[int]
    dynamic: set[tuple[int, int]] = field(default_factory=set)
    others: set[int] = field(default_factory=set)
    entries: list[Entry] = field(default_factory=list)

    def inputs(self, call: Call) -> tuple[torch.Tensor, ...] | None:
        """The inputs of programs in a call; None if it differs in more than sizes."""
        if self.first.state is None:
            return call.tensors
        found = call.state(self.first.guards)
        if found is None:
            return None
        key, state, *_ = found
        return (*call.tensors, *state) if sizeless(key) == sizeless(self.first.state) else None

    def differing(self, call: Call) -> list[int]:
        """The indices of integers that have differed between calls."""
        pairs = zip(call.integers, self.integers, strict=True)
        self.others.update(n for n, ((_, own), then) in enumerate(pairs) if own != then)
        return sorted(self.others)

    def differs(self, inputs: Sequence[torch.Tensor]) -> dict[int, set[int]]:
        """The dimensions of inputs whose sizes have differed between calls, by id of the tensor."""
        for number, (own, shape) in enumerate(zip(inputs, self.shapes, strict=True)):
            differ = (dim for dim, size in enumerate(shape) if size != own.size(dim))
            self.dynamic.update((number, dim) for dim in differ)
        found: dict[int, set[int]] = {}
        for number, dim in self.dynamic:
            found.setdefault(id(inputs[number]), set()).add(dim)
        return found


@contextlib.contextmanager
def random_numbers_kept() -> Iterator[None]:
    """Restore the state of the random generator after the block."""
    random = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(random)


class Recordings:
    """Programs for the calls of a model, recorded in calls that have none.

    Args:
        model: the owner of the weights.
        program: the function to call: the model itself, or a function of it.
        make: compiles a recorded program; raises one of :attr:`failures` if it cannot.
        forget: called with entries that are dropped.
        trains: whether programs are for autograd.
        replays: whether programs may change state.
        resize: compiles a program with symbolic sizes for those of a call; None to have no symbolic sizes.
        sizes: largest number of sets of sizes with programs.
        decides: whether control flow may depend on values.
        writes: whether programs may write to existing tensors.
        dynamic: whether all sizes but 0 and 1 are symbolic from the first program on.
        casts: as in :class:`RecordingOptions`.
    """

    #: Exceptions that mean that a program cannot be compiled.
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
        casts: bool = False,
    ) -> None:
        self._decides, self._writes, self._dynamic = decides, writes, dynamic
        self._casts = casts
        self._model, self._program = model, program
        self._make, self._dropped = make, forget
        self._trains, self._replays, self._sizes = trains, replays, sizes
        self._resize = resize
        self.recompilations = Recompilations(model, program)
        #: Families by the key without sizes.
        self._families: OrderedDict[Any, list[_Family]] = OrderedDict()
        #: Whether there has been a program with symbolic sizes.
        self._for_sizes = False
        self._known: OrderedDict[Any, _Known] = OrderedDict()
        #: Keys that occurred once after the largest number of sets of sizes was reached.
        self._met: OrderedDict[Any, None] = OrderedDict()
        #: Id of the object argument of each class; None once there were several.
        self._objects: dict[type, int | None] = {}
        self._lock = threading.RLock()

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """The call with these arguments; None if PyTorch is to run it, with reason ``NO_CALL``."""
        return Call.of(args, kwargs, is_new=self._is_new, structures=self._replays)

    def _is_new(self, own: Any) -> bool:
        """Whether calls have passed several objects of this class, such as a new cache for each text."""
        known = self._objects.setdefault(type(own), id(own))
        if known != id(own):
            self._objects[type(own)] = None
            return True
        return False

    def may_come_back(self, entry: Entry) -> bool:
        """Whether a program that does not apply now may apply again: not if tensors were written to."""
        return entry.model_guards.is_current()

    def key(self, call: Call) -> Any:
        """The key by which programs for a call are found."""
        return call.key

    def find(self, call: Call) -> Entry | Refusal | None:
        """The program for a call, the reason why there is none, or None if it is to be recorded."""
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
            # Dynamo does not guard all of it: the number of entries of a dictionary, that a queue is full.
            return Refusal(Kind.HOST, "the state that it changes is another one in each call")
        if known.in_vain > IN_VAIN and any(own.decides for own in known.entries):
            with self._lock:
                self._refuse(known, Refusal(Kind.DYNAMO, "values decide that differ in each call"))
        if known.in_vain > IN_VAIN:
            return Refusal(Kind.HOST, "what it reads changes from call to call")
        return known.refusal

    def _resized(self, call: Call) -> Entry | None:
        """A program for the sizes of a call, compiled from one with symbolic sizes; None if there is none."""
        if self._resize is None or not self._for_sizes:
            return None
        key = self.key(call)
        families = self._families.get(sizeless(key), [])
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
        """The family of a call, and its inputs; None if there is none."""
        for family in self._families.get(sizeless(self.key(call)), []):
            inputs = family.inputs(call)
            if inputs is not None:
                return family, inputs
        return None

    def _dynamic_sizes(
        self, call: Call, family: tuple[_Family, tuple[torch.Tensor, ...]] | None
    ) -> dict[int, set[int]]:
        """The dynamic dimensions of inputs, by id of the tensor: those whose sizes have differed, and those marked by
        :func:`torch._dynamo.mark_dynamic`, without those marked as static."""
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
        """The integer arguments that may vary: position or name, by index among the integers."""
        if self._resize is None or (family is None and not self._dynamic):
            return {}
        found = range(len(call.integers)) if family is None else family[0].differing(call)
        return {own: call.integers[own][0] for own in found}

    def _note_family(self, call: Call, made: Entry, family: _Family | None) -> None:
        """Note a recorded call in its family."""
        if self._resize is None:
            return
        if family is None:
            rewritten = () if made.rewritten is None else made.rewritten.tensors
            inputs = [*call.inputs[: len(call.inputs) - len(rewritten)]]
            del inputs[len(call.tensors) : len(call.tensors) + len(made.integers)]
            integers = [own for _, own in call.integers]
            family = _Family(made, [own.shape for own in inputs], integers)
            key = sizeless(self.key(call))
            self._families[key] = [family, *self._families.get(key, [])[: PROGRAMS - 1]]
            while len(self._families) > self._sizes:
                self._families.popitem(last=False)
        if made.sizes is not None:
            self._for_sizes = True
            family.entries = [made, *family.entries[: PROGRAMS - 1]]

    def used(self, entries: Iterable[Entry]) -> None:
        """Note programs that have run without :meth:`find`, the last one last."""
        with self._lock:
            for entry in entries:
                key = self.key(entry.call)
                if (known := self._known.get(key)) is not None:
                    known.in_vain = 0
                    self._known.move_to_end(key)

    def look_again(self) -> None:
        """Forget all refusals, since the model has changed."""
        with self._lock:
            for known in self._known.values():
                known.refusal, known.attempts, known.in_vain = None, 0, 0
                known.compiling = False

    def refuse(self, call: Call, reason: str) -> str:
        """Leave calls like this one to PyTorch, since their program failed; return the reason."""
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
        """Keys of calls that are not captured, with the reason."""
        known = list(self._known.items())
        return [(key, own.refusal) for key, own in known if own.refusal is not None]

    def record(
        self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Entry | Refusal | None]:
        """Make a call, and record and compile a program.

        Returns:
            The result of the call; and the program, or the reason why there is none, or None if nothing was recorded.
        """
        key = self.key(call)
        if self._is_met_first(key):
            return self._program(*args, **kwargs), None
        before = self._known.get(key)
        counters: list[Any] = []
        if before is not None and self._decides:
            # A number is known to vary only after a first recording.
            counters = [place for own in before.entries for place in own.guards.counters()]
        found = None if self._resize is None else self._family(call)
        why = None
        if before is not None and before.entries:
            why = self.recompilations.reason(before.entries[0], call, trains=self._trains)
        options = RecordingOptions(
            trains=self._trains,
            compiling=before is not None and before.compiling,
            structures=call.structures if self._replays else None,
            dynamic=self._dynamic_sizes(call, found),
            decides=self._decides,
            counters=counters,
            rewritten=self._rewritten(before) if self._writes else None,
            integers=self._dynamic_integers(call, found),
            casts=self._casts,
        )
        result, recorded = record(self._model, self._program, args, kwargs, options)
        with self._making():
            made = self._kept(call, key, recorded, None if found is None else found[0], why)
        if isinstance(made, Entry) and is_on(GUARDS):
            for line in [call.describe(), *self.guards_as_text(made)]:
                GUARDS.debug("%s", line)
        return result, made

    def _making(self) -> contextlib.AbstractContextManager[Any]:
        """A lock to hold while a recorded program is compiled and stored for other threads."""
        return contextlib.nullcontext()

    def _kept(
        self,
        call: Call,
        key: Any,
        recorded: Recorded | Refusal,
        family: _Family | None,
        why: Any,
    ) -> Entry | Refusal:
        """Compile a recording, and store the program or refusal for the next calls.

        Args:
            call: the recorded call.
            key: its key.
            recorded: the recording.
            family: the family of the call.
            why: the reason for :attr:`recompilations`, if programs existed.
        """
        # Compiling may run a part of the program, which must not use up random numbers.
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
                    # The call may have changed the values that control flow depends on.
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
                # Old values of tensors do not come back; in training they are read anew.
                kept = [own for own in known.entries if self.may_come_back(own)]
                stale = [own for own in known.entries if own not in kept]
                count = PROGRAMS if made.decides is None else BRANCHES
                kept, more = _of_states(kept, count - 1)
                known.entries = [made, *kept]
                for own in (*stale, *more):
                    self._dropped(own)
            while len(self._known) > self._sizes:
                self._drop_oldest()
        return made

    def rewritten(self) -> list[torch.Tensor]:
        """The tensors of all programs whose values differ between calls."""
        return [
            own for entry in self.entries() if entry.rewritten for own in entry.rewritten.tensors
        ]

    def _rewritten(self, known: _Known | None) -> dict[int, torch.Tensor]:
        """The tensors whose values differ between calls, by id: those of existing programs, and buffers that were
        written to repeatedly."""
        found: dict[int, torch.Tensor] = {}
        for own in known.entries if known is not None else ():
            tensors = () if own.rewritten is None else own.rewritten.tensors
            found.update((id(tensor), tensor) for tensor in tensors)
            if known is not None and known.in_vain >= REWRITES:
                written = own.model_guards.written()
                if not any(isinstance(tensor, torch.nn.Parameter) for tensor in written):
                    found.update((id(tensor), tensor) for tensor in written)
        return found

    def guards_as_text(self, entry: Entry) -> list[str]:
        """The guards of a program, as lines of text."""
        return guards_as_text(entry.guards, self._program)

    def _refused(self, known: _Known, refusal: Refusal) -> None:
        """Note a refused recording; after enough attempts, calls with the same key are refused without one."""
        BREAKS.debug("not captured%s: %s", in_brackets(refusal.line), refusal.reason)
        known.attempts += 1
        if refusal.by_values and not known.compiling:
            known.compiling = True
        elif not refusal.passes or known.attempts >= ATTEMPTS[refusal.kind]:
            known.refusal = refusal

    def _is_met_first(self, key: Any) -> bool:
        """Whether a key occurs for the first time after many others: most of those do not come back."""
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


def _of_states(entries: list[Entry], count: int) -> tuple[list[Entry], list[Entry]]:
    """The entries with the first ``count`` sets of guards, whatever their sizes, and the others."""
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
    trains: bool = False,
    rewritten: Collection[int] | None = None,
    keep: Callable[[torch.Tensor], None] | None = None,
) -> Recorded | Refusal:
    """Record a program with these arguments, in several calls if needed: some state is set up in the first ones. With
    ``trains`` the graph is for autograd; ``rewritten`` and ``keep`` are as in :class:`RecordingOptions`."""
    given = (*args, *kwargs.values())
    structures = [own for own in given if isinstance(own, CONTAINERS)] if replays else None
    options = RecordingOptions(
        structures=structures,
        dynamic=dynamic,
        decides=decides,
        trains=trains,
        rewritten=rewritten,
        casts=True,
        keep=keep,
        calls_graphs=not (decides or trains),
    )
    recorded: Recorded | Refusal | None = None
    for _ in range(ATTEMPTS[Kind.DYNAMO]):
        compiling = isinstance(recorded, Refusal) and recorded.by_values
        options = replace(options, compiling=compiling)
        _, recorded = record(model, program, args, dict(kwargs), options)
        if isinstance(recorded, Recorded) or not (recorded.passes or recorded.by_values):
            break
    assert recorded is not None
    return recorded


__all__ = [
    "ATTEMPTS",
    "PROGRAMS",
    "SIZES",
    "Entry",
    "ForDynamo",
    "NotForThis",
    "Recordings",
    "random_numbers_kept",
    "record_at_once",
]
