"""Costs of a graph: arithmetic, memory traffic, memory held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from corsac import _core
from corsac._core import Dim
from corsac._messages.table import table
from corsac._models.example_inputs import gathered
from corsac.analysis._meta_run import MetaRun
from corsac.analysis._propagate import Site
from corsac.analysis._subject import captured
from corsac.fx import Graph, Node
from corsac.passes._target import graph_of

if TYPE_CHECKING:
    import pandas

Count = int | Dim


@dataclass(frozen=True, slots=True)
class NodeCost:
    """Costs of one node. Counts are None where they are not known.

    Attributes:
        name: the node.
        op: its opcode.
        target: its target, as text.
        module: the qualified name of the module whose forward it belongs to; empty for the root.
        output: type of its result, as text.
        macs: multiply-add operations, in matrix products and convolutions.
        flops: floating-point operations, two for each of ``macs``.
        parameters: elements of the parameters that it reads.
        bytes_read: bytes of arguments and weights that it reads.
        bytes_written: bytes that it writes.
        output_bytes: bytes of its result.
        bytes_held: bytes of activations held while it runs.
        source: its place in the user's program.
    """

    name: str
    op: str
    target: str
    module: str
    output: str
    macs: Count | None
    flops: Count | None
    parameters: int
    bytes_read: Count | None
    bytes_written: Count | None
    output_bytes: Count | None
    bytes_held: int
    source: str | None

    @property
    def intensity(self) -> float | None:
        """Floating-point operations for each byte moved."""
        return _intensity(self.flops, self.bytes_read, self.bytes_written)


@dataclass(frozen=True, slots=True)
class ModuleCost:
    """Costs of a module, with all the modules in it.

    Attributes:
        path: its qualified name; empty for the root.
        calls: number of nodes that belong to it.
        macs, flops, bytes_read, bytes_written: sums over those nodes whose cost is known.
        parameters: elements of the different parameters that they use.
        unknown: number of those nodes whose costs are not known.
    """

    path: str
    calls: int
    macs: Count
    flops: Count
    parameters: int
    bytes_read: Count
    bytes_written: Count
    unknown: int

    @property
    def intensity(self) -> float | None:
        """Floating-point operations for each byte moved."""
        return _intensity(self.flops, self.bytes_read, self.bytes_written)


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A block of memory that holds activations, and its live range.

    Attributes:
        bytes: its size.
        first: the node that allocates it.
        last: the last node that uses it.
    """

    bytes: int
    first: str
    last: str


def _intensity(flops: Any, read: Any, written: Any) -> float | None:
    if not all(isinstance(count, int) for count in (flops, read, written)):
        return None
    return flops / (read + written) if read + written else 0.0


