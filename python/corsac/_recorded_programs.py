"""Recorded programs, run by the engine."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from corsac import _core, _verify
from corsac._collection import no_collection
from corsac._engine_module import why_not_native
from corsac._native import NativeCall
from corsac._native_graph import Compiled, CompileError, GraphFailed, NativeGraph, Packed
from corsac._panic import EngineError, as_compile_error
from corsac._race import Choice, Race
from corsac._record import Recorded
from corsac._recordings import Call, Entry, Recordings, random_numbers_kept, state_of
from corsac._refusal import Refusal
from corsac._replay import Edit, Replay
from corsac._report_text import shortened
from corsac._result_template import ResultTemplate
from corsac._rewritten import Rewritten
from corsac._staged_program import CompiledStages, HostedStage
from corsac._stages import Failure, Staged, StagedRun, Stages
from corsac._strides import Layout, laid_out
from corsac.fx import GraphModule
from corsac.fx.proxy import TraceError
from corsac.lowering import LoweringError
from corsac.passes import fold_constants

#: Why PyTorch makes the views that programs return.
_SHARES = "shares memory with"


@dataclass(frozen=True, slots=True, eq=False)
class NativeProgram:
    """A program of the engine, and what makes of its results what the program returns."""

    template: ResultTemplate | None
    replay: Replay | None
    #: None if values decide.
    graph: NativeGraph | None
    compiled: Compiled
    #: Whether it writes to inputs, which share no memory with anything else.
    overwrites: bool = False
    #: As of :class:`corsac._record.Recorded`.
    layouts: tuple[Layout | None, ...] | None = None
    #: Tensors that the graph reads and that are no inputs, if calls are verified.
    weights: tuple[torch.Tensor, ...] = ()
    #: Tries of programs for other sizes, by how large inputs are.
    races: dict[int, Race] = field(default_factory=dict)

    def __call__(self, call: Call) -> Any:
        results, values = self._results(call)
        if self.replay is not None:
            return self.replay(results, call.inputs, call.met, values)
        if self.template is not None:
            return self.template.build(results, values=values)
        return results

    def outcome(self, call: Call) -> tuple[Any, list[Edit]]:
        """What a call returns, and the changes of state, which are not made."""
        results, values = self._results(call)
        if self.replay is not None:
            return self.replay.outcome(results, call.inputs, call.met, values)
        if self.template is not None:
            return self.template.build(results, values=values), []
        return results, []

    def decides(self) -> Callable[[Call], bool] | None:
        """Tells whether values decide that a call is for it; None if none do."""
        compiled = self.compiled
        return compiled.run.decides_quietly if isinstance(compiled, CompiledStages) else None

    def _results(self, call: Call) -> tuple[Any, Mapping[str, Any]]:
        """What the graph gives, and values that were read.

        Raises:
            GraphFailed: an operator that PyTorch runs has raised an exception.
        """
        try:
            if isinstance(self.compiled, CompiledStages):
                if self.compiled.choice.race is not None:
                    # While it is tried who is faster, all of it is measured.
                    call.rewind()
                    call.ran.clear()
                    call.changes = self.compiled.run.changes(call.inputs)
                results, values = self.compiled.run.results(call)
            else:
                results, values = self.compiled.run(*call.inputs), {}
        except (ValueError, EngineError):
            raise
        except Exception as error:
            raise GraphFailed(error) from error
        if self.layouts is not None:
            results = laid_out(results, self.layouts)
        return results, values


class RecordedPrograms:
    """The programs of a model that the engine runs.

    Args:
        model: has the weights.
        program: is called; the model itself, or a function.
        precision: as for :func:`corsac.compile`.
        fullgraph: whether PyTorch may run a part.
        measures: whether calls are left to PyTorch where it is faster.
        runner: runs programs without a step of Python where nothing is special about a call.
        dynamic: whether a program may be for many sizes: from the first one on, never, or (None) where sizes were others.
    """

    #: Whether results share memory where PyTorch's do. Programs of which they are all new are whole.
    keeps_views: ClassVar[bool] = True

    def __init__(
        self,
        model: torch.nn.Module,
        program: Callable[..., Any],
        precision: str,
        fullgraph: bool,
        measures: bool,
        runner: _core.Runner,
        dynamic: bool | None,
    ) -> None:
        self._precision, self._fullgraph, self._runner = precision, fullgraph, runner
        self._measures = measures
        #: What graphs share, as long as all tensors of those before are as they were.
        self._packed = Packed()
        self._packed_of: list[_core.Watch] = []
        self._lock = threading.RLock()
        self._recordings = Recordings(
            model,
            program,
            self._made,
            forget=self._forget,
            replays=True,
            resize=None if dynamic is False else self._resized,
            decides=not fullgraph,
            writes=True,
            dynamic=bool(dynamic),
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
        """As :meth:`corsac._recordings.Recordings.record` says."""
        self._recordings.used(self._runner.recent())
        result, made = self._recordings.record(call, args, kwargs)
        if isinstance(made, Entry):
            assert isinstance(made.run, NativeProgram)
            made.run.compiled.choice.expect(result)
            self.settle(made, args, kwargs)
        return result, made

    def programs(self) -> list[NativeProgram]:
        """All that there are."""
        made = [own.run for own in self._recordings.entries()]
        return [own for own in made if isinstance(own, NativeProgram)]

    def explain(self, guards: bool = False) -> list[str]:
        """What was compiled for which calls, with ``guards`` what is looked at before, and why the others were not, a
        line each."""
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
            # Of one call, as those that are compiled are described.
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
        watch = _watch(recorded.tensors, recorded.statistics)
        if not watch.counts_writes:
            raise CompileError(
                "weights made in inference mode do not tell when they are written to"
            )
        module = recorded.module
        with self._compiling():
            if not all(own.is_current() for own in self._packed_of):
                self._packed, self._packed_of = Packed(), []
            if recorded.stages is None:
                overwrites = bool(recorded.overwritten)
                graph = self._graph(module, overwrites)
                replay = recorded.replay
                program = self._program(graph, recorded.template, replay, overwrites, call, start)
            else:
                program = self._in_stages(recorded, recorded.stages, call, start)
            self._packed_of.append(watch)
        rewinds = recorded.stages is not None and recorded.stages.rewinds is not None
        program.compiled.repeats = recorded.repeats or rewinds
        weights = tuple(recorded.tensors) if _verify.ON else ()
        return Entry(
            Call((), call.key, call.objects),
            replace(program, layouts=recorded.layouts, weights=weights),
            recorded.guards,
            watch,
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

    def _graph(self, module: GraphModule, overwrites: bool) -> NativeGraph:
        fold_constants(module)
        strict = self.keeps_views or overwrites
        return NativeGraph(module, precision=self._precision, strict=strict, packed=self._packed)

    def _in_stages(
        self, recorded: Recorded, program: Staged, call: Call, start: float
    ) -> NativeProgram:
        """A program whose values decide, of stages that others have, too, which begin alike."""
        overwrites = bool(recorded.overwritten)
        make = functools.partial(self._stage, overwrites=overwrites)
        run = StagedRun(program, recorded.module.graph, self._stages, make, _watch)
        try:
            run.prepare(call.inputs)
        except self._recordings.failures:
            raise
        except Exception:
            # The call that was recorded has written to inputs: the next one compiles what is left.
            pass
        compiled = CompiledStages(run, time.perf_counter() - start)
        reason = compiled.why_not_native()
        if reason is not None and not self.programs():
            # Other ways are native, and begin with the same.
            raise CompileError(reason)
        if self._measures:
            compiled.measure()
        return NativeProgram(recorded.template, recorded.replay, None, compiled, overwrites)

    def _stage(
        self, module: GraphModule, *, overwrites: bool
    ) -> Callable[[Sequence[Any]], Callable[..., Any]]:
        """What compiles a stage for inputs."""
        graph = self._graph(module, overwrites)

        def compile(inputs: Sequence[Any]) -> Callable[..., Any]:
            with self._compiling():
                try:
                    run, preview = graph.compile(tuple(inputs), whole=False, apart=overwrites)
                except (CompileError, _core.ShapeInferenceError) as error:
                    # Operators that fail say so in PyTorch's words.
                    return HostedStage(module.forward, str(error))
                return run if preview is None else HostedStage(run, preview)

        return compile

    def _resized(self, call: Call, entry: Entry) -> Entry:
        """A program that is for many sizes, for those of a call."""
        start = time.perf_counter()
        self._recordings.used(self._runner.recent())
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
        # Sizes near to each other are tried together.
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
            run=replace(program, layouts=known.layouts, weights=known.weights),
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
            # Types of what has no rule are found by running it.
            random_numbers_kept(),
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
            if _SHARES not in str(error) or not self._fullgraph:
                raise
            # Not at the top: it takes longer to import than most programs to compile.
            from corsac.lowering import Preview

            # There is nothing in it but views.
            run, preview = graph.module.forward, Preview("corsac", (), ())
        host = [] if preview is None else [own for own in preview.host if _SHARES not in own.reason]
        if self._fullgraph and host:
            raise CompileError(f"{host[0].node} ({host[0].target}): {host[0].reason}")
        kept = graph.is_kept(run, call.inputs)
        compiled = Compiled(run, time.perf_counter() - start, preview, kept)
        if self._measures:
            compiled.measure()
        return NativeProgram(template, replay, graph, compiled, overwrites)

    def runs_unseen(self, entry: Entry, args: tuple[Any, ...]) -> bool:
        """Whether calls with such arguments could run natively without a step of Python that looks for a program."""
        program = entry.run
        tensors = [own for own in args if isinstance(own, torch.Tensor)]
        return (
            isinstance(program, NativeProgram)
            and not _verify.ON
            and isinstance(program.compiled.run, NativeCall)
            and program.replay is None
            and program.layouts is None
            and entry.rewritten is None
            and not entry.integers
            and entry.form is None
            and all(own.is_contiguous() for own in tensors)
            and len({id(own) for own in tensors}) == len(tensors)
            and all(type(own) is int or type(own) is torch.Tensor for own in args)
        )

    def settle(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Have calls with such arguments run by native code from now on, if it knows them and is faster."""
        program = entry.run
        if kwargs or not self.runs_unseen(entry, args):
            return
        assert isinstance(program, NativeProgram)
        choice = program.compiled.choice
        if choice.race is None and not choice.is_slower():
            native = program.compiled.run.program
            build = None if program.template is None else program.template.build
            self._runner.add(
                entry, native, args, entry.watch, entry.guards, distinct=True, build=build
            )

    def _forget(self, entry: Entry) -> None:
        self._runner.remove(entry)


def _watch(
    weights: Iterable[torch.Tensor], statistics: list[torch.Tensor] | None = None
) -> _core.Watch:
    """Tells whether tensors are as they were that a program reads and that are no inputs."""
    constants = [(None, own) for own in weights]
    return _core.Watch(torch.nn.Module(), constants=constants, contents=statistics or [])


def _decided(program: NativeProgram) -> Callable[[], Failure | None]:
    """Tells why a call was for another program."""
    compiled = program.compiled
    run = compiled.run if isinstance(compiled, CompiledStages) else None
    return lambda: None if run is None else run.failure


def _rewritten(recorded: Recorded) -> Rewritten | None:
    """What is looked at before a program runs that takes tensors which hold something else in each call."""
    if not (recorded.rewritten or recorded.overwritten):
        return None
    return Rewritten(recorded.rewritten, recorded.overwritten, recorded.tensors)


__all__ = ["NativeProgram", "RecordedPrograms"]
