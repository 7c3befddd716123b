"""Recording of a call of a program as a graph."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch.nn.modules.activation import _is_make_fx_tracing
from torch.overrides import _pop_mode_temporarily, handle_torch_function
from torch.utils._python_dispatch import _disable_current_modes

from corsac import _core
from corsac import _markers as markers
from corsac._aten import has_attributes
from corsac._collection import no_collection
from corsac._deferred import Deferred, warnings_are_raised
from corsac._fast_paths import MODULES
from corsac._functions import name_of
from corsac._operator_watch import OperatorWatch
from corsac._passages import passages
from corsac._recorder import Recorder
from corsac._refusal import Kind, Refusal, who_runs
from corsac._replay import Replay
from corsac._result_template import ResultTemplate
from corsac._sizes import SizeConditions
from corsac._stages import Decisions, Staged, staged
from corsac._strides import Layout
from corsac.fx import GraphModule
from corsac.fx.proxy import TraceError

#: Entry of ``torch.autograd.Function``, whose functions may have a backward of their own.
_APPLY = torch._C._FunctionBase.__dict__["apply"]
#: Functions that tell programs whether they are compiled.
_ASKS = (
    torch.compiler.is_compiling,
    torch.compiler.is_dynamo_compiling,
    torch.compiler.is_exporting,
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A program as a graph.

    Attributes:
        module: the graph; its inputs are the tensors among the arguments, each once, in their order.
        template: builds the program's return value from the graph's results; None if they are equal.
        guards: conditions under which the program would do the same again.
        tensors: the tensors that the graph reads besides its inputs.
        statistics: those of them that norms write to in training without raising their version counters.
        form: properties of the inputs such as strides, if the program has read some.
        state: tensors found in containers and in state, in the order in which guards find them; those that are not
            arguments are inputs after these, each once. None if there are no such places.
        rewritten: tensors that are inputs after these, since their values differ between calls: the program, or
            others, write to them.
        overwritten: indices of the inputs that it writes to.
        integers: indices of integer arguments that may vary: inputs after the tensors among the arguments, as
            sizes of tensors without elements.
        replay: builds the return value from results and the objects found by guards, and changes these, in the
            place of ``template``; None if there are no such places.
        sizes: conditions on sizes, if the program is valid for several.
        stages: the graph in stages, if control flow between them depends on values.
        layouts: memory layouts of the results; None if all results that the graph computes are contiguous.
        repeats: as for a :class:`Refusal`.
        seconds: time of the recorded call and of making the graph.
    """

    module: GraphModule
    template: ResultTemplate | None
    guards: _core.Guards
    tensors: list[torch.Tensor]
    statistics: list[torch.Tensor]
    form: Any
    state: list[torch.Tensor] | None
    rewritten: tuple[torch.Tensor, ...]
    overwritten: tuple[int, ...]
    integers: tuple[int, ...]
    replay: Replay | None
    sizes: SizeConditions | None
    stages: Staged | None
    layouts: tuple[Layout | None, ...] | None
    repeats: bool
    seconds: float