class CostReport:
    """Costs of a graph.

    Attributes:
        rows: the costs of each node, in order.
        unknown: calls whose costs are not known, with the reason. No sum includes them.
        fallbacks: calls without a rule, whose results were found on meta tensors.
        parameters, parameter_bytes: elements and bytes of the parameters that the graph uses, each once.
        trainable_parameters: elements of those with ``requires_grad``.
        buffer_bytes: bytes of the buffers that it uses.
        peak_bytes: the most bytes of activations held at once, with inputs and results, without weights.
        peak_node: the node at which they are held.
        peak_unknown: nodes whose memory is not included, since it is not known.
        lifetimes: the blocks of memory that hold activations.
    """

    def __init__(self, graph: Graph, types: _core.Types) -> None:
        nodes = list(graph.nodes)
        weights = types.weights()
        self.peak_bytes, self.peak_node, held, unknown = types.peak()
        self.peak_unknown: tuple[str, ...] = tuple(unknown)
        self.lifetimes = tuple(Lifetime(*lifetime) for lifetime in types.lifetimes())
        self.unknown = tuple(Site(*site) for site in types.uncounted())
        self.fallbacks = tuple(Site(*site) for site in types.fallbacks())
        parameters = [weight for weight in weights if weight[3]]
        self.parameters: int = sum(weight[1] for weight in parameters)
        self.parameter_bytes: int = sum(weight[2] for weight in parameters)
        self.trainable_parameters: int = sum(weight[1] for weight in parameters if weight[4])
        self.buffer_bytes: int = sum(weight[2] for weight in weights if not weight[3])
        self._used = [
            frozenset(number for number in used if weights[number][3])
            for used in types.used_weights()
        ]
        self._elements = [weight[1] for weight in weights]
        columns = zip(
            nodes, types.shown(), types.costs(), self._used, types.result_bytes(), held, strict=True
        )
        self.rows: tuple[NodeCost, ...] = tuple(
            NodeCost(
                name=node.name,
                op=node.op,
                target=node._pretty_print_target(node.target),
                module=module_path(node),
                output=shown,
                macs=macs,
                flops=flops,
                parameters=sum(self._elements[number] for number in used),
                bytes_read=read,
                bytes_written=written,
                output_bytes=size,
                bytes_held=bytes_held,
                source=None if node.source is None else str(node.source),
            )
            for node, shown, (macs, flops, read, written), used, size, bytes_held in columns
        )

    def _sum(self, of: Iterable[Count | None]) -> Count:
        total: Count = 0
        for count in of:
            if count is not None:
                total = total + count
        return total

    @property
    def macs(self) -> Count:
        """Multiply-add operations of all nodes whose cost is known."""
        return self._sum(row.macs for row in self.rows)

    @property
    def flops(self) -> Count:
        """Floating-point operations of all nodes whose cost is known."""
        return self._sum(row.flops for row in self.rows)

    @property
    def bytes_read(self) -> Count:
        """Bytes read by all nodes whose cost is known."""
        return self._sum(row.bytes_read for row in self.rows)

    @property
    def bytes_written(self) -> Count:
        """Bytes written by all nodes whose cost is known."""
        return self._sum(row.bytes_written for row in self.rows)

    @property
    def intensity(self) -> float | None:
        """Floating-point operations for each byte moved."""
        return _intensity(self.flops, self.bytes_read, self.bytes_written)

    def modules(self) -> tuple[ModuleCost, ...]:
        """The costs of each module with those in it, the root first, in order of the first call."""
        members: dict[str, list[int]] = {"": []}
        for at, row in enumerate(self.rows):
            if not row.op.startswith("call_"):
                members[""].append(at)
                continue
            path = row.target if row.op == "call_module" else row.module
            for prefix in prefixes(path):
                members.setdefault(prefix, []).append(at)
        return tuple(self._module(path, own) for path, own in members.items())

    def _module(self, path: str, members: Sequence[int]) -> ModuleCost:
        rows = [self.rows[at] for at in members]
        used = frozenset().union(*(self._used[at] for at in members))
        return ModuleCost(
            path=path,
            calls=sum(row.op.startswith("call_") for row in rows),
            macs=self._sum(row.macs for row in rows),
            flops=self._sum(row.flops for row in rows),
            parameters=sum(self._elements[number] for number in used),
            bytes_read=self._sum(row.bytes_read for row in rows),
            bytes_written=self._sum(row.bytes_written for row in rows),
            unknown=sum(row.flops is None for row in rows),
        )

    def to_dict(self) -> dict[str, Any]:
        """Totals, nodes and modules as plain values; counts that depend on symbols as text."""
        return {
            "totals": {
                "macs": _plain(self.macs),
                "flops": _plain(self.flops),
                "bytes_read": _plain(self.bytes_read),
                "bytes_written": _plain(self.bytes_written),
                "parameters": self.parameters,
                "trainable_parameters": self.trainable_parameters,
                "parameter_bytes": self.parameter_bytes,
                "buffer_bytes": self.buffer_bytes,
                "peak_bytes": self.peak_bytes,
                "peak_node": self.peak_node,
            },
            "nodes": [_plain_row(row) for row in self.rows],
            "modules": [_plain_row(module) for module in self.modules()],
            "unknown": [asdict(site) for site in self.unknown],
        }

    def to_dataframe(self) -> pandas.DataFrame:
        """One line a node. Needs pandas."""
        import pandas

        return pandas.DataFrame([_plain_row(row) for row in self.rows])

    def __str__(self) -> str:
        head = ("name", "output", "MACs", "FLOPs", "read", "written", "FLOP/B", "held")
        cells = [head]
        for row in self.rows:
            intensity = "" if row.intensity is None else f"{row.intensity:.1f}"
            cells.append(
                (
                    row.name,
                    row.output[:40],
                    *map(short, (row.macs, row.flops, row.bytes_read, row.bytes_written)),
                    intensity,
                    short(row.bytes_held),
                )
            )
        lines = table(cells, left=range(2))
        lines.append("")
        lines.append(f"multiplications  {short(self.macs)}    operations  {short(self.flops)}")
        lines.append(f"parameters       {self.parameters:,} ({short(self.parameter_bytes)}B)")
        lines.append(
            f"traffic          {short(self.bytes_read)}B read, {short(self.bytes_written)}B written"
        )
        place = "" if self.peak_node is None else f", at {self.peak_node}"
        lines.append(
            f"activations      {short(self.peak_bytes)}B at most{place}"
            + (f" ({len(self.peak_unknown)} nodes aside)" if self.peak_unknown else "")
        )
        for site in self.unknown:
            lines.append(f"unknown          {site.node} ({site.target}): {site.reason}")
        return "\n".join(lines)


