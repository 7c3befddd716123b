"""Times of the nodes of a graph, and ranges of their values, measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from corsac._messages.report_text import duration
from corsac._messages.table import table
from corsac._models.example_inputs import gathered
from corsac.analysis._cost import CostReport, NodeCost, cost
from corsac.analysis._machine import Machine, machine
from corsac.analysis._subject import captured
from corsac.fx import Interpreter, Node
from corsac.fx._source import place_in
from corsac.fx.graph_module import GraphModule

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Time of one node.

    Attributes:
        cost: its costs.
        seconds: the median over the repeats.
        least: the shortest time, in seconds.
        share: its fraction of the sum over all nodes.
        roofline: the least possible time as a fraction of ``seconds``: 1 is the machine's peak; None where
            the cost is not known.
        bound: its limit, ``"compute"`` or ``"memory"``; None where the cost is not known.
    """

    cost: NodeCost
    seconds: float
    least: float
    share: float
    roofline: float | None
    bound: str | None

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.cost.name


class Profile:
    """Times of a graph and its nodes.

    Attributes:
        rows: the time of each node, in order.
        seconds: the median time of the whole graph, run without timing its nodes.
        sum_seconds: the sum of the nodes' times.
        machine: the peaks for the rooflines.
        cost: the costs of the graph.
    """

    def __init__(
        self, report: CostReport, times: list[list[float]], wholes: list[float], peaks: Machine
    ) -> None:
        self.cost, self.machine = report, peaks
        self.seconds = statistics.median(wholes)
        medians = [statistics.median(own) for own in times]
        self.sum_seconds = sum(medians)
        self.rows = tuple(
            self._row(row, own, median)
            for row, own, median in zip(report.rows, times, medians, strict=True)
        )

    def _row(self, row: NodeCost, times: list[float], median: float) -> NodeTime:
        roofline, bound = None, None
        counts = (row.flops, row.bytes_read, row.bytes_written)
        if row.op.startswith("call_") and all(isinstance(count, int) for count in counts):
            flops, moved = row.flops, row.bytes_read + row.bytes_written
            if flops or moved:
                roofline = self.machine.least_seconds(flops, moved) / median if median else None
                bound = "compute" if flops > moved * self.machine.ridge else "memory"
        share = median / self.sum_seconds if self.sum_seconds else 0.0
        return NodeTime(row, median, min(times), share, roofline, bound)

    def slowest(self, count: int = 10) -> tuple[NodeTime, ...]:
        """The nodes with the longest times, longest first."""
        return tuple(sorted(self.rows, key=lambda row: -row.seconds)[:count])

    def to_dict(self) -> dict[str, Any]:
        """Totals and nodes as plain values."""
        return {
            "seconds": self.seconds,
            "sum_seconds": self.sum_seconds,
            "machine": asdict(self.machine),
            "nodes": [self._plain(row) for row in self.rows],
        }

    def _plain(self, row: NodeTime) -> dict[str, Any]:
        plain = asdict(row)
        return plain.pop("cost") | plain

    def to_dataframe(self) -> pandas.DataFrame:
        """One line a node. Needs pandas."""
        import pandas

        return pandas.DataFrame([self._plain(row) for row in self.rows])

    def __str__(self) -> str:
        cells = [("name", "target", "time", "share", "roofline", "bound", "source")]
        for row in self.slowest(20):
            roofline = "" if row.roofline is None else f"{row.roofline:.0%}"
            cells.append(
                (
                    row.name,
                    row.cost.target[:32],
                    duration(row.seconds),
                    f"{row.share:.1%}",
                    roofline,
                    row.bound or "",
                    place_in(row.cost.source or "") or "",
                )
            )
        lines = table(cells, left=(0, 1, 6))
        lines.append(
            f"the whole {duration(self.seconds)}, nodes {duration(self.sum_seconds)}; "
            f"machine {self.machine.gflops:.0f} GFLOP/s, {self.machine.gbytes:.1f} GB/s"
        )
        return "\n".join(lines)


