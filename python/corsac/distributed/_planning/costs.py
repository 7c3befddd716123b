"""Costs of the nodes of a model as functions of the size of a microbatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from corsac.analysis._machine import Machine
from corsac.distributed import collectives
from corsac.distributed._borders import counted
from corsac.distributed._parallel_graph import parallel_graph
from corsac.distributed._parallel_plan import ParallelPlan
from corsac.distributed._planning.network import Network, all_gather_bytes, all_reduce_bytes
from corsac.distributed._program import Program
from corsac.distributed._values import InputType, bytes_of, values_of
from corsac.fx import Node


@dataclass(frozen=True, slots=True)
class Line:
    """Numbers that grow by an equal step with each item of a batch.

    Attributes:
        base: for no items.
        step: for each item more.
    """

    base: torch.Tensor
    step: torch.Tensor

    @classmethod
    def through(
        cls, sizes: tuple[int, int], first: Sequence[float], second: Sequence[float]
    ) -> Line:
        """From the numbers for two sizes of a batch; of one size if both are equal."""
        one = torch.tensor(first, dtype=torch.float64)
        if sizes[0] == sizes[1]:
            return cls(one, torch.zeros_like(one))
        step = (torch.tensor(second, dtype=torch.float64) - one) / (sizes[1] - sizes[0])
        return cls(one - step * sizes[0], step)

    def at(self, items: float) -> torch.Tensor:
        """The numbers for a batch of ``items``."""
        return self.base + self.step * items


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor that autograd keeps for the backward pass.

    Attributes:
        owner: the node that makes it, or that keeps it besides its result.
        places: the places of the nodes that keep it.
    """

    owner: Node
    places: tuple[int, ...]


