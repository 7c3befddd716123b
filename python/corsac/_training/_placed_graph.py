"""Graphs of ATen operators whose parts run natively, by PyTorch, or alternately."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from corsac._training._native_part import Made, NativePart
from corsac._training._parts import is_view
from corsac._training._trial import Trial
from corsac.fx import GraphModule, Node
from corsac.fx._codegen import _BoxedCodeGen
from corsac.fx._own_copy import copied_graph
from corsac.fx.passes.utils.fuser_utils import fuse_by_partitions

#: Prefix of the names of native submodules; a number follows.
PREFIX = "native_"


@dataclass(slots=True)
class AtenGraph:
    """Statistics of a graph of ATen operators.

    Attributes:
        kind: ``"forward"``, ``"backward"`` or ``"inference"``.
        calls: number of operator calls, without views.
        native: number of them in native parts.
        tried: number of them in parts that run alternately, until it is known which way is faster.
        parts: the native parts.
        made: the decision on each part that could be native.
        host: number of calls that PyTorch runs, by reason.
        seconds: compile time.
        work: number of elements that its calls compute, and number of multiplications in products.
    """

    kind: str
    calls: int = 0
    native: int = 0
    tried: int = 0
    parts: list[NativePart] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    host: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    work: tuple[int, int] = (0, 0)

    @property
    def was_measured(self) -> bool:
        """Whether all native parts were measured."""
        return not any(
            own.trial is not None or (own.part is not None and own.seconds is None)
            for own in self.made
        )

    @property
    def gain(self) -> float:
        """Time that native parts save per step, in seconds, as far as measured."""
        measured = [own.seconds for own in self.made if own.part is not None and own.seconds]
        return sum(host - native for native, host in measured)

    def __str__(self) -> str:
        where = f"{self.native} of {self.calls} calls native, in {len(self.parts)} parts"
        lines = [f"{self.kind}: {where}, compiled in {self.seconds * 1e3:.1f} ms"]
        if self.tried:
            lines[0] += f"; {self.tried} run both ways in turn, to see which is faster"
        if kept := sum(made.kept for made in self.made):
            lines[0] += f"; {kept} of {len(self.made)} as measured in an earlier process"
        if self.host:
            lines.append("  PyTorch runs:")
        lines += [f"    {count} calls: {reason}" for reason, count in self.host.items()]
        return "\n".join(lines)


class PlacedGraph:
    """A graph as a function of a list of arguments, which is emptied, so that values are freed after their last use.

    Args:
        module: the graph.
        parts: the nodes of each part that could be native, and the decision on it.
        reasons: why PyTorch runs other nodes.
        record: statistics to update.
        settled: called when the last trial is over.
    """

    def __init__(
        self,
        module: GraphModule,
        parts: Sequence[tuple[Sequence[Node], Made]],
        reasons: Mapping[Node, str],
        record: AtenGraph,
        settled: Callable[[], None],
    ) -> None:
        self._parts = [([node.name for node in nodes], made) for nodes, made in parts]
        self._reasons = {node.name: reason for node, reason in reasons.items()}
        self._record, self._settled = record, settled
        self._trials: list[Trial] = [made.trial for _, made in parts if made.trial is not None]
        self._lock = threading.Lock()
        #: The graph without native parts, as long as trials are running.
        self._plain: GraphModule | None = None
        if self._trials:
            self._plain = GraphModule(module, copied_graph(module.graph))
        self._run = self._placed(module)

    def __call__(self, arguments: list[Any]) -> Any:
        results = self._run(arguments)
        if self._trials and all(own.outcome is not None for own in self._trials):
            self._settle()
        return results

    def _settle(self) -> None:
        """Rebuild the graph with the outcomes of all trials."""
        with self._lock:
            if self._plain is None:
                return
            self._parts = [
                (names, made if made.trial is None else made.trial.outcome)
                for names, made in self._parts
            ]
            self._trials = []
            self._run, self._plain = self._placed(self._plain), None
        self._settled()

    def _placed(self, module: GraphModule) -> Callable[[list[Any]], Any]:
        """Put the chosen parts into ``module``, which is changed, and return the function that runs it."""
        nodes = {node.name: node for node in module.graph.nodes}
        counted = {name for name, node in nodes.items() if computes(node)}
        reasons = dict(self._reasons)
        chosen: list[list[str]] = []
        runs: list[NativePart | Trial] = []
        for names, made in self._parts:
            run = made.trial or made.part
            if run is None:
                reasons |= dict.fromkeys(names, made.reason or "")
            else:
                chosen.append(names)
                runs.append(run)
        own = self._record
        own.made = [made for _, made in self._parts]
        own.parts = [run for run in runs if isinstance(run, NativePart)]
        sizes = [len(counted.intersection(names)) for names in chosen]
        own.tried = sum(
            size for size, run in zip(sizes, runs, strict=True) if isinstance(run, Trial)
        )
        own.native = sum(sizes) - own.tried
        own.host = {}
        for name in nodes:
            if name in reasons and name in counted:
                own.host[reasons[name]] = own.host.get(reasons[name], 0) + 1
        if chosen:
            groups = [dict.fromkeys(nodes[name] for name in names) for names in chosen]
            fuse_by_partitions(module, groups, prefix=PREFIX)
        for number, run in enumerate(runs):
            setattr(module, f"{PREFIX}{number}", run)
        return boxed(module)


def boxed(module: GraphModule) -> Callable[[list[Any]], Any]:
    """A function that runs ``module`` on a list of arguments and empties it, so that values are freed after their last
    use."""
    module.graph.set_codegen(_BoxedCodeGen())
    module.recompile()
    return module.forward


def computes(node: Node | torch.fx.Node) -> bool:
    """Whether ``node`` is a call other than a view or an item."""
    shows = node.target is operator.getitem or is_view(node)
    return node.op == "call_function" and not shows


__all__ = ["PREFIX", "AtenGraph", "PlacedGraph", "boxed", "computes"]
