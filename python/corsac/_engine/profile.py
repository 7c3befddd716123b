"""``corsac.profile``: times of the steps of a compiled model."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from corsac import _core
from corsac._engine.native_graph import CompileError
from corsac._messages.report_text import duration
from corsac._native.call import observe


@dataclass(frozen=True, slots=True)
class StepTime:
    """Time of a step of a program.

    Attributes:
        step: the step, as text: its result, operator and operands.
        seconds: the median over the calls.
        least: the shortest time, in seconds.
    """

    step: str
    seconds: float
    least: float

    @property
    def operator(self) -> str:
        """The operator of the step."""
        return self.step.split(" = ", 1)[1].split("(", 1)[0]


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """Times of the steps of a call's native parts; as text, a table."""

    steps: tuple[StepTime, ...]

    @property
    def seconds(self) -> float:
        """Sum over all steps, in seconds."""
        return sum(row.seconds for row in self.steps)

    def slowest(self, count: int = 10) -> tuple[StepTime, ...]:
        """The slowest steps, the slowest first."""
        return tuple(sorted(self.steps, key=lambda row: -row.seconds)[:count])

    def by_operator(self) -> dict[str, float]:
        """Seconds by operator, the longest first."""
        sums: dict[str, float] = {}
        for row in self.steps:
            sums[row.operator] = sums.get(row.operator, 0.0) + row.seconds
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def __str__(self) -> str:
        whole = self.seconds or 1.0
        rows = [(row.step, row.seconds) for row in self.slowest(20)]
        lines = [f"{duration(own):>9} {own / whole:6.1%}  {text}" for text, own in rows]
        lines.append("by operator:")
        rows = list(self.by_operator().items())
        lines += [f"{duration(own):>9} {own / whole:6.1%}  {text}" for text, own in rows]
        lines.append(f"{len(self.steps)} steps, {duration(self.seconds)}")
        return "\n".join(lines)


def profile(
    compiled: Callable[..., Any], *args: Any, repeats: int = 20, **kwargs: Any
) -> EngineProfile:
    """Measure how long each step of a compiled model takes.

    Args:
        compiled: the result of :func:`corsac.compile` or ``torch.compile(backend="corsac")``.
        args, kwargs: its arguments.
        repeats: number of calls; times are medians.

    Raises:
        CompileError: PyTorch runs all of this call.
    """
    if repeats < 1:
        raise ValueError(f"expected at least one repeat, got {repeats}")
    compiled(*args, **kwargs)
    times: dict[_core.NativeProgram, list[list[float]]] = {}
    with observe(lambda program, own: times.setdefault(program, []).append(own)):
        for _ in range(repeats):
            compiled(*args, **kwargs)
    if not times:
        raise CompileError("PyTorch runs this call: there are no native steps to measure")
    return EngineProfile(
        tuple(
            StepTime(text, statistics.median(own), min(own))
            for program, calls in times.items()
            for text, own in zip(program.steps, zip(*calls, strict=True), strict=True)
        )
    )


__all__ = ["EngineProfile", "StepTime", "profile"]
