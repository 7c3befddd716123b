"""What the parts of a graph cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from corsac import _core
from corsac._messages.report_text import duration, shortened
from corsac._messages.table import table
from corsac.analysis._cost import CostReport, short
from corsac.fx import Graph, GraphModule


@dataclass(frozen=True, slots=True)
class PartCost:
    """Costs of one part.

    Attributes:
        name: the name of its module.
        calls: the nodes in it that are calls, by their names in the graph that was split.
        flops: its floating-point operations.
        bytes: bytes that its calls read and write.
        memory: bytes that it needs at once: its weights and activations, for training also gradients, the state of
            the optimizer, and the activations of all microbatches in flight.
        inputs: the values that it takes, without attributes.
        outputs: the values that it returns.
        received, sent: bytes that cross the border before and behind it, with those that only pass through.
        time: its time, with that of receiving and sending; in seconds where the report says so.
        share: its fraction of the sum of all parts.
    """

    name: str
    calls: tuple[str, ...]
    flops: int
    bytes: int
    memory: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    received: int
    sent: int
    time: float
    share: float


class BalanceReport:
    """Costs of the parts of a graph.

    Attributes:
        parts: the costs of each part, in order.
        by: what was balanced: ``"flops"``, ``"bytes"`` or ``"measured"``.
        balance: the mean time of a part as a fraction of the slowest: 1 if all take the same time.
        in_seconds: whether times are seconds, not numbers of operations or bytes.
        unknown: calls whose costs are not known, with the reason; they count as nothing.
        part_of: the number of the part of each call, by its name.
    """

    def __init__(
        self,
        split: GraphModule,
        costs: CostReport,
        by: str,
        cut: tuple[list[int], list[float], list[int], list[int]],
        in_seconds: bool,
    ) -> None:
        numbers, times, memory, crossing = cut
        calls = [row for row in costs.rows if row.op.startswith("call_")]
        self.by, self.in_seconds, self.unknown = by, in_seconds, costs.unknown
        self.part_of = {row.name: part for row, part in zip(calls, numbers, strict=True)}
        self._rows = calls
        total = sum(times)
        self.balance: float = total / len(times) / max(times) if total else 1.0
        border = [0, *crossing, 0]
        found = []
        for at, name in enumerate(part_names(len(times))):
            rows = [row for row, part in zip(calls, numbers, strict=True) if part == at]
            inputs, outputs = _interface(split, name)
            found.append(
                PartCost(
                    name=name,
                    calls=tuple(row.name for row in rows),
                    flops=sum(row.flops or 0 for row in rows),
                    bytes=sum((row.bytes_read or 0) + (row.bytes_written or 0) for row in rows),
                    memory=memory[at],
                    inputs=inputs,
                    outputs=outputs,
                    received=border[at],
                    sent=border[at + 1],
                    time=times[at],
                    share=times[at] / total if total else 0.0,
                )
            )
        self.parts: tuple[PartCost, ...] = tuple(found)

    def annotations(self) -> dict[str, dict[str, Any]]:
        """Parts and costs by the name of the node, for :func:`corsac.draw` with ``overlay="part"``."""
        return {
            row.name: {
                "part": self.part_of[row.name],
                "flops": row.flops,
                "bytes": None
                if row.bytes_read is None or row.bytes_written is None
                else row.bytes_read + row.bytes_written,
            }
            for row in self._rows
        }

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "by": self.by,
            "balance": self.balance,
            "in_seconds": self.in_seconds,
            "parts": [asdict(part) for part in self.parts],
            "unknown": [asdict(site) for site in self.unknown],
        }

    def __str__(self) -> str:
        head = ("part", "calls", "FLOPs", "bytes", "memory", "in", "out", "time", "share", "values")
        cells = [head]
        for part in self.parts:
            cells.append(
                (
                    part.name,
                    str(len(part.calls)),
                    short(part.flops),
                    short(part.bytes),
                    short(part.memory),
                    _values(part.inputs, part.received),
                    _values(part.outputs, part.sent),
                    duration(part.time) if self.in_seconds else "",
                    f"{part.share:.1%}",
                    f"{shortened(part.inputs)} -> {shortened(part.outputs)}",
                )
            )
        if not self.in_seconds:
            cells = [(*row[:7], *row[8:]) for row in cells]
        lines = table(cells, left=(0, len(cells[0]) - 1))
        lines.append("")
        lines.append(
            f"balance {self.balance:.1%} by {self.by}: the mean part as a fraction of the slowest"
        )
        for site in self.unknown:
            lines.append(f"unknown: {site.node} ({site.target}): {site.reason}")
        return "\n".join(lines)


def part_names(parts: int) -> list[str]:
    """The names of the modules of so many parts."""
    return [f"submod_{part}" for part in range(parts)]


def _values(values: Sequence[str], size_bytes: int) -> str:
    return f"{len(values)} ({short(size_bytes)}B)" if size_bytes else str(len(values))


def _interface(split: GraphModule, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The values that a part takes and returns, attributes aside."""
    graph: Graph = split.graph
    (call,) = graph.find_nodes(op="call_module", target=name)
    part: Graph = split.get_submodule(name).graph
    placeholders = part.find_nodes(op="placeholder")
    inputs = tuple(
        own.name
        for own, given in zip(placeholders, call.args, strict=True)
        if not (isinstance(given, _core.Node) and given.op == "get_attr")
    )
    result = part.output_node().args[0]
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    return inputs, tuple(str(own) for own in outputs if own is not None)
