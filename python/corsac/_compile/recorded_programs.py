"""Recorded programs on the engine."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from corsac import _core
from corsac._capture.calls import Call, places_of, state_of
from corsac._capture.collection import no_collection
from corsac._capture.record import Recorded
from corsac._capture.recordings import PROGRAMS, Entry, Recordings, random_numbers_kept
from corsac._capture.refusal import Refusal
from corsac._capture.replay import Edit, Replay
from corsac._capture.result_template import ResultTemplate
from corsac._capture.rewritten import Rewritten
from corsac._capture.stages import Failure, Staged, StagedRun, Stages
from corsac._compile import verify
from corsac._compile.staged_program import CompiledStages, HostedStage
from corsac._engine.module import why_not_native
from corsac._engine.native_graph import (
    Compiled,
    CompileError,
    FailedAfterwards,
    GraphFailed,
    NativeGraph,
    Packed,
)
from corsac._messages.report_text import shortened
from corsac._native.call import NativeCall
from corsac._native.options import INFERENCE, Settings
from corsac._native.panic import EngineError, as_compile_error
from corsac._native.race import Choice, Race
from corsac._native.strides import Layout, laid_out
from corsac._pytorch.autocast import WithoutAutocast, without_autocast
from corsac.fx import GraphModule
from corsac.fx.proxy import TraceError
from corsac.lowering import LoweringError
from corsac.passes import fold_constants
from corsac.passes._target import graph_of

#: Text in reasons of results that share memory, which PyTorch computes as views.
_SHARES = "shares memory with"


@dataclass(frozen=True, slots=True, eq=False)
class NativeProgram:
    """A recorded program compiled by the engine, with the template or replay that builds its return value."""

    template: ResultTemplate | None
    replay: Replay | None
    #: None if control flow depends on values.
    graph: NativeGraph | None
    compiled: Compiled
    #: Whether it writes to inputs, which share no memory with other tensors.
    overwrites: bool = False
    #: Numbers found in state when it was recorded, which may be others in each call, by their names.
    numbers: Mapping[str, float] = field(default_factory=dict)
    #: As in :class:`corsac._capture.record.Recorded`.
    layouts: tuple[Layout | None, ...] | None = None
    #: Tensors that the graph reads besides its inputs, if calls are verified.
    weights: tuple[torch.Tensor, ...] = ()
    #: Races of the same program for other sizes, by the size class of the inputs.
    races: dict[int, Race] = field(default_factory=dict)

    def __call__(self, call: Call) -> Any:
        results, values = self._results(call)
        try:
            if self.replay is not None:
                return self.replay(results, call.inputs, call.met, values)
            if self.template is not None:
                return self.template.build(results, values=values)
        except Exception as error:
            raise FailedAfterwards(error) from error
        return results

    def builds(self) -> Callable[[Any], Any] | None:
        """A function of the graph's results that returns those of the program; None if they are the same."""
        build = None if self.template is None else self.template.build
        if (layouts := self.layouts) is None:
            return build
        if build is None:
            return lambda results: laid_out(results, layouts)
        return lambda results: build(laid_out(results, layouts))

    def replays(self) -> Callable[[Any, Any, Any, Any], Any] | None:
        """A function of the graph's results, inputs, found objects and numbers that changes state; None if the program
        changes none."""
        replay, layouts, numbers = self.replay, self.layouts, self.numbers
        if replay is None or (layouts is None and not numbers):
            return replay

        def run(results: Any, inputs: Any, objects: Any, found: Mapping[str, Any]) -> Any:
            laid = results if layouts is None else laid_out(results, layouts)
            return replay(laid, inputs, objects, {**numbers, **found})

        return run

    def outcome(self, call: Call) -> tuple[Any, list[Edit]]:
        """The result of a call, and its changes of state, which are not made."""
        results, values = self._results(call)
        if self.replay is not None:
            return self.replay.outcome(results, call.inputs, call.met, values)
        if self.template is not None:
            return self.template.build(results, values=values), []
        return results, []

    def decides(self) -> Callable[[Call], bool] | None:
        """A function that returns whether the values of a call are those the program is for; None if none matter."""
        compiled = self.compiled
        return compiled.run.decides_quietly if isinstance(compiled, CompiledStages) else None

    def _results(self, call: Call) -> tuple[Any, Mapping[str, Any]]:
        """The results of the graph, and the values that were read.

        Raises:
            GraphFailed: an operator that PyTorch runs has raised an exception.
        """
        try:
            if isinstance(self.compiled, CompiledStages):
                if self.compiled.choice.race is not None:
                    # During a race all stages are measured, so none is reused.
                    call.rewind()
                    call.ran.clear()
                    call.changes = self.compiled.run.changes(call.inputs)
                results, values = self.compiled.run.results(call)
            else:
                results, values = self.compiled.run(*call.inputs), {**self.numbers, **call.numbers}
        except (ValueError, EngineError):
            raise
        except Exception as error:
            raise GraphFailed(error) from error
        if self.layouts is not None:
            results = laid_out(results, self.layouts)
        return results, values


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call that was recorded, for :class:`corsac._core.Runner`.

    Attributes:
        keywords: its keyword arguments.
        guards: check that Python would do the same again.
        structures: those of the arguments that may be other objects in each call.
        inputs: the inputs of the program.
        found: indices, among the inputs, of the tensors that guards find; None if the program looks at no state.
        rewritten: those inputs, the last ones, whose values differ between calls although they are the same tensors.
        build: converts the results of the graph to the return value; None if they are equal.
        replay: the same, from results, inputs, found objects and found numbers; changes state.
    """

    keywords: dict[str, Any]
    guards: _core.Guards
    structures: tuple[Any, ...]
    inputs: tuple[torch.Tensor, ...]
    found: list[int] | None
    rewritten: tuple[torch.Tensor, ...]
    build: Callable[[Any], Any] | None
    replay: Callable[[Any, Any, Any, Any], Any] | None


class RecordedPrograms:
    """The programs of a model that the engine runs.

    Args:
        model: the owner of the weights.
        program: the function to call: the model itself, or a function of it.
        settings: as for :func:`corsac.compile`. With ``fullgraph``, all of a program must be native. With ``dynamic``,
            programs have symbolic sizes from the first one on, never, or (None) for sizes that vary.
        runner: runs programs for ordinary calls without Python code in between.
    """

    #: Whether results share memory where PyTorch's do; otherwise all are new, and the program is whole.
    keeps_views: ClassVar[bool] = True

    def __init__(
        self,
        model: torch.nn.Module,
        program: Callable[..., Any],
        settings: Settings,
        runner: _core.Runner,
    ) -> None:
        self._settings, self._runner = settings, runner
        #: Whether calls are left to PyTorch where it is faster.
        self._measures = settings.inference == INFERENCE[0] and not settings.fullgraph
        #: Packed weights shared by graphs, as long as the tensors of all earlier ones are unchanged.
        self._packed = Packed()
        self._packed_of: list[_core.ModelGuards] = []
        self._lock = threading.RLock()
        self._recordings = Recordings(
            model,
            program,
            self._made,
            forget=self._forget,
            replays=True,
            resize=None if settings.dynamic is False else self._resized,
            decides=not settings.fullgraph,
            writes=True,
            dynamic=bool(settings.dynamic),
            casts=True,
        )
        self._stages: Stages = Stages()
        self._recordings.failures = (
            TraceError,
            CompileError,
            LoweringError,
            _core.ShapeInferenceError,
        )
        self.call = self._recordings.call
        self.find = self._recordings.find
        self.look_again = self._recordings.look_again
        self.refuse = self._recordings.refuse
        self.rewritten = self._recordings.rewritten

    def record(
        self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Entry | Refusal | None]:
        """As :meth:`corsac._capture.recordings.Recordings.record`."""
        self._recordings.used(self._runner.take_ran())
        result, made = self._recordings.record(call, args, kwargs)
        if isinstance(made, Entry):
            assert isinstance(made.run, NativeProgram)
            made.run.compiled.choice.expect(result)
            self.settle(made, call, args, kwargs)
        return result, made

    def programs(self) -> list[NativeProgram]:
        """All compiled programs."""
        made = [own.run for own in self._recordings.entries()]
        return [own for own in made if isinstance(own, NativeProgram)]

    def explain(self, guards: bool = False) -> list[str]:
        """The compiled programs by call, with their guards if ``guards``, and the reasons for calls that are not
        compiled, as lines of text."""
        lines = []
        for entry in self._recordings.entries():
            assert isinstance(entry.run, NativeProgram)
            about = [f"{entry.call.describe()}: {entry.run.compiled.explain()}"]
            if entry.state:
                about.append(f"inputs from state or containers: {len(entry.state)}")
            if entry.changes:
                about.append(f"changes of state: {len(entry.run.replay or ())}")
            lines.append("; ".join(about))
            if guards:
                lines.append(f"  guarded places: {len(entry.guards)}")
                lines += ["  " + line for line in self._recordings.guards_as_text(entry)]
        lines += self._recordings.recompilations.explain()
        alike: dict[str, list[str]] = {}
        for key, refusal in self._recordings.items():
            alike.setdefault(refusal.reason, []).append(f"({Call((), key).describe()})")
        for reason, calls in alike.items():
            # A single call is described without brackets, like compiled ones.
            described = calls[0][1:-1] if len(calls) == 1 else shortened(calls)
            lines.append(f"{described}: not compiled: {reason}")
        return lines

    def _made(self, call: Call, recorded: Recorded) -> Entry:
        start = time.perf_counter()
        state, found = state_of(call, recorded, why_not_native)
        for own in recorded.rewritten:
            if (reason := why_not_native("a tensor that it writes to", own)) is not None:
                raise CompileError(reason)
        call.inputs = (*call.given(recorded.integers), *found, *recorded.rewritten)
        model_guards = _model_guards(recorded.tensors, recorded.statistics, recorded.typed)
        if not model_guards.counts_writes:
            raise CompileError(
                "weights made in inference mode do not tell when they are written to"
            )
        module = recorded.module
        with self._compiling():
            if self._is_packed_in_vain():
                self._packed, self._packed_of = Packed(), []
            stages = recorded.stages
            if stages is None or stages.is_whole():
                overwrites = bool(recorded.overwritten)
                graph = self._graph(module, overwrites)
                replay = recorded.replay
                program = self._program(graph, recorded.template, replay, overwrites, call, start)
                program = replace(program, numbers={} if stages is None else stages.state)
            else:
                program = self._in_stages(recorded, stages, call, start)
            self._packed_of.append(model_guards)
        rewinds = stages is not None and stages.rewinds is not None
        program.compiled.repeats = recorded.repeats or rewinds
        weights = tuple(recorded.tensors) if verify.ON else ()
        return Entry(
            Call((), call.key, call.objects),
            replace(program, layouts=recorded.layouts, weights=weights),
            recorded.guards,
            model_guards,
            recorded.form,
            state,
            changes=recorded.replay is not None and len(recorded.replay) > 0,
            sizes=recorded.sizes,
            decides=program.decides(),
            rewritten=_rewritten(recorded),
            integers=recorded.integers,
            constants=tuple(
                (number, own)
                for number, (_, own) in enumerate(call.integers)
                if number not in recorded.integers
            ),
            decided=_decided(program),
        )

    def _is_packed_in_vain(self) -> bool:
        """Whether tensors whose packed form is shared have changed, or most belong to programs that were dropped."""
        if not all(own.is_current() for own in self._packed_of):
            return True
        used = {id(own.model_guards) for own in self._recordings.entries()}
        dropped = sum(id(own) not in used for own in self._packed_of)
        return dropped > max(len(used), PROGRAMS)

    def _graph(self, module: GraphModule, overwrites: bool) -> NativeGraph:
        fold_constants(module)
        strict = self.keeps_views or overwrites
        return NativeGraph(
            module, precision=self._settings.precision, strict=strict, packed=self._packed
        )

    def _in_stages(
        self, recorded: Recorded, program: Staged, call: Call, start: float
    ) -> NativeProgram:
        """A program in stages, shared with programs that have the same beginning."""
        overwrites = bool(recorded.overwritten)
        make = functools.partial(self._stage, overwrites=overwrites)
        run = StagedRun(program, graph_of(recorded.module), self._stages, make, _model_guards)
        try:
            run.prepare(call.inputs)
        except self._recordings.failures:
            raise
        except Exception:
            # The recorded call has written to inputs: the next one compiles the remaining stages.
            pass
        compiled = CompiledStages(run, time.perf_counter() - start)
        reason = compiled.why_not_native()
        if reason is not None and not self.programs():
            # Without other programs there is no shared native beginning either.
            raise CompileError(reason)
        if self._measures:
            compiled.measure()
        return NativeProgram(recorded.template, recorded.replay, None, compiled, overwrites)

    def _stage(
        self, module: GraphModule, *, overwrites: bool
    ) -> Callable[[Sequence[Any]], Callable[..., Any]]:
        """A function that compiles a stage for given inputs."""
        graph = self._graph(module, overwrites)

        def compile(inputs: Sequence[Any]) -> Callable[..., Any]:
            with self._compiling():
                try:
                    run, preview = graph.compile(tuple(inputs), whole=False, apart=overwrites)
                except (CompileError, _core.ShapeInferenceError) as error:
                    # PyTorch runs operators that fail, and raises its own errors.
                    return HostedStage(WithoutAutocast(module.forward), str(error))
                return run if preview is None else HostedStage(WithoutAutocast(run), preview)

        return compile

    def _resized(self, call: Call, entry: Entry) -> Entry:
        """Compile a program with symbolic sizes for the sizes of a call."""
        start = time.perf_counter()
        self._recordings.used(self._runner.take_ran())
        known = entry.run
        assert isinstance(known, NativeProgram)
        if known.graph is None:
            compiled = replace(known.compiled, choice=Choice())
            program = replace(known, compiled=compiled)
            if self._measures:
                compiled.measure()
        else:
            with self._compiling():
                program = self._program(
                    known.graph, known.template, known.replay, known.overwrites, call, start
                )
        program.compiled.repeats = known.compiled.repeats
        # Similar sizes share a race.
        scale = sum(own.numel() for own in call.inputs).bit_length()
        compiled = program.compiled
        if compiled.choice.race is not None:
            compiled.choice.join(known.races.setdefault(scale, compiled.choice.race))
        state = entry.state
        if state is not None:
            found = call.state(entry.guards)
            if found is None:
                raise CompileError("another thread has changed the state")
            state = found[0]
        return replace(
            entry,
            call=Call((), call.key, call.objects),
            run=replace(
                program, layouts=known.layouts, weights=known.weights, numbers=known.numbers
            ),
            state=state,
            sizes=None,
            decides=program.decides(),
        )

    @contextlib.contextmanager
    def _compiling(self) -> Iterator[None]:
        with (
            self._lock,
            as_compile_error("it compiled a program"),
            no_collection(),
            torch.no_grad(),
            # Types of calls without a rule are found by running them.
            random_numbers_kept(),
            without_autocast(),
        ):
            yield

    def _program(
        self,
        graph: NativeGraph,
        template: ResultTemplate | None,
        replay: Replay | None,
        overwrites: bool,
        call: Call,
        start: float,
    ) -> NativeProgram:
        """A graph compiled for the inputs of a call."""
        try:
            run, preview = graph.compile(call.inputs, whole=False, apart=overwrites)
        except CompileError as error:
            if _SHARES not in str(error) or not self._settings.fullgraph:
                raise
            # Not at the top: it takes longer to import than most programs to compile.
            from corsac.lowering import Preview

            # It consists of views only.
            run, preview = graph.module.forward, Preview("corsac", (), ())
        if preview is not None:
            run = WithoutAutocast(run)
        host = [] if preview is None else [own for own in preview.host if _SHARES not in own.reason]
        if self._settings.fullgraph and host:
            raise CompileError(f"{host[0].node} ({host[0].target}): {host[0].reason}")
        kept = graph.is_kept(run, call.inputs)
        compiled = Compiled(run, time.perf_counter() - start, preview, kept)
        if self._measures:
            compiled.measure()
        return NativeProgram(template, replay, graph, compiled, overwrites)

    def runs_unseen(self, entry: Entry, call: Call) -> bool:
        """Whether the runner could run calls like this one, without Python code that looks for the program."""
        program = entry.run
        return (
            isinstance(program, NativeProgram)
            and not verify.ON
            and isinstance(program.compiled.run, NativeCall)
            and not entry.integers
            and entry.form is None
            and (entry.state is not None or not call.structures)
            and (program.replay is not None or not program.numbers)
            and all(type(own) is torch.Tensor for own in call.inputs)
        )

    def settle(
        self, entry: Entry, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Let the runner run calls with such arguments from now on, if it supports them and native code is faster."""
        if not self.runs_unseen(entry, call):
            return
        program = entry.run
        assert isinstance(program, NativeProgram)
        choice = program.compiled.choice
        if choice.race is not None or choice.is_slower():
            return
        state, rewritten = entry.state, entry.rewritten
        recorded = RecordedCall(
            keywords=kwargs,
            guards=entry.guards,
            structures=call.structures,
            inputs=call.inputs,
            found=None if state is None else places_of(state, len(call.tensors)),
            rewritten=() if rewritten is None else rewritten.tensors,
            build=program.builds(),
            replay=program.replays(),
        )
        self._runner.add(entry, program.compiled.run.program, args, entry.model_guards, recorded)

    def _forget(self, entry: Entry) -> None:
        self._runner.remove(entry)


def _model_guards(
    weights: Iterable[torch.Tensor],
    statistics: list[torch.Tensor] | None = None,
    typed: Iterable[torch.Tensor] = (),
) -> _core.ModelGuards:
    """Guards on the tensors that a program reads besides its inputs."""
    constants = [(None, own) for own in weights]
    return _core.ModelGuards(
        torch.nn.Module(), constants=constants, contents=statistics or [], typed=list(typed)
    )


def _decided(program: NativeProgram) -> Callable[[], Failure | None]:
    """A function that returns why the last call was for another program."""
    compiled = program.compiled
    run = compiled.run if isinstance(compiled, CompiledStages) else None
    return lambda: None if run is None else run.failure


def _rewritten(recorded: Recorded) -> Rewritten | None:
    """The check before runs of a program with tensors whose values differ between calls; None if there are none."""
    if not (recorded.rewritten or recorded.overwritten):
        return None
    return Rewritten(recorded.rewritten, recorded.overwritten, recorded.tensors)


__all__ = ["NativeProgram", "RecordedPrograms"]
