"""Graphs, and the native programs that the engine compiles from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from corsac import _core, cache
from corsac._messages.report_text import duration, shortened
from corsac._native.call import NativeCall
from corsac._native.race import Choice
from corsac._pytorch.autocast import WithoutAutocast
from corsac.fx import GraphModule
from corsac.passes._target import graph_of

if TYPE_CHECKING:
    from corsac.lowering import Preview
    from corsac.lowering._engine import EnginePart

CompileError = _core.CompileError
#: Smallest number of computations of a native part; smaller parts are left to PyTorch.
LEAST = 3


@dataclass
class Compiled:
    """A compiled program, which runs calls natively or by PyTorch, whichever is faster.

    Attributes:
        run: runs calls natively, except for parts that PyTorch runs.
        seconds: time of capture, if there was one, and compilation.
        preview: placement of nodes, if parts of the graph are left to PyTorch.
        kept: whether an earlier process has made the same program.
        choice: the choice between native code and PyTorch for whole calls.
        parts: the native parts, with a choice for each, if the graph is not native as a whole.
        repeats: whether a failed call has changed nothing, whatever ran its parts.
    """

    run: Callable[..., Any]
    seconds: float
    preview: Preview | None = None
    kept: bool = False
    choice: Choice = field(default_factory=Choice)
    parts: tuple[EnginePart, ...] = ()
    repeats: bool = False

    def may_repeat(self) -> bool:
        """Whether PyTorch may repeat a failed call, since it has changed nothing."""
        return isinstance(self.run, NativeCall) or self.repeats

    def has_written(self) -> bool:
        """Whether a native call that failed may have written to inputs already."""
        return isinstance(self.run, NativeCall) and self.run.program.writes

    def native_programs(self) -> list[_core.NativeProgram]:
        """The native programs of whole graphs."""
        return [self.run.program] if isinstance(self.run, NativeCall) else []

    def measure(self) -> None:
        """Measure native code against PyTorch in the next calls, for the parts first if there are any."""
        self.choice.measure()
        if self.preview is not None:
            # Not at the top: it takes longer to import than most graphs to compile.
            from corsac.lowering._engine import engine_parts

            run = self.run.function if isinstance(self.run, WithoutAutocast) else self.run
            self.parts = engine_parts(run)
            for part in self.parts:
                part.choice.measure()

    def call(self, native: Callable[[], Any], host: Callable[[], Any], lookup: float = 0.0) -> Any:
        """Make a call, by whichever is faster; ``lookup`` is as for :meth:`corsac._native.race.Race.run`."""
        if any(part.choice.race is not None for part in self.parts):
            # The whole is measured after its parts.
            return native()
        return self.choice.call(native, host, lookup)

    def explain(self) -> str:
        made = f"captured and compiled in {duration(self.seconds)}{self._measured_times()}"
        if isinstance(self.run, NativeCall):
            program = self.run.program
            rounded = ", products in bfloat16" if program.precision == "bf16" else ""
            values = f"{program.arena_bytes:,} bytes for values"
            known = ", as in an earlier process" if self.kept else ""
            return f"{program.step_count} steps{rounded}, {values}, {made}{known}"
        assert self.preview is not None
        parts = len(self.preview.parts)
        lines = [f"{parts} native part{'' if parts == 1 else 's'}, {made}; PyTorch runs:"]
        for number, part in enumerate(self.parts):
            if part.choice.is_slower():
                lines.append(f"  part {number}: {part.choice}")
        lines += hosted_nodes(self.preview)
        return "\n".join(lines)

    def _measured_times(self) -> str:
        """The measured times as text, if known."""
        times = str(self.choice)
        return (
            f", {times}"
            if times and not self.choice.is_slower()
            else f", and {times}"
            if times
            else ""
        )


def hosted_nodes(preview: Preview) -> list[str]:
    """The nodes of a graph that PyTorch runs, with reasons, one line for nodes with the same target and reason."""
    alike: dict[tuple[str, str | None], list[str]] = {}
    for row in preview.host:
        alike.setdefault((row.target, row.reason), []).append(row.node)
    lines = []
    for (target, reason), nodes in alike.items():
        several = f"{len(nodes)} × {target} ({shortened(nodes)})"
        lines.append(f"  {several if nodes[1:] else f'{nodes[0]} ({target})'}: {reason}")
    return lines


class Raised(Exception):
    """An exception in a native call that is to reach the program.

    Attributes:
        error: the exception.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class GraphFailed(Raised):
    """An operator of a graph has raised an exception, which the surrounding program might catch."""


