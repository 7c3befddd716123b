"""Recorded programs, run by the engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from corsac import _core
from corsac._collection import no_collection
from corsac._native import NativeCall
from corsac._native_graph import Compiled, CompileError, NativeGraph
from corsac._panic import as_compile_error
from corsac._recorder import Recorded, Refusal
from corsac._recordings import Call, Entry, Recordings
from corsac._report_text import shortened
from corsac._result_template import ResultTemplate
from corsac.fx.proxy import TraceError
from corsac.lowering import LoweringError
from corsac.passes import fold_constants

#: Why PyTorch makes the views that programs return.
_SHARES = "shares memory with"


@dataclass(frozen=True, slots=True, eq=False)
class NativeProgram:
    """A program of the engine, and what makes of its results what the program returns."""

    template: ResultTemplate | None
    graph: NativeGraph
    compiled: Compiled

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        results = self.compiled.run(*tensors)
        return results if self.template is None else self.template.build(results)


class RecordedPrograms:
    """The programs of a model that the engine runs.

    Args:
        model: has the weights.
        program: is called; the model itself, or a function.
        precision: as for :func:`corsac.compile`.
        fullgraph: whether PyTorch may run a part.
        measures: whether calls are left to PyTorch where it is faster.
        runner: runs programs without a step of Python where nothing is special about a call.
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
    ) -> None:
        self._precision, self._fullgraph, self._runner = precision, fullgraph, runner
        self._measures = measures
        #: The graph compiled last, with whose weights others share what is packed, as long as all tensors of
        #: those before are as they were.
        self._last: NativeGraph | None = None
        self._packed: list[_core.Watch] = []
        self._lock = threading.RLock()
        self._recordings = Recordings(model, program, self._made, forget=self._forget)
        self._recordings.failures = (
            TraceError,
            CompileError,
            LoweringError,
            _core.ShapeInferenceError,
        )
        self.find = self._recordings.find
        self.look_again = self._recordings.look_again
        self.refuse = self._recordings.refuse

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

    def explain(self) -> list[str]:
        """What was compiled for which calls, and why the others were not, a line each."""
        lines = []
        for entry in self._recordings.entries():
            assert isinstance(entry.run, NativeProgram)
            lines.append(f"{entry.call.describe()}: {entry.run.compiled.explain()}")
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
        watch = _core.Watch(
            torch.nn.Module(),
            constants=[(None, own) for own in recorded.tensors],
            contents=recorded.statistics,
        )
        if not watch.counts_writes:
            raise CompileError(
                "weights made in inference mode do not tell when they are written to"
            )
        module = recorded.module
        with (
            self._lock,
            as_compile_error("it compiled a program"),
            no_collection(),
            torch.no_grad(),
        ):
            fold_constants(module)
            if not all(own.is_current() for own in self._packed):
                self._last, self._packed = None, []
            graph = NativeGraph(
                module, precision=self._precision, strict=self.keeps_views, after=self._last
            )
            try:
                run, preview = graph.compile(call.tensors, whole=False)
            except CompileError as error:
                if _SHARES not in str(error) or not self._fullgraph:
                    raise
                # Not at the top: it takes longer to import than most programs to compile.
                from corsac.lowering import Preview

                # There is nothing in it but views.
                run, preview = module.forward, Preview("corsac", (), ())
            self._last = graph
            self._packed.append(watch)
        host = [] if preview is None else [own for own in preview.host if _SHARES not in own.reason]
        if self._fullgraph and host:
            raise CompileError(f"{host[0].node} ({host[0].target}): {host[0].reason}")
        seconds = time.perf_counter() - start
        kept = graph.is_kept(run, call.tensors)
        compiled = Compiled(run, seconds, preview, kept)
        if self._measures:
            compiled.measure()
        program = NativeProgram(recorded.template, graph, compiled)
        known = Call((), call.key, call.objects)
        return Entry(known, program, recorded.guards, watch, recorded.form)

    def settle(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Have calls with such arguments run by native code from now on, if it knows them and is faster."""
        program = entry.run
        tensors = [own for own in args if isinstance(own, torch.Tensor)]
        if (
            isinstance(program, NativeProgram)
            and not kwargs
            and program.compiled.choice.race is None
            and not program.compiled.choice.is_slower()
            and isinstance(program.compiled.run, NativeCall)
            and program.template is None
            and entry.form is None
            and len({id(own) for own in tensors}) == len(tensors)
            and all(type(own) is int or type(own) is torch.Tensor for own in args)
        ):
            native = program.compiled.run.program
            self._runner.add(entry, native, args, entry.watch, entry.guards, distinct=True)

    def _forget(self, entry: Entry) -> None:
        self._runner.remove(entry)


__all__ = ["NativeProgram", "RecordedPrograms"]