def short(count: Count | None) -> str:
    """A count with three digits and a decimal prefix; ``?`` if it is not known."""
    if count is None:
        return "?"
    if not isinstance(count, int):
        return str(count)
    for factor, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= factor:
            return f"{count / factor:.2f}{unit}"
    return str(count)


def _plain(count: Any) -> Any:
    return str(count) if isinstance(count, Dim) else count


def _plain_row(row: NodeCost | ModuleCost) -> dict[str, Any]:
    plain = {key: _plain(value) for key, value in asdict(row).items()}
    plain["intensity"] = row.intensity
    return plain


def module_path(node: Node) -> str:
    """The qualified name of the innermost module whose forward ``node`` belongs to, as tracing recorded it,
    or else of the module whose weights it uses."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        used = (own.target for own in node.all_input_nodes if own.op == "get_attr")
        return next(used, "").rpartition(".")[0] if node.op != "get_attr" else ""
    path = next(reversed(stack.values()))[0]
    return str(path)


def prefixes(path: str) -> list[str]:
    """The path and all its prefixes: for ``a.b`` the root (empty), ``a`` and ``a.b``."""
    parts = path.split(".") if path else []
    return ["", *(".".join(parts[: at + 1]) for at in range(len(parts)))]


def cost(
    target: torch.nn.Module | torch.export.ExportedProgram | Graph,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    fallback: bool = True,
) -> CostReport:
    """Count the operations and the memory traffic of a graph, without running it.

    A multiply-add counts two operations, a bias none: the sum starts from it. An elementwise operator counts
    one per element of its result, a softmax five, a layer norm seven. Memory traffic is each argument read
    once and each result written once; views move nothing. Calls whose cost is not known are listed, and no
    sum includes them.

    Args:
        target, kwargs: as for :func:`corsac.analysis.propagate`.
        inputs: the same. With sizes that are symbols, counts are
            expressions over them, and memory held is not known.
        fallback: whether nodes without a rule are called with meta tensors to find their results.

    Raises:
        ShapeInferenceError: a call fails when it runs.
    """
    found, inputs = captured(target, gathered(inputs), kwargs)
    graph = graph_of(found)
    run = MetaRun(graph.owning_module) if fallback else None
    with torch.no_grad():
        types = _core.propagate_types(graph, inputs, run, fill=False, cost=True)
    return CostReport(graph, types)