class FailedAfterwards(Raised):
    """A step after the graph, on its results, has raised an exception: the call cannot be made again."""


class Packed:
    """Packed weights shared by several graphs: each weight is packed once.

    Attributes:
        last: the model made last. The next one numbers its weights after those of all others.
    """

    def __init__(self) -> None:
        self.last: _core.NativeModel | None = None


class NativeGraph:
    """A graph that the engine compiles for several sets of inputs.

    Args:
        module: the graph, which must not change any more.
        precision: as for :func:`corsac.compile`.
        strict: whether results that share memory with anything else are an error.
        any_rows: whether weights of linear layers are packed once for any number of rows.
        packed: packed weights shared with other graphs, of which one is compiled at a time.
    """

    def __init__(
        self,
        module: GraphModule,
        *,
        precision: str,
        strict: bool,
        any_rows: bool = False,
        packed: Packed | None = None,
    ) -> None:
        self.module = module
        self._precision, self._strict, self._any_rows = precision, strict, any_rows
        self._packed = Packed() if packed is None else packed
        self._native: _core.NativeModel | None = None

    def compile(
        self, inputs: tuple[Any, ...], *, whole: bool, apart: bool = False
    ) -> tuple[Callable[..., Any], Preview | None]:
        """Compile the whole graph into one program, or else into several native parts with PyTorch between them.

        Args:
            inputs: example inputs: the program is for their types and sizes, and for the values of integers.
            whole: whether it must be one program.
            apart: whether inputs share no memory with weights, so that writes to inputs never change weights.

        Returns:
            A function of the inputs; and the placement of nodes, if it consists of parts.

        Raises:
            CompileError: nothing of it, or with ``whole`` not all, can be native.
        """
        places = len(graph_of(self.module).find_nodes(op="placeholder"))
        if len(inputs) > places:
            raise CompileError(f"it takes {places} arguments, not {len(inputs)}")
        try:
            # If writes to inputs are allowed, other results must not share their memory.
            writes = apart and self._strict
            return NativeCall(self._model().compile(inputs, writes=writes)), None
        except CompileError:
            if whole:
                raise
            # Not at the top: it takes longer to import than most graphs to compile.
            from corsac.lowering import lower
            from corsac.lowering._engine import Engine

            engine = Engine(strict=self._strict, precision=self._precision, apart=apart)
            lowered = lower(self.module, engine, inputs, min_nodes=LEAST)
            preview = lowered.meta["lowering"]
            if not preview.parts:
                raise
            return lowered, preview

    def _model(self) -> _core.NativeModel:
        if self._native is None:
            self._native = _core.NativeModel(
                graph_of(self.module),
                strict=self._strict,
                precision=self._precision,
                any_rows=self._any_rows,
                after=self._packed.last,
            )
            self._packed.last = self._native
        return self._native

    def is_kept(self, run: Callable[..., Any], inputs: tuple[Any, ...]) -> bool:
        """Whether an earlier process has made the same program; if none has, it is stored in the cache."""
        known = cache.current()
        if known is None or not isinstance(run, NativeCall):
            return False
        graph = graph_of(self.module).portable_hash()
        if graph is None:
            return False
        weights = [*self.module.named_parameters(), *self.module.named_buffers()]
        facts = [
            ("kind", "program"),
            ("graph", graph),
            ("inputs", str(call_key(inputs))),
            ("weights", cache.digest([(name, own.dtype, own.shape) for name, own in weights])),
            ("precision", self._precision),
            ("strict", str(self._strict)),
            *cache.surroundings(),
        ]
        return known.knows(facts, str(run.program))


def call_key(inputs: tuple[Any, ...]) -> Any:
    """Key of a program: dtype and shape of each tensor, and the values of other inputs."""
    return tuple((own.dtype, own.shape) if isinstance(own, torch.Tensor) else own for own in inputs)


__all__ = [
    "LEAST",
    "CompileError",
    "Compiled",
    "GraphFailed",
    "NativeGraph",
    "Packed",
    "call_key",
    "hosted_nodes",
]
