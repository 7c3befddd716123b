"""Graphs of ATen operators whose parts run natively, by PyTorch, or both ways in turn."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from corsac._training._native_part import Made, NativePart
from corsac._training._parts import VIEWS
from corsac._training._trial import Trial
from corsac.fx import GraphModule, Node
from corsac.fx._codegen import _BoxedCodeGen
from corsac.fx._own_copy import copied_graph
from corsac.fx.passes.utils.fuser_utils import fuse_by_partitions

#: What submodules with native code are called, with a number behind.
PREFIX = "native_"


@dataclass(slots=True)
class AtenGraph:
    """A graph of ATen operators, and where it runs.

    Attributes:
        kind: ``"forward"``, ``"backward"`` or ``"inference"``.
        calls: how many calls of operators it has, views aside.
        native: how many of them are in native parts.
        tried: how many are in parts that run both ways in turn, until it is known which is faster.
        parts: the native parts.
        made: what became of each part that could be native.
        host: why PyTorch runs what it runs, and how many calls.
        seconds: how long compiling took.
        work: the elements that its calls compute, and the numbers that they multiply.
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
        """Whether it is known of all native parts what they save."""
        return not any(
            own.trial is not None or (own.part is not None and own.seconds is None)
            for own in self.made
        )

    @property
    def gain(self) -> float:
        """The seconds that native parts save, as far as they were measured."""
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
    """A graph as a function of a list, which is emptied, so that values go when they were read last.

    Args:
        module: the graph.
        parts: the nodes of each part that could be native, and what became of it.
        reasons: why PyTorch runs other nodes.
        record: is told what runs where.
        settled: is called when the last trial is over.
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
        #: The graph without native parts, as long as some are tried.
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
        """Put the parts where they are faster."""
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
        """What runs ``module``, which is changed."""
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
    """What runs ``module``: a function that takes a list and empties it, so that values go when they were read last."""
    module.graph.set_codegen(_BoxedCodeGen())
    module.recompile()
    return module.forward


def computes(node: Node | torch.fx.Node) -> bool:
    """Whether ``node`` does more than to show a value in another way."""
    shows = node.target is operator.getitem or node.target in VIEWS
    return node.op == "call_function" and not shows


__all__ = ["PREFIX", "AtenGraph", "PlacedGraph", "boxed", "computes"]
