"""A graph, and the programs that the engine makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from corsac import _core, cache
from corsac._native import NativeCall
from corsac._race import Choice
from corsac._report_text import duration, shortened
from corsac.fx import GraphModule

if TYPE_CHECKING:
    from corsac.lowering import Preview
    from corsac.lowering._engine import EnginePart

CompileError = _core.CompileError
#: Parts of a graph with fewer computations are left to PyTorch.
LEAST = 3


@dataclass
class Compiled:
    """What runs calls, natively or by PyTorch, whichever is faster.

    Attributes:
        run: runs them natively, but for parts that PyTorch runs.
        seconds: how long capture, where there was one, and compiling took.
        preview: what went where, if parts of the graph are left to PyTorch.
        kept: whether an earlier process has made the same program.
        choice: who runs whole calls.
        parts: those that are native or PyTorch's, each by itself, if it is not native as a whole.
        repeats: whether a call that fails has changed nothing, whoever has run which part of it.
    """

    run: Callable[..., Any]
    seconds: float
    preview: Preview | None = None
    kept: bool = False
    choice: Choice = field(default_factory=Choice)
    parts: tuple[EnginePart, ...] = ()
    repeats: bool = False

    def may_repeat(self) -> bool:
        """Whether PyTorch may make a call that has failed: nothing was changed."""
        return isinstance(self.run, NativeCall) or self.repeats

    def has_written(self) -> bool:
        """Whether nobody knows what a call has written that native code has not finished."""
        return isinstance(self.run, NativeCall) and self.run.program.writes

    def native_programs(self) -> list[_core.NativeProgram]:
        """The programs of whole graphs."""
        return [self.run.program] if isinstance(self.run, NativeCall) else []

    def measure(self) -> None:
        """The next calls tell who is faster, part by part where there are parts."""
        self.choice.measure()
        if self.preview is not None:
            # Not at the top: it takes longer to import than most graphs to compile.
            from corsac.lowering._engine import engine_parts

            self.parts = engine_parts(self.run)
            for part in self.parts:
                part.choice.measure()

    def call(self, native: Callable[[], Any], host: Callable[[], Any], lookup: float = 0.0) -> Any:
        """A call, by who is faster; ``lookup`` is as for :meth:`corsac._race.Race.run`."""
        if any(part.choice.race is not None for part in self.parts):
            # One thing at a time.
            return native()
        return self.choice.call(native, host, lookup)

    def explain(self) -> str:
        made = f"captured and compiled in {duration(self.seconds)}{self._told()}"
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

    def _told(self) -> str:
        """Who is faster, as far as that is known."""
        told = str(self.choice)
        return (
            f", {told}" if told and not self.choice.is_slower() else f", and {told}" if told else ""
        )


def hosted_nodes(preview: Preview) -> list[str]:
    """What PyTorch runs of a graph and why, a line for nodes that are alike."""
    alike: dict[tuple[str, str | None], list[str]] = {}
    for row in preview.host:
        alike.setdefault((row.target, row.reason), []).append(row.node)
    lines = []
    for (target, reason), nodes in alike.items():
        several = f"{len(nodes)} × {target} ({shortened(nodes)})"
        lines.append(f"  {several if nodes[1:] else f'{nodes[0]} ({target})'}: {reason}")
    return lines


class GraphFailed(Exception):
    """An operator of a graph has raised an exception, which the program might catch.

    Attributes:
        error: the exception.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Packed:
    """What graphs share that have weights in common, which are packed once.

    Attributes:
        last: the model that was made last. The next one numbers its weights after those of all others.
    """

    def __init__(self) -> None:
        self.last: _core.NativeModel | None = None


class NativeGraph:
    """A graph that the engine compiles for one set of inputs after the other.

    Args:
        module: the graph, which does not change any more.
        precision: as for :func:`corsac.compile`.
        strict: whether results that share memory with anything else are an error.
        packed: what it shares with other graphs, of which one is compiled at a time.
    """

    def __init__(
        self, module: GraphModule, *, precision: str, strict: bool, packed: Packed | None = None
    ) -> None:
        self.module = module
        self._precision, self._strict = precision, strict
        self._packed = Packed() if packed is None else packed
        self._native: _core.NativeModel | None = None

    def compile(
        self, inputs: tuple[Any, ...], *, whole: bool, apart: bool = False
    ) -> tuple[Callable[..., Any], Preview | None]:
        """The whole graph as a program, or what the engine knows of it as several.

        Args:
            inputs: it is made for their types and sizes, and for other integers' values.
            whole: whether it has to be one program.
            apart: whether inputs share no memory with weights, so that what is written to them is not to the
                weights.

        Raises:
            CompileError: nothing of it, or with ``whole`` not all, can be native.
        """
        places = len(self.module.graph.find_nodes(op="placeholder"))
        if len(inputs) > places:
            raise CompileError(f"it takes {places} arguments, not {len(inputs)}")
        try:
            # What writes to inputs gives nothing else that shares their memory.
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
                self.module.graph,
                strict=self._strict,
                precision=self._precision,
                after=self._packed.last,
            )
            self._packed.last = self._native
        return self._native

    def is_kept(self, run: Callable[..., Any], inputs: tuple[Any, ...]) -> bool:
        """Whether an earlier process has made the same program; if none has, it is kept for later ones."""
        known = cache.current()
        if known is None or not isinstance(run, NativeCall):
            return False
        graph = self.module.graph.portable_hash()
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
    """What a program is made for."""
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
