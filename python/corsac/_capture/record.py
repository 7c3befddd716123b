"""Recording of a call of a program as a graph."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.modules.activation import _is_make_fx_tracing
from torch.overrides import _pop_mode_temporarily, handle_torch_function
from torch.utils._python_dispatch import _disable_current_modes

from corsac import _core
from corsac._capture import markers
from corsac._capture.called_graphs import CalledGraphs
from corsac._capture.collection import no_collection
from corsac._capture.deferred import Deferred, warnings_are_raised
from corsac._capture.fast_paths import MODULES
from corsac._capture.known_code import known_code
from corsac._capture.operator_watch import OperatorWatch
from corsac._capture.recorder import Recorder
from corsac._capture.recording_options import RecordingOptions
from corsac._capture.refusal import Kind, Refusal, who_runs
from corsac._capture.replay import Replay
from corsac._capture.result_template import ResultTemplate
from corsac._capture.sizes import SizeConditions
from corsac._capture.stages import Decisions, Staged, staged
from corsac._capture.traced_calls import TracedCall, calls_operator
from corsac._native.strides import Layout
from corsac._pytorch.aten import has_attributes
from corsac._pytorch.functions import name_of
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
        typed: other existing tensors, of which types or sizes were read.
        statistics: those of ``tensors`` that norms write to in training without raising their version counters.
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
        called: the graphs that the program calls, which are modules so far.
        seconds: time of the recorded call and of making the graph.
    """

    module: GraphModule
    template: ResultTemplate | None
    guards: _core.Guards
    tensors: list[torch.Tensor]
    typed: tuple[torch.Tensor, ...]
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
    called: CalledGraphs | None = None
    seconds: float = 0.0


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
class _Callbacks:
    """Callbacks of a :class:`corsac._core.Recording`."""

    unrecorded: Callable[..., Any]
    host: Callable[[Callable[..., Any]], tuple[Callable[..., Any], bool]]
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


def _collections() -> list[int]:
    """Number of garbage collections of each generation."""
    return [own["collections"] for own in gc.get_stats()]


