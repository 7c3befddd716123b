"""A training step of a pipeline, simulated action by action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from corsac.distributed._planning.network import Network
from corsac.distributed._planning.schedules import Action

#: Bytes of a bucket of gradients, as of PyTorch's DistributedDataParallel.
BUCKET = 25 * 2**20


@dataclass(frozen=True, slots=True)
class StageTimes:
    """What a stage costs for a microbatch, on one rank.

    Attributes:
        forward, backward: seconds, with the collectives of tensor parallelism.
        weights: seconds of ``backward`` for gradients of weights, which some schedules compute apart.
        received: bytes that it receives from the stage before.
        returned: bytes of gradients that it sends back.
        held: bytes that are kept from the forward to the backward pass.
        gradients: bytes of the gradients of its weights.
    """

    forward: float
    backward: float
    weights: float
    received: float
    returned: float
    held: float
    gradients: float


class Box(NamedTuple):
    """A time in which a rank of the pipeline computes or sends: ``F``, ``B``, ``I``, ``W`` as for actions, ``SEND_F`` and
    ``SEND_B`` while the message is under way, or ``REDUCE`` for the sum of gradients over copies of the pipeline."""

    rank: int
    kind: str
    stage: int
    microbatch: int
    start: float
    end: float


@dataclass(slots=True)
class Timeline:
    """A simulated step.

    Attributes:
        boxes: of all ranks, in no particular order.
        seconds: when the last rank is done.
        busy: seconds that each rank computes.
        held: the most bytes that each rank keeps for backward passes at once.
        exposed: seconds that each rank waits for the sum of gradients after its last backward pass.
    """

    boxes: list[Box] = field(default_factory=list)
    seconds: float = 0.0
    busy: list[float] = field(default_factory=list)
    held: list[float] = field(default_factory=list)
    exposed: list[float] = field(default_factory=list)

    @property
    def bubble(self) -> float:
        """The share of the step in which ranks do not compute."""
        if not self.seconds:
            return 0.0
        return 1 - sum(self.busy) / (len(self.busy) * self.seconds)


def simulate(
    orders: Sequence[Sequence[Action]],
    stages: Sequence[StageTimes],
    network: Network,
    copies: int = 1,
    overhead: float = 0.0,
    split: float = 1.0,
) -> Timeline:
    """Run the actions of all ranks of a pipeline. A rank computes one thing at a time; messages are under way meanwhile,
    one after the other from one rank to another, and so is the sum of the gradients of a stage, in buckets that are
    ready one by one during its last backward pass.

    Args:
        orders: the actions of each rank.
        stages: the costs of the stages.
        network: the connections.
        copies: the number of pipelines that sum their gradients.
        overhead: seconds that a rank needs for each action before it computes.
        split: factor by which backward passes are slower that compute gradients of weights apart.

    Raises:
        ValueError: the ranks wait for each other for ever.
    """
    return _Step(orders, stages, network, copies, overhead, split).run()


class _Step:
    def __init__(
        self,
        orders: Sequence[Sequence[Action]],
        stages: Sequence[StageTimes],
        network: Network,
        copies: int,
        overhead: float,
        split: float,
    ) -> None:
        self.orders, self.stages, self.network, self.copies = orders, stages, network, copies
        self.overhead, self.split = overhead, split
        self.rank_of = {own.stage: rank for rank, order in enumerate(orders) for own in order}
        count = len(orders)
        self.found = Timeline(busy=[0.0] * count, held=[0.0] * count, exposed=[0.0] * count)
        self.clock, self.now_held = [0.0] * count, [0.0] * count
        self.connections: dict[tuple[int, int], float] = {}
        self.reducing = [0.0] * count
        #: When inputs (``F``) and gradients of results (``B``) of stages and microbatches are there.
        self.ready: dict[tuple[str, int, int], float] = {}
        self.waiting: dict[tuple[str, int, int], int] = {}
        #: The backward pass after which the gradients of a stage are complete.
        self.last = {own.stage: own for order in orders for own in order if own.kind in ("B", "W")}

    def run(self) -> Timeline:
        at = [0] * len(self.orders)
        runnable = list(range(len(self.orders)))
        while runnable:
            rank = runnable.pop()
            order = self.orders[rank]
            while at[rank] < len(order):
                action = order[at[rank]]
                missing = self._missing(action)
                if missing is not None:
                    self.waiting[missing] = rank
                    break
                for key in self._do(rank, action):
                    if key in self.waiting:
                        runnable.append(self.waiting.pop(key))
                at[rank] += 1
        stuck = [rank for rank, order in enumerate(self.orders) if at[rank] < len(order)]
        if stuck:
            raise ValueError(
                f"rank {stuck[0]} waits for ever before {self.orders[stuck[0]][at[stuck[0]]]}"
            )
        found = self.found
        for rank, end in enumerate(self.clock):
            found.exposed[rank] = max(self.reducing[rank] - end, 0.0)
            found.seconds = max(found.seconds, end, self.reducing[rank])
        return found

    def _needed(self, action: Action) -> tuple[str, int, int] | None:
        """What has to be there before an action: inputs, or gradients of results."""
        kind, stage, microbatch = action
        if kind == "F" and stage > 0:
            return "F", stage, microbatch
        if kind in ("B", "I") and stage < len(self.stages) - 1:
            return "B", stage, microbatch
        return None

    def _missing(self, action: Action) -> tuple[str, int, int] | None:
        key = self._needed(action)
        return None if key is None or key in self.ready else key

    def _do(self, rank: int, action: Action) -> list[tuple[str, int, int]]:
        """Run an action; return what is there then."""
        kind, stage, microbatch = action
        if kind.startswith("SEND"):
            return [self._send(rank, action)]
        if kind.startswith("RECV"):
            return []
        costs = self.stages[stage]
        needed = self._needed(action)
        start = self.clock[rank]
        if needed is not None:
            start = max(start, self.ready[needed])
        start += self.overhead
        seconds = {
            "F": costs.forward,
            "B": costs.backward,
            "I": (costs.backward - costs.weights) * self.split,
            "W": costs.weights * self.split,
        }[kind]
        end = self.clock[rank] = start + seconds
        self.found.boxes.append(Box(rank, kind, stage, microbatch, start, end))
        self.found.busy[rank] += seconds
        if kind == "F":
            self.now_held[rank] += costs.held
            self.found.held[rank] = max(self.found.held[rank], self.now_held[rank])
        elif kind in ("B", "W"):
            self.now_held[rank] -= costs.held
        if self.last.get(stage) == action:
            self._reduce(rank, stage, start, end)
        other = stage + 1 if kind == "F" else stage - 1
        if kind != "W" and self.rank_of.get(other) == rank:
            key = ("F" if kind == "F" else "B", other, microbatch)
            self.ready[key] = end
            return [key]
        return []

    def _send(self, rank: int, action: Action) -> tuple[str, int, int]:
        kind, stage, microbatch = action
        forward = kind == "SEND_F"
        other = stage + 1 if forward else stage - 1
        size = self.stages[other].received if forward else self.stages[stage].returned
        way = rank, self.rank_of[other]
        start = max(self.clock[rank], self.connections.get(way, 0.0))
        end = start + self.network.send(size)
        self.connections[way] = end - self.network.latency
        self.found.boxes.append(Box(rank, kind, stage, microbatch, start, end))
        key = ("F" if forward else "B", other, microbatch)
        self.ready[key] = end
        return key

    def _reduce(self, rank: int, stage: int, start: float, end: float) -> None:
        """Sum the gradients of a stage during its last backward pass, and after it."""
        size = self.stages[stage].gradients
        if self.copies == 1 or not size:
            return
        count = max(round(size / BUCKET), 1)
        first = None
        for number in range(count):
            at = start + (end - start) * (number + 1) / count
            begin = max(at, self.reducing[rank])
            first = begin if first is None else first
            self.reducing[rank] = begin + self.network.all_reduce(size / count, self.copies)
        assert first is not None
        self.found.boxes.append(Box(rank, "REDUCE", stage, 0, first, self.reducing[rank]))


__all__ = ["BUCKET", "Box", "StageTimes", "Timeline", "simulate"]
