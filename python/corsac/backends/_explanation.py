"""Explanations of a compilation: graphs, breaks, guards, places of operators, and times."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

#: Place of operators that the engine runs.
NATIVE = "native"
#: Place of operators that PyTorch runs.
PYTORCH = "PyTorch"
#: Place of operators whose result does not depend on the inputs.
ONCE = "computed once"
#: Place of the calls of a graph in training, which became forward and backward graphs.
AOT_AUTOGRAD = "AOTAutograd"


@dataclass(frozen=True, slots=True)
class Operator:
    """A call in a graph.

    Attributes:
        node: the name of the node.
        target: its target.
        ran: ``"native"``, ``"PyTorch"``, ``"computed once"``, or the name of the backend.
        reason: why PyTorch ran it, if known.
        where: the line of the program, as ``file:line``.
    """

    node: str
    target: str
    ran: str
    reason: str | None
    where: str | None


@dataclass(frozen=True, slots=True)
class ExplainedGraph:
    """A graph that was passed to the backend.

    Attributes:
        tracer: its origin: ``"corsac"`` or ``"Dynamo"``.
        inputs: the types of its inputs.
        operators: its calls, in order.
        backend: the backend that compiled it; of a fallback, the chosen one.
        declined: why the backend declined it, if it did.
        refusals: the backends of a fallback that declined it, each with its reason.
        seconds: time of each stage.
    """

    tracer: str
    inputs: tuple[str, ...]
    operators: tuple[Operator, ...]
    backend: str
    declined: str | None
    refusals: tuple[tuple[str, str], ...]
    seconds: dict[str, float]

    @property
    def counts(self) -> dict[str, int]:
        """Number of calls of each operator, the most frequent first."""
        return dict(Counter(own.target for own in self.operators).most_common())

    def __str__(self) -> str:
        lines = [f"({', '.join(self.inputs)}), captured by {self.tracer}, for {self.backend}"]
        lines.append("  operators: " + ", ".join(f"{n} {name}" for name, n in self.counts.items()))
        lines += [f"  {name} declined: {reason}" for name, reason in self.refusals]
        if self.declined is not None:
            lines.append(f"  {self.backend} declined: {self.declined}")
        places = Counter(own.ran for own in self.operators)
        lines.append("  ran: " + ", ".join(f"{n} {place}" for place, n in places.most_common()))
        for own in self.operators:
            if own.ran == PYTORCH and own.reason not in (None, self.declined):
                at = "" if own.where is None else f", {own.where}"
                lines.append(f"    PyTorch: {own.node} ({own.target}{at}): {own.reason}")
        lines.append("  took: " + _times(self.seconds))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Break:
    """A place where Dynamo ends a graph and continues with another.

    Attributes:
        reason: why it ends there.
        file, line, function: the place in the program.
        change: suggestions to avoid it.
    """

    reason: str
    file: str
    line: int
    function: str
    change: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.file}:{self.line}, in {self.function}: {self.reason}"]
        return "\n".join(lines + [f"  change: {own}" for own in self.change])


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition that is checked in each call: if it fails, a new graph is made.

    Attributes:
        name: the guarded value.
        condition: the condition on it.
    """

    name: str
    condition: str

    def __str__(self) -> str:
        return f"{self.name}: {self.condition}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The compilation of a model for a call; as text, a page.

    Attributes:
        graphs: the graphs passed to the backend.
        breaks: the places where Dynamo ends graphs.
        guards: the conditions checked in each call.
        seconds: time of each stage, over all graphs, and of the first call as a whole.
        why_dynamo: why corsac has not recorded the model; None if it has.
    """

    graphs: tuple[ExplainedGraph, ...]
    breaks: tuple[Break, ...]
    guards: tuple[Guard, ...]
    seconds: dict[str, float]
    why_dynamo: str | None

    def __str__(self) -> str:
        lines = [f"{len(self.graphs)} graphs, {len(self.breaks)} breaks, {len(self.guards)} guards"]
        if self.why_dynamo is not None:
            lines.append(f"captured by Dynamo: {self.why_dynamo.splitlines()[0]}")
        lines += [f"graph {number}: {own}" for number, own in enumerate(self.graphs)]
        lines += [f"break {number}: {own}" for number, own in enumerate(self.breaks)]
        lines.append("guards:")
        lines += [f"  {own}" for own in self.guards]
        lines.append("took: " + _times(self.seconds))
        return "\n".join(lines)


def _times(seconds: dict[str, float]) -> str:
    return ", ".join(f"{stage} {own * 1e3:.1f} ms" for stage, own in seconds.items())