class Timer(Interpreter):
    """Records the time of each node."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.times: dict[Node, list[float]] = {node: [] for node in module.graph.nodes}

    def run_node(self, n: Node) -> Any:
        start = time.perf_counter()
        result = super().run_node(n)
        self.times[n].append(time.perf_counter() - start)
        return result

    def clear(self) -> None:
        """Forget the times."""
        for own in self.times.values():
            own.clear()


def profile(
    target: torch.nn.Module | torch.export.ExportedProgram,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    repeats: int = 10,
    warmup: int = 2,
) -> Profile:
    """Measure the time of each node of a graph.

    Runs without gradients. Runs of the whole graph alternate with runs that time the nodes, so that a slow
    spell of the machine affects both.

    Args:
        target: the module to run: a graph module, or a model, which is traced, or captured for ``inputs``. Programs
            of :func:`torch.export.export` and graph modules of torch.fx are converted.
        inputs: its inputs; a single tuple or list holds all of them.
        kwargs: keyword inputs.
        repeats: number of timed runs; times are medians.
        warmup: number of runs before them, not timed.
    """
    if repeats < 1:
        raise ValueError(f"expected at least one repeat, got {repeats}")
    module, inputs = captured(target, gathered(inputs), kwargs)
    with torch.no_grad():
        report = cost(module, inputs)
        timer = Timer(module)
        plain = Interpreter(module)
        for _ in range(warmup):
            timer.run(*inputs)
            plain.run(*inputs)
        timer.clear()
        wholes = []
        for _ in range(repeats):
            timer.run(*inputs)
            start = time.perf_counter()
            plain.run(*inputs)
            wholes.append(time.perf_counter() - start)
    return Profile(report, list(timer.times.values()), wholes, machine())


@dataclass(frozen=True, slots=True)
class Range:
    """Range and statistics of the values of a tensor.

    Attributes:
        least, greatest: the smallest and largest element; NaN is ignored.
        mean: the mean of the finite elements.
        max_abs: the largest magnitude.
        zeros: the fraction of elements that are zero.
        nan, inf: number of elements that are NaN, and infinite.
        count: number of elements.
    """

    least: float
    greatest: float
    mean: float
    max_abs: float
    zeros: float
    nan: int
    inf: int
    count: int

    def union(self, other: Range) -> Range:
        """The range of the values of both."""
        count = self.count + other.count
        part = self.count / count if count else 0.0
        return Range(
            min(self.least, other.least),
            max(self.greatest, other.greatest),
            self.mean * part + other.mean * (1 - part),
            max(self.max_abs, other.max_abs),
            self.zeros * part + other.zeros * (1 - part),
            self.nan + other.nan,
            self.inf + other.inf,
            count,
        )


def _range(tensor: torch.Tensor) -> Range | None:
    if tensor.numel() == 0 or tensor.is_complex() or tensor.is_quantized:
        return None
    values = tensor.detach().to(torch.float64).reshape(-1)
    nan, inf = torch.isnan(values), torch.isinf(values)
    finite = values[~(nan | inf)]
    seen = values[~nan]
    if seen.numel() == 0:
        return Range(float("inf"), -float("inf"), 0.0, 0.0, 0.0, int(nan.sum()), 0, values.numel())
    least, greatest = seen.min().item(), seen.max().item()
    return Range(
        least,
        greatest,
        finite.mean().item() if finite.numel() else 0.0,
        max(abs(least), abs(greatest)),
        (values == 0).double().mean().item(),
        int(nan.sum()),
        int(inf.sum()),
        values.numel(),
    )


class _Watcher(Interpreter):
    """Records the ranges of the nodes' values."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.ranges: dict[str, Range] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, torch.Tensor) and (seen := _range(result)) is not None:
            before = self.ranges.get(n.name)
            self.ranges[n.name] = seen if before is None else before.union(seen)
        return result


def ranges(
    target: torch.nn.Module | torch.export.ExportedProgram, *batches: Any
) -> dict[str, Range]:
    """Ranges of the nodes' values on example inputs, as calibration needs them.

    Args:
        target: the module to run, without gradients: a graph module, or a model, which is traced, or captured
            for the first batch; others are converted as for :func:`profile`.
        batches: the inputs of each run: a tensor, or a tuple of inputs.

    Returns:
        Ranges by name of the node, for nodes whose value is a tensor of real numbers.
    """
    first = batches[0] if batches else ()
    module, _ = captured(target, first if isinstance(first, tuple) else (first,))
    watcher = _Watcher(module)
    with torch.no_grad():
        for batch in batches:
            watcher.run(*(batch if isinstance(batch, tuple) else (batch,)))
    return watcher.ranges