def form_of(tensors: Sequence[torch.Tensor]) -> Any:
    """Properties of inputs that programs may read, besides types and sizes."""
    return tuple(
        (
            own.stride(),
            own.storage_offset(),
            own.requires_grad,
            own.is_leaf,
            own.is_inference(),
            own.is_conj(),
            own.is_neg(),
            own.retains_grad,
            own.grad is None if own.is_leaf else None,
            own.grad_fn is None,
        )
        for own in tensors
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """Callbacks of a :class:`corsac._core.Recording`."""

    quiet: Callable[..., Any]
    host: Callable[[Callable[..., Any]], Callable[..., Any]]
    prints: Callable[..., str | None]
    assume: Callable[[bool], None]


def named_weights(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers in reverse order, so that in a dictionary by tensor the first name wins."""
    yield from reversed([*model.named_parameters(), *model.named_buffers()])


def named_arguments(
    program: Callable[..., Any], args: tuple[Any, ...]
) -> Iterator[tuple[str, Any]]:
    if not args:
        return
    names: list[str] = []
    with contextlib.suppress(TypeError, ValueError):
        function = program.forward if isinstance(program, torch.nn.Module) else program
        for own in inspect.signature(function).parameters.values():
            if own.kind is own.VAR_POSITIONAL:
                names += [f"{own.name}_{number}" for number in range(len(args) - len(names))]
            names.append(own.name)
    for number, own in enumerate(args):
        yield names[number] if number < len(names) else f"input_{number}", own


class _Here(threading.local):
    """Number of nested recordings of this thread."""

    depth = 0


_recorded_here = _Here()


def is_recording() -> bool:
    """Whether this thread records a program: the recording needs the operators of everything that it calls."""
    return _recorded_here.depth > 0


def _collections() -> list[int]:
    """Number of garbage collections of each generation."""
    return [own["collections"] for own in gc.get_stats()]


def _ours() -> list[Any]:
    """Code that is not recorded: it makes nodes of operators, and calls PyTorch."""
    functions = [
        handle_torch_function,
        Recorder.__torch_function__,
        OperatorWatch.__torch_dispatch__,
        is_recording,
        _hosted,
        # The recorder is not one of the modes that it looks for.
        _is_make_fx_tracing,
        torch.autocast.__enter__,
        torch.autocast.__exit__,
        torch.autograd.profiler.record_function.__enter__,
        torch.autograd.profiler.record_function.__exit__,
        *_ASKS,
    ]
    guard = sys.modules.get("torch._dynamo.mutation_guard")
    if guard is not None:
        # Dynamo counts new modules.
        functions.append(guard.GenerationTracker.tag)
    codes = [own.__code__ for own in functions]
    return [*codes, *Deferred.CODES, *markers.codes(), *markers.breaks()]


#: Global settings that PyTorch's functions depend on, besides their arguments and state read by Python.
_SETTINGS: tuple[Callable[[], Any], ...] = (
    torch.get_default_dtype,
    torch._C._len_torch_function_stack,
    torch._C._get_tracing_state,
    torch._C._functorch.maybe_current_level,
    torch._C._get_deterministic_algorithms,
    torch._C._get_deterministic_algorithms_warn_only,
)


def record(
    model: torch.nn.Module,
    program: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    trains: bool = False,
    compiling: bool = False,
    structures: Sequence[Any] | None = None,
    dynamic: Mapping[int, Collection[int]] = MappingProxyType({}),
    decides: bool = False,
    counters: Sequence[tuple[Any, Any]] = (),
    rewritten: Collection[int] | None = None,
    integers: Mapping[int, int | str] = MappingProxyType({}),
) -> tuple[Any, Recorded | Refusal]:
    """Call ``program``, and record its computation for tensors of these types and sizes.

    Args:
        model: the owner of the parameters and buffers.
        program: the function to call: ``model`` itself, or a function of it.
        args: tensors on the CPU, and constants.
        kwargs: likewise.
        trains: whether the graph is for autograd; gradients are on then.
        compiling: whether programs that ask are told that they are compiled: many read values only if they
            are not.
        structures: arguments that are specialised to their contents; None if all are specialised to the objects
            themselves, and the program may not change state.
        dynamic: dynamic dimensions of tensors in arguments and state, by id.
        decides: whether control flow may depend on values.
        counters: places of numbers that may vary between calls: dictionaries with keys, and cells.
        rewritten: tensors whose values differ between calls, by id; None if the program may not write to existing
            tensors, except to buffers in training.
        integers: places of integer arguments that may vary, by the indices of :attr:`Recorded.integers`.

    Returns:
        The result of the program; the recording, or the reason why there is none.
    """
    unavailable = _unavailable(args, kwargs)
    if unavailable is not None:
        return program(*args, **kwargs), unavailable
    with no_collection(), _told_to_be_compiled() if compiling else contextlib.nullcontext():
        return _recorded(
            model,
            program,
            args,
            kwargs,
            trains,
            compiling,
            structures,
            dynamic,
            decides,
            counters,
            rewritten,
            integers,
        )


@contextlib.contextmanager
def _told_to_be_compiled() -> Iterator[None]:
    """Make ``torch.compiler.is_compiling()`` true in the block."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


def _quietly(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """Call a function without recording its operators."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        return function(*arguments, **named)


def _hosted(function: Callable[..., Any], recorder: Recorder, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function with the recorder switched off, and refuse the program. The function may use modes of its own."""
    recorder.refuse(f"it calls {name_of(function)}, which PyTorch runs", Kind.HOST)
    is_first = torch._C._len_torch_function_stack() == 1
    around = _pop_mode_temporarily() if is_first else contextlib.nullcontext()
    with around, _disable_current_modes():
        return function(*args, **kwargs)


def _unavailable(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Refusal | None:
    """Reason why this call cannot be recorded, or None."""
    given = [own for own in (*args, *kwargs.values()) if isinstance(own, torch.Tensor)]
    if any(map(has_attributes, given)):
        return Refusal(Kind.HOST, "an input has attributes", passes=True)
    if torch._C._len_torch_function_stack():
        return Refusal(Kind.HOST, "a mode of torch.overrides is on", passes=True)
    reason = _core.Recording.unavailable()
    return None if reason is None else Refusal(Kind.DYNAMO, reason, passes=True)


def _recorded(
    model: torch.nn.Module,
    program: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    trains: bool,
    compiling: bool,
    structures: Sequence[Any] | None,
    dynamic: Mapping[int, Collection[int]],
    decides: bool,
    counters: Sequence[tuple[Any, Any]],
    rewritten: Collection[int] | None,
    integers: Mapping[int, int | str],
) -> tuple[Any, Recorded | Refusal]:
    start = time.perf_counter()
    deferred = None if trains or structures is None else Deferred(_recorded.__code__)
    recording = _core.Recording(
        _ours(),
        [own.forward.__code__ for own in MODULES],
        passages(),
        [_APPLY] if trains else [],
        [*Deferred.CODES, *markers.breaks()],
        _Told(
            _quietly,
            lambda function: functools.partial(_hosted, function, recorder),
            lambda *told: recorder.told(*told),
            lambda begins: recorder.assume(begins),
        ),
    )
    for setting in _SETTINGS:
        recording.ask(setting)
    recording.count(list(counters))
    names = {id(own): name for name, own in named_weights(model)}
    recorder = Recorder(
        recording,
        names,
        trains,
        dynamic,
        bool(integers),
        decides,
        bool(counters),
        rewritten,
        deferred,
    )
    tensors: dict[int, torch.Tensor] = {}
    for name, own in [*named_arguments(program, args), *kwargs.items()]:
        if isinstance(own, torch.Tensor) and id(own) not in tensors:
            tensors[id(own)] = own
            recorder.placeholder(name, own)
    given = list(tensors.values())
    for number, place in integers.items():
        own = args[place] if isinstance(place, int) else kwargs[place]
        size, symbol = recorder.integer(f"integer_{number}", own)
        given.append(size)
        if isinstance(place, int):
            args = (*args[:place], symbol, *args[place + 1 :])
        else:
            kwargs = {**kwargs, place: symbol}
    gradients, collections = torch.is_grad_enabled(), _collections()
    _recorded_here.depth += 1
    around, markers.here.recorder = markers.here.recorder, recorder
    try:
        with recorder.watch, recorder:
            recorder.begin()
            returned = recording.run(program, args, kwargs)
            recorder.end()
    finally:
        _recorded_here.depth -= 1
        markers.here.recorder = around
        if deferred is not None:
            deferred.end()
    if deferred is not None and deferred.warns:
        recording.ask(warnings_are_raised)
    if torch.is_grad_enabled() is not gradients:
        recorder.refuse("it leaves gradients switched on or off")
    found = recording.finish(program, given, list(structures or ()), structures is not None)
    if _collections() != collections:
        # Objects made by the program are recognised by their age, which a collection changes.
        return returned, Refusal(
            Kind.HOST, "garbage was collected while it was recorded", passes=True
        )
    refused = found if isinstance(found[0], str) else None
    asks = any(recording.entered(own.__code__) for own in _ASKS)
    if recorder.refusal is not None and not (refused is not None and refused[0] == "opaque"):
        depends = recorder.refusal.kind is Kind.DYNAMO
        repeats = depends and not recorder.saw_change and refused is None
        return returned, replace(recorder.refusal, by_values=depends and asks, repeats=repeats)
    if refused is not None:
        kind, reason = refused
        # With classes, iterators and the like, Dynamo may silently do something else.
        who = Kind.HOST if kind in ("opaque", "writes") else Kind.DYNAMO
        line = recording.refused_at()
        by_values = asks and bool(recorder.reads)
        return returned, Refusal(
            who, reason, passes=kind != "torch", by_values=by_values, line=line
        )
    guards, held = found
    if any(map(has_attributes, held["tensors"])):
        return returned, Refusal(
            Kind.HOST, "a tensor in its state or its arguments has attributes", passes=True
        )
    numbers = {id(own): number for number, own in enumerate(held["objects"])}
    found_again = bool(structures or held["tensors"] or numbers)
    prints = deferred is not None and deferred.calls
    replays = bool(found_again or recorder.overwrites() or prints)
    if deferred is not None and any(map(recording.made, deferred.files())):
        return returned, Refusal(Kind.DYNAMO, "it prints to a file that it opens", passes=True)
    written: list[torch.Tensor] = []
    template = replay = None
    try:
        if found_again or recorder.sizes is not None:
            given += recorder.state(held["tensors"])
        if rewritten is not None:
            written = recorder.rewritten(given)
            given += written
        if replays:
            replay = recorder.replay(returned, given, numbers, held["edits"])
        else:
            template = recorder.output(returned)
        reads = recorder.decisions()
        if reads and asks and not compiling:
            repeats = not recorder.saw_change and not replays
            reason = f"the values of a tensor decide ({name_of(next(iter(reads)).target)})"
            return returned, Refusal(Kind.DYNAMO, reason, by_values=True, repeats=repeats)
        if recorder.refusal is not None:
            return returned, recorder.refusal
    except TraceError as error:
        repeats = not recorder.saw_change and not replays
        return returned, Refusal(who_runs(error), str(error), passes=replays, repeats=repeats)
    sizes, layouts = None, recorder.layouts
    is_of_sizes = any(own is not None and own.order is None for own in layouts or ())
    if recorder.sizes is not None and not (recorder.asks_form or is_of_sizes):
        sizes = recorder.sizes.finished(recorder.weights, given, reads)
    stages = None
    if reads or held["counted"]:
        decisions = Decisions(
            reads=reads,
            numbers=recorder.numbers,
            conditions=recording.conditions_on_values(),
            scalars=recorder.as_tensors,
            writing=recorder.writing,
            sizes=() if recorder.sizes is None else recorder.sizes.numbers(),
            state=held["counted"],
            written_inputs=recorder.written_inputs(),
            rewinds=recorder.overwritten(given) if recorder.rewinds else None,
        )
        stages = staged(recorder.graph, recorder.weights, decisions)
    module = GraphModule._with_code_put_off(recorder.weights, recorder.graph)
    module.training = False
    read = list(recorder.weights.values())
    kept = {id(own) for own in read}
    return returned, Recorded(
        module=module,
        template=template,
        guards=guards,
        tensors=read,
        statistics=[own for key, own in recorder.statistics.items() if key in kept],
        form=form_of(given) if recorder.asks_form else None,
        state=held["tensors"] if found_again else None,
        rewritten=tuple(written),
        overwritten=recorder.overwritten(given),
        integers=tuple(integers),
        replay=replay,
        sizes=sizes,
        stages=stages,
        layouts=layouts,
        repeats=not recorder.saw_change,
        seconds=time.perf_counter() - start,
    )


__all__ = ["Recorded", "form_of", "is_recording", "named_arguments", "named_weights", "record"]
