"""A graph, and the programs that the engine makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch

from corsac import _core, cache
from corsac._aten import tensors_in
from corsac._native import NativeCall, is_observed
from corsac._race import Race
from corsac._report_text import duration, shortened
from corsac.fx import GraphModule

if TYPE_CHECKING:
    from corsac.lowering import Preview

CompileError = _core.CompileError
#: Calls are left to PyTorch if they take more than this of its time natively: times differ from call to call.
LIMIT = 1.05
#: Parts of a graph with fewer computations are left to PyTorch.
LEAST = 3


#: Of all results that are tensors.
Strides = list[tuple[int, ...]]


def strides_of(results: Any) -> Strides:
    """How the results of a call lie; in dimensions of one element it means nothing."""

    def of(own: torch.Tensor) -> tuple[int, ...]:
        steps = zip(own.shape, own.stride(), strict=True)
        return tuple(step for size, step in steps if size > 1)

    return [of(own) for own in tensors_in(results) if own.layout is torch.strided]


@dataclass
class Compiled:
    """What runs calls, natively or by PyTorch, whichever is faster.

    Attributes:
        run: runs them natively.
        seconds: how long capture, where there was one, and compiling took.
        preview: what went where, if parts of the graph are left to PyTorch.
        kept: whether an earlier process has made the same program.
        race: tries both in calls, as long as it is not plain which is faster.
        took: how many seconds a call took, natively and by PyTorch, if both were tried.
    """

    run: Callable[..., Any]
    seconds: float
    preview: Preview | None = None
    kept: bool = False
    race: Race | None = None
    took: tuple[float, float] | None = None
    _strides: Strides | None = None

    def is_slower(self) -> bool:
        """Whether PyTorch is faster."""
        return self.took is not None and self.took[0] > LIMIT * self.took[1]

    def measure(self) -> None:
        """The next calls tell who is faster, unless all are to give the same bits."""
        if not torch.are_deterministic_algorithms_enabled():
            self.race = Race(LIMIT, lambda native, host, _: (native, host))

    def expect(self, results: Any) -> None:
        """PyTorch gave these. Where native ones lie otherwise nothing is measured, so that results do not lie one
        way in one call and another in the next."""
        self._strides = strides_of(results)

    def call(self, native: Callable[[], Any], host: Callable[[], Any]) -> Any:
        """A call, by who is faster."""
        if is_observed():
            # Who looks at native steps is to see them.
            return native()
        race = self.race
        if race is None:
            return host() if self.is_slower() else native()
        results = race.run(native, host)
        strides = strides_of(results)
        if self._strides is None:
            self._strides = strides
        if strides != self._strides:
            self.race = None
        elif race.outcome is not None:
            self.took, self.race = race.outcome, None
        return results

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
        alike: dict[tuple[str, str | None], list[str]] = {}
        for row in self.preview.host:
            alike.setdefault((row.target, row.reason), []).append(row.node)
        for (target, reason), nodes in alike.items():
            several = f"{len(nodes)} × {target} ({shortened(nodes)})"
            lines.append(f"  {several if nodes[1:] else f'{nodes[0]} ({target})'}: {reason}")
        return "\n".join(lines)

    def _told(self) -> str:
        """Who is faster, as far as that is known."""
        if self.took is None:
            return ""
        native, host = map(duration, self.took)
        if self.is_slower():
            return f", and left to PyTorch: {native} natively, {host} by PyTorch"
        return f", {native} a call ({host} by PyTorch)"


class NativeGraph:
    """A graph that the engine compiles for one set of inputs after the other.

    Args:
        module: the graph, which does not change any more.
        precision: as for :func:`corsac.compile`.
        strict: whether results that share memory with anything else are an error.
        after: the graph that was compiled before for the same weights, which are packed once.
    """

    def __init__(
        self, module: GraphModule, *, precision: str, strict: bool, after: Self | None = None
    ) -> None:
        self.module = module
        self._precision, self._strict = precision, strict
        self._after = after
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
            after = None if self._after is None else self._after._model()
            self._native = _core.NativeModel(
                self.module.graph, strict=self._strict, precision=self._precision, after=after
            )
            self._after = None
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


__all__ = ["LEAST", "CompileError", "Compiled", "NativeGraph", "call_key"]