def _ours() -> list[Any]:
    """Code that is not recorded: it makes nodes of operators, and calls PyTorch."""
    functions = [
        handle_torch_function,
        Recorder.__torch_function__,
        OperatorWatch.__torch_dispatch__,
        markers.is_recording,
        markers.keeps_control_flow,
        markers.refuse,
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
    # Another thread may be importing it.
    tracker = getattr(guard, "GenerationTracker", None)
    if tracker is not None:
        # Dynamo counts new modules.
        functions.append(tracker.tag)
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
#: Settings that a program which enters autocast may ask for, with their arguments.
_OF_AUTOCAST: tuple[tuple[Any, ...], ...] = (
    (torch.is_autocast_cache_enabled,),
    *((torch.get_autocast_dtype, device) for device in ("cpu", "cuda")),
    *((torch.is_autocast_enabled, device) for device in ("cpu", "cuda")),
)


def record(
    model: torch.nn.Module,
    program: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: RecordingOptions,
) -> tuple[Any, Recorded | Refusal]:
    """Calls ``program``, and records it for tensors of these types and sizes.

    Args:
        model: has the parameters and buffers.
        program: is called with the arguments; ``model`` itself, or a function.
        args: tensors on the CPU, and constants.
        kwargs: the same.
        options: constructs that the program may contain.

    Returns:
        The return value of the program; the recorded program, or the reason why there is none.
    """
    unavailable = _unavailable(args, kwargs)
    if unavailable is not None:
        return program(*args, **kwargs), unavailable
    mode = _seen_as_compiled() if options.compiling else contextlib.nullcontext()
    with no_collection(), mode:
        return _recorded(model, program, args, kwargs, options)


@contextlib.contextmanager
def _seen_as_compiled() -> Iterator[None]:
    """Make ``torch.compiler.is_compiling()`` true in the block."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


def _unrecorded(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """Call a function without recording its operators."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        return function(*arguments, **named)


def _hosted(function: Callable[..., Any], recorder: Recorder, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function with the recorder switched off, and refuse the program, unless the call becomes nodes. The
    function may use modes of its own."""
    reason = "which PyTorch runs"
    if recorder.called is not None and recorder.refusal is None and calls_operator(function):
        try:
            with _switched_off():
                call = TracedCall.of(function, args, kwargs)
            recorder.called.keep(call.module, args, kwargs)
            return call.result(call.module(*call.inputs))
        except TraceError as error:
            reason = f"of which Dynamo makes no graph: {error}"
    recorder.refuse(f"it calls {name_of(function)}, {reason}", Kind.HOST)
    with _switched_off():
        return function(*args, **kwargs)


@contextlib.contextmanager
def _switched_off() -> Iterator[None]:
    """Switch the recorder off in the block."""
    is_first = torch._C._len_torch_function_stack() == 1
    around = _pop_mode_temporarily() if is_first else contextlib.nullcontext()
    with around, _disable_current_modes():
        yield


def _unavailable(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Refusal | None:
    """Reason why this call cannot be recorded, or None."""
    given = [own for own in (*args, *kwargs.values()) if isinstance(own, torch.Tensor)]
    if any(map(has_attributes, given)):
        return Refusal(Kind.HOST, "an input has attributes", passes=True)
    if torch._C._len_torch_function_stack():
        return Refusal(Kind.HOST, "a mode of torch.overrides is on", passes=True)
    reason = _core.Recording.unavailable()
    return None if reason is None else Refusal(Kind.DYNAMO, reason, passes=True)


@dataclass(slots=True)
class _Run:
    """A call that was recorded.

    Attributes:
        returned: the return value of the program.
        recording: the watched Python code.
        recorder: the recorded operators.
        given: the inputs of the graph: tensors among the arguments, each once, then integers that may vary.
        asks: whether the program asks if it is compiled.
    """

    returned: Any
    recording: _core.Recording
    recorder: Recorder
    given: list[torch.Tensor]
    asks: bool

    def repeats(self, *, replays: bool = False) -> bool:
        """Whether the call can be made again without a difference."""
        return not (self.recorder.saw_change or replays)


def _recorded(
    model: torch.nn.Module,
    program: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: RecordingOptions,
) -> tuple[Any, Recorded | Refusal]:
    start = time.perf_counter()
    recording, recorder = _prepared(model, options)
    tensors: dict[int, torch.Tensor] = {}
    for name, own in [*named_arguments(program, args), *kwargs.items()]:
        if isinstance(own, torch.Tensor) and id(own) not in tensors:
            tensors[id(own)] = own
            recorder.placeholder(name, own)
    given = list(tensors.values())
    for number, place in options.integers.items():
        own = args[place] if isinstance(place, int) else kwargs[place]
        size, symbol = recorder.integer(f"integer_{number}", own)
        given.append(size)
        if isinstance(place, int):
            args = (*args[:place], symbol, *args[place + 1 :])
        else:
            kwargs = {**kwargs, place: symbol}
    collections = _collections()
    returned = _watched(recording, recorder, program, args, kwargs)
    try:
        made = _finished(recording, recorder, program, returned, given, collections, options)
    except RecursionError:
        made = Refusal(Kind.HOST, "something that it takes or returns is nested too deeply")
    if isinstance(made, Recorded):
        made = replace(made, seconds=time.perf_counter() - start)
    return returned, made


def _finished(
    recording: _core.Recording,
    recorder: Recorder,
    program: Callable[..., Any],
    returned: Any,
    given: list[torch.Tensor],
    collections: list[int],
    options: RecordingOptions,
) -> Recorded | Refusal:
    """The program of a call that has been made, or the reason why there is none."""
    found = recording.finish(
        program, given, list(options.structures or ()), options.structures is not None
    )
    asks = any(recording.entered(own.__code__) for own in _ASKS)
    run = _Run(returned, recording, recorder, given, asks)
    if _collections() != collections:
        # Whether the program has made an object is seen by the object's generation.
        return Refusal(Kind.HOST, "garbage was collected while it was recorded", passes=True)
    refusal = _refusal(run, found if isinstance(found[0], str) else None)
    if refusal is not None:
        return refusal
    guards, held = found
    return _made(run, guards, held, options)


def _prepared(
    model: torch.nn.Module, options: RecordingOptions
) -> tuple[_core.Recording, Recorder]:
    """A recording and a recorder, which do not watch yet."""
    no_prints = options.trains or options.structures is None
    deferred = None if no_prints else Deferred(_watched.__code__)
    recording = _core.Recording(
        _ours(),
        [own.forward.__code__ for own in MODULES],
        known_code(),
        [_APPLY] if options.trains else [],
        [*Deferred.CODES, *markers.breaks()],
        _Callbacks(
            _unrecorded,
            lambda function: (
                functools.partial(_hosted, function, recorder),
                recorder.called is not None and calls_operator(function),
            ),
            lambda *call: recorder.note_deferred(*call),
            lambda begins: recorder.assume(begins),
        ),
    )
    for setting in _SETTINGS:
        recording.ask(setting)
    for setting in _OF_AUTOCAST:
        recording.ask_on_entry(torch.autocast.__enter__.__code__, *setting)
    recording.count(list(options.counters))
    names = {id(own): name for name, own in named_weights(model)}
    recorder = Recorder(recording, names, options, deferred)
    return recording, recorder


def _watched(
    recording: _core.Recording,
    recorder: Recorder,
    program: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The return value of the program, which is watched."""
    gradients, deferred = torch.is_grad_enabled(), recorder.deferred
    around, markers.here.recorder = markers.here.recorder, recorder
    try:
        with recorder.watch, recorder:
            recorder.begin()
            returned = recording.run(program, args, kwargs)
            recorder.end()
    finally:
        markers.here.recorder = around
        if deferred is not None:
            deferred.end()
    if deferred is not None and deferred.warns:
        recording.ask(warnings_are_raised)
    if torch.is_grad_enabled() is not gradients:
        recorder.refuse("it leaves gradients switched on or off")
    return returned


def _refusal(run: _Run, refused: tuple[str, str] | None) -> Refusal | None:
    """The reason why a call is no program, of the recorder or, in ``refused``, of the watched Python code."""
    recorder = run.recorder
    if recorder.refusal is not None and not (refused is not None and refused[0] == "opaque"):
        depends = recorder.refusal.kind is Kind.DYNAMO
        repeats = depends and run.repeats() and refused is None
        return replace(recorder.refusal, by_values=depends and run.asks, repeats=repeats)
    if refused is None:
        return None
    kind, reason = refused
    # Of classes, iterators and the like, Dynamo may silently do something else.
    who = Kind.HOST if kind in ("opaque", "writes") else Kind.DYNAMO
    by_values = run.asks and bool(recorder.values.nodes)
    line = run.recording.refused_at()
    return Refusal(who, reason, passes=kind != "torch", by_values=by_values, line=line)


def _made(
    run: _Run, guards: _core.Guards, held: Any, options: RecordingOptions
) -> Recorded | Refusal:
    """The program of a call, or the reason why there is none."""
    recorder, given = run.recorder, run.given
    if any(map(has_attributes, held["tensors"])):
        return Refusal(
            Kind.HOST, "a tensor in its state or its arguments has attributes", passes=True
        )
    numbers = {id(own): number for number, own in enumerate(held["objects"])}
    found_again = bool(options.structures or held["tensors"] or numbers)
    deferred = recorder.deferred
    prints = deferred is not None and deferred.calls
    replays = bool(found_again or recorder.memory.overwritten or prints)
    if deferred is not None and any(map(run.recording.made, deferred.files())):
        return Refusal(Kind.DYNAMO, "it prints to a file that it opens", passes=True)
    written: list[torch.Tensor] = []
    template = replay = None
    try:
        if found_again or recorder.sizes is not None:
            given += recorder.state(held["tensors"])
        if options.rewritten is not None:
            written = recorder.rewritten(given)
            given += written
        if replays:
            replay = recorder.results.replay(run.returned, given, numbers, held["edits"])
        else:
            template = recorder.results.output(run.returned)
        reads = recorder.values.decisions()
        if reads and run.asks and not options.compiling:
            reason = f"the values of a tensor decide ({name_of(next(iter(reads)).target)})"
            repeats = run.repeats(replays=replays)
            return Refusal(Kind.DYNAMO, reason, by_values=True, repeats=repeats)
        if recorder.refusal is not None:
            return recorder.refusal
    except TraceError as error:
        repeats = run.repeats(replays=replays)
        return Refusal(who_runs(error), str(error), passes=replays, repeats=repeats)
    sizes, layouts = None, recorder.results.layouts
    is_of_sizes = any(own is not None and own.order is None for own in layouts or ())
    if recorder.sizes is not None and not (recorder.asks_form or is_of_sizes):
        sizes = recorder.sizes.finished(recorder.weights, given, reads)
    recorder.drop_scales()
    stages = _stages(run, reads, held["counted"])
    called = recorder.called
    state = recorder.weights if called is None else {**recorder.weights, **called.modules()}
    module = GraphModule._with_code_put_off(state, recorder.graph)
    module.training = False
    read = list(recorder.weights.values())
    kept = {id(own) for own in read}
    return Recorded(
        module=module,
        template=template,
        guards=guards,
        tensors=read,
        typed=recorder.typed(given),
        statistics=[own for key, own in recorder.statistics.items() if key in kept],
        form=form_of(given) if recorder.asks_form else None,
        state=held["tensors"] if found_again else None,
        rewritten=tuple(written),
        overwritten=recorder.memory.indices_overwritten(given),
        integers=tuple(options.integers),
        replay=replay,
        sizes=sizes,
        stages=stages,
        layouts=layouts,
        repeats=run.repeats(),
        called=called,
    )


def _stages(run: _Run, reads: Any, counted: Any) -> Staged | None:
    """The graph in stages; None if neither values that are read nor numbers in state decide."""
    if not (reads or counted):
        return None
    recorder = run.recorder
    decisions = Decisions(
        reads=reads,
        numbers=recorder.values.numbers,
        conditions=run.recording.conditions_on_values(),
        scalars=recorder.as_tensors,
        writing=recorder.writing,
        sizes=() if recorder.sizes is None else recorder.sizes.numbers(),
        state=counted,
        written_inputs=recorder.written_inputs(),
        rewinds=recorder.memory.indices_overwritten(run.given) if recorder.values.rewinds else None,
    )
    return staged(recorder.graph, recorder.weights, decisions)


__all__ = ["Recorded", "form_of", "named_arguments", "named_weights", "record"]
