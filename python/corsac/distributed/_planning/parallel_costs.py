"""Costs of tensor parallelism: the share of each node that a rank computes, and collectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from corsac.analysis._machine import Machine
from corsac.distributed import collectives
from corsac.distributed._parallel_graph import parallel_graph
from corsac.distributed._parallel_plan import ParallelPlan
from corsac.distributed._planning.costs import ModelCosts, Saved
from corsac.distributed._planning.network import Network, all_gather_bytes, all_reduce_bytes
from corsac.fx import Node

#: The kinds of collectives.
KINDS = ("all_reduce", "reduce_scatter", "all_gather")
_FORWARD = {
    collectives.reduce: "all_reduce",
    collectives.reduce_scatter: "reduce_scatter",
    collectives.gather: "all_gather",
    collectives.gather_for_parts: "all_gather",
}
_BACKWARD = {
    collectives.copy: "all_reduce",
    collectives.gather_for_parts: "reduce_scatter",
    collectives.scatter: "all_gather",
    collectives.reduce_scatter: "all_gather",
}


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of tensor parallelism.

    Attributes:
        place: the place of the node of the program to whose stage it belongs.
        kind: one of :data:`KINDS`.
        source: the place of the value; for a loss over parts of the classes its logits.
        backward: whether it is in the backward pass.
        per_row: the size is that of a number for each row of the value, not of the value.
    """

    place: int
    kind: str
    source: int
    backward: bool
    per_row: bool = False


@dataclass(slots=True)
class ParallelCosts:
    """Costs of a way to cut a model among the ranks of a group.

    Attributes:
        plan: how it is cut.
        shares: the share of each node that a rank computes.
        collectives: what the ranks do together.
    """

    plan: ParallelPlan
    shares: torch.Tensor
    collectives: list[Collective]

    @classmethod
    def of(cls, plan: ParallelPlan) -> ParallelCosts:
        """The costs of a plan, from the graph that its ranks run."""
        nodes = list(plan.program.graph.nodes)
        shares = [1.0 / plan.ranks if plan.nodes[node].split else 1.0 for node in nodes]
        return cls(plan, torch.tensor(shares, dtype=torch.float64), list(_collectives(plan)))

    def saved_shares(self, costs: ModelCosts) -> torch.Tensor:
        """The share of each saved tensor that a rank has."""
        shares = [
            1.0 / self.plan.ranks if self._is_part(own, costs) else 1.0 for own in costs.saved
        ]
        return torch.tensor(shares, dtype=torch.float64)

    def _is_part(self, saved: Saved, costs: ModelCosts) -> bool:
        """Whether a rank saves a part of a tensor: as the calls that save it use it, or else as it is made."""
        memory = _memory(costs.values[saved.owner])
        for place in saved.places:
            for value, placed in self.plan.nodes[costs.nodes[place]].inputs.items():
                if (
                    memory is not None
                    and _memory(costs.values[value]) == memory
                    and placed == [None]
                ):
                    return False
        planned = self.plan.nodes[saved.owner]
        return planned.split or any(isinstance(placed, tuple) for placed in planned.output)

    def size_bytes(self, own: Collective, costs: ModelCosts, sizes: torch.Tensor) -> float:
        """The bytes of the tensor of a collective."""
        size = float(sizes[own.source])
        if own.per_row:
            value = costs.values[costs.nodes[own.source]]
            size /= value.shape[-1] if value.dim() > 1 else 1
        return size

    def seconds(self, own: Collective, size_bytes: float, network: Network) -> float:
        """The time of a collective."""
        # A sum of which each rank gets a part goes around once, as what is gathered does.
        run = network.all_reduce if own.kind == "all_reduce" else network.all_gather
        return run(size_bytes, self.plan.ranks)

    def all_seconds(
        self, costs: ModelCosts, items: float, machine: Machine, network: Network
    ) -> torch.Tensor:
        """The time of each node, forward and backward, with that of its collectives."""
        forward, backward, _ = costs.seconds(items, machine, self.shares)
        total, sizes = forward + backward, costs.bytes.at(items)
        for own in self.collectives:
            total[own.place] += self.seconds(own, self.size_bytes(own, costs, sizes), network)
        return total

    def sent_bytes(self, own: Collective, size_bytes: float) -> float:
        """The bytes that a rank sends for a collective."""
        run = all_reduce_bytes if own.kind == "all_reduce" else all_gather_bytes
        return run(size_bytes, self.plan.ranks)


def _memory(value: Any) -> int | None:
    """The number of the storage of a tensor; None for other values."""
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _collectives(plan: ParallelPlan) -> list[Collective]:
    """The collectives in the graph of a rank, and those of their gradients."""
    if plan.ranks == 1:
        return []
    place = {node.name: at for at, node in enumerate(plan.program.graph.nodes)}
    graph = parallel_graph(plan, "")
    found: list[Collective] = []

    def source(node: Node) -> int:
        while node.name not in place:
            node = node.all_input_nodes[0]
        return place[node.name]

    def consumer(node: Node) -> int:
        """The place of the first call that uses a value."""
        for user in node.users:
            if user.name in place:
                return place[user.name]
            if user.users:
                return consumer(user)
        return source(node)

    has_gradient = _reached(plan)
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        target = node.target
        if target in _FORWARD:
            found.append(Collective(source(node), _FORWARD[target], source(node), False))
        if target in _BACKWARD:
            at = source(node)
            if at in has_gradient:
                found.append(Collective(consumer(node), _BACKWARD[target], at, True))
        if target is collectives.sharded_cross_entropy:
            at = source(node.args[0])
            for _ in range(3):
                found.append(Collective(consumer(node), "all_reduce", at, False, per_row=True))
    return found


def _reached(plan: ParallelPlan) -> set[int]:
    """The places of the values that get a gradient."""
    if not plan.training:
        return set()
    program, found = plan.program, set[Node]()
    nodes = list(program.graph.nodes)
    for node in nodes:
        if node.op == "get_attr":
            if program.weights[str(node.target)].requires_grad:
                found.add(node)
        elif any(own in found for own in node.all_input_nodes):
            found.add(node)
    return {at for at, node in enumerate(nodes) if node in found}


__all__ = ["KINDS", "Collective", "ParallelCosts"]