@dataclass(slots=True)
class ModelCosts:
    """Costs of each node of a program.

    Attributes:
        program: the model as one graph.
        nodes: its nodes in order.
        values: their values for the first of two sizes of a batch.
        flops, moved: operations, and bytes read and written, of forward passes.
        back_flops, back_moved: the same of backward passes.
        weight_flops: the operations among them for gradients of weights.
        bytes: sizes of the values.
        saved: what autograd keeps, and ``saved_bytes`` its sizes.
    """

    program: Program
    nodes: list[Node]
    values: Mapping[Node, Any]
    flops: Line
    moved: Line
    back_flops: Line
    back_moved: Line
    weight_flops: Line
    bytes: Line
    saved: list[Saved]
    saved_bytes: Line

    @classmethod
    def of(
        cls, program: Program, inputs: Sequence[Sequence[InputType]], sizes: tuple[int, int]
    ) -> ModelCosts:
        """The costs of a program, from inputs of two sizes of a batch.

        Raises:
            PipelineError: a call fails for such inputs.
        """
        first, second = (_Counts(program, own) for own in inputs)

        def line(name: str) -> Line:
            return Line.through(sizes, getattr(first, name), getattr(second, name))

        names = ("flops", "moved", "back_flops", "back_moved", "weight_flops", "bytes")
        return cls(
            program,
            first.nodes,
            first.values,
            **{name: line(name) for name in names},
            saved=first.saved,
            saved_bytes=line("saved_bytes"),
        )

    def seconds(
        self, items: float, machine: Machine, shares: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The times of each node on a rank that has ``shares`` of it: forward, backward, and for gradients of weights."""

        def time(flops: Line, moved: Line) -> torch.Tensor:
            operations, traffic = flops.at(items), moved.at(items)
            return shares * torch.maximum(
                operations / (machine.gflops * 1e9), traffic / (machine.gbytes * 1e9)
            )

        backward = time(self.back_flops, self.back_moved)
        operations = self.back_flops.at(items)
        part = self.weight_flops.at(items) / operations.clamp(min=1.0)
        return time(self.flops, self.moved), backward, backward * part


class _Counts:
    """The costs for inputs of one size."""

    def __init__(self, program: Program, inputs: Sequence[InputType]) -> None:
        self.nodes = list(program.graph.nodes)
        place = {node: at for at, node in enumerate(self.nodes)}
        self._kept: dict[int, list[Node]] = {}
        self._tensors: dict[int, torch.Tensor] = {}
        self._at: Node | None = None
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda own: own):
            self.values = values_of(program.graph, inputs, program.weights, entered=self._enter)
        self.flops: list[float] = []
        self.moved: list[float] = []
        self.back_flops: list[float] = []
        self.back_moved: list[float] = []
        self.weight_flops: list[float] = []
        self.bytes = [float(bytes_of(self.values.get(node))) for node in self.nodes]
        rows = counted(program, self.values)
        for node, (macs, flops, read, written) in zip(self.nodes, rows, strict=True):
            is_call = node.op.startswith("call_")
            self.flops.append(flops if is_call else 0.0)
            self.moved.append(read + written if is_call else 0.0)
            self._add_backward(node, macs, flops, read, written)
        owners: dict[int, Node] = {}
        weights: set[int] = set()
        for node in self.nodes:
            for own in _tensors(self.values.get(node)):
                key = own.untyped_storage()._cdata
                owners.setdefault(key, node)
                if node.op == "get_attr":
                    weights.add(key)
        kept = [(key, users) for key, users in self._kept.items() if key not in weights]
        self.saved = [
            Saved(owners.get(key, users[0]), tuple(sorted({place[own] for own in users})))
            for key, users in kept
        ]
        self.saved_bytes = [float(self._tensors[key].untyped_storage().nbytes()) for key, _ in kept]

    def _enter(self, node: Node) -> None:
        self._at = node

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        key = tensor.untyped_storage()._cdata
        # Held, so that no other one gets the number of its storage.
        self._tensors.setdefault(key, tensor.detach())
        if self._at is not None:
            self._kept.setdefault(key, []).append(self._at)
        return tensor

    def _add_backward(self, node: Node, macs: int, flops: int, read: int, written: int) -> None:
        """A product has one for each of its arguments that has a gradient, which costs as much as it; other calls read
        what they have read and written, and write a gradient for what they have read."""
        total = moved = of_weights = 0.0
        if node.op.startswith("call_") and _has_gradient(self.values.get(node)):
            given = [own for own in node.all_input_nodes if _has_gradient(self.values.get(own))]
            own_weights = [own for own in given if own.op == "get_attr"]
            if macs:
                # A bias costs nothing beside its weight.
                products = [own for own in given if self.values[own].dim() > 1]
                total = float(flops * len(products))
                of_weights = float(flops * sum(own in own_weights for own in products))
                moved = float((read + written) * max(len(products), 1))
            elif written:
                total, moved = float(flops), float(2 * read + written)
                of_weights = float(flops) * len(own_weights) / max(len(given), 1)
        self.back_flops.append(total)
        self.back_moved.append(moved)
        self.weight_flops.append(of_weights)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [own for one in value for own in _tensors(one)]
    return []


def _has_gradient(value: Any) -> bool:
    return any(own.requires_grad for own in _tensors(value))


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of tensor parallelism.

    Attributes:
        place: the place of the node of the program to whose stage it belongs.
        kind: ``"all_reduce"`` or ``"all_gather"``.
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
        planned = [self.plan.nodes[own.owner] for own in costs.saved]
        is_part = [
            own.split or any(isinstance(placed, tuple) for placed in own.output) for own in planned
        ]
        shares = torch.ones(len(is_part), dtype=torch.float64)
        shares[torch.tensor(is_part, dtype=torch.bool)] = 1.0 / self.plan.ranks
        return shares

    def size_bytes(self, own: Collective, costs: ModelCosts, sizes: torch.Tensor) -> float:
        """The bytes of the tensor of a collective."""
        size = float(sizes[own.source])
        if own.per_row:
            value = costs.values[costs.nodes[own.source]]
            size /= value.shape[-1] if value.dim() > 1 else 1
        return size

    def seconds(self, own: Collective, size_bytes: float, network: Network) -> float:
        """The time of a collective."""
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

    forward = {collectives.reduce: "all_reduce", collectives.gather: "all_gather"}
    backward = {collectives.copy: "all_reduce", collectives.scatter: "all_gather"}
    has_gradient = _reached(plan)
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        target = node.target
        if target in forward:
            found.append(Collective(source(node), forward[target], source(node), False))
        elif target in backward:
            at = source(node)
            if at in has_gradient:
                found.append(Collective(consumer(node), backward[target], at, True))
        elif target is collectives.sharded_cross_entropy:
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


__all__ = ["Collective", "Line", "ModelCosts", "ParallelCosts", "Saved"]
