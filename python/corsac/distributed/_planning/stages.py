"""Costs of the stages of a mesh: of a part of a model for a microbatch, on one of the ranks that share it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from corsac.analysis._machine import Machine
from corsac.distributed._plan import PipelinePlan
from corsac.distributed._planning.costs import ModelCosts
from corsac.distributed._planning.network import Network
from corsac.distributed._planning.parallel_costs import KINDS, ParallelCosts
from corsac.distributed._planning.timeline import StageTimes


@dataclass(frozen=True, slots=True)
class StageCosts:
    """Costs of a stage.

    Attributes:
        times: for the simulation.
        weights: bytes of weights that a rank keeps.
        trained: bytes of those that have gradients.
        working: the most bytes that one call reads and writes.
        collectives: those of tensor parallelism, by their kind and whether they are in the backward pass: the bytes of
            their tensors, and their number.
        sent: bytes that a rank sends for them for each microbatch.
        passed: bytes that the stage sends to the next one.
        awaited: bytes of gradients that it receives from the next one.
    """

    times: StageTimes
    weights: float
    trained: float
    working: float
    collectives: dict[tuple[str, bool], tuple[float, int]]
    sent: float
    passed: float
    awaited: float


def stage_costs(
    costs: ModelCosts,
    pipeline: PipelinePlan,
    parallel: ParallelCosts,
    items: float,
    machine: Machine,
    network: Network,
    measured: tuple[float, float] | None = None,
) -> list[StageCosts]:
    """The costs of all stages.

    Args:
        costs: of the model.
        pipeline: the stages.
        parallel: how each is cut among ranks.
        items: the size of a microbatch.
        machine: the speed of a rank.
        network: the connections.
        measured: factors by which forward and backward passes are slower than the machine allows.
    """
    return _Costs(costs, pipeline, parallel, items, machine, network, measured or (1.0, 1.0)).all()


class _Costs:
    def __init__(
        self,
        costs: ModelCosts,
        pipeline: PipelinePlan,
        parallel: ParallelCosts,
        items: float,
        machine: Machine,
        network: Network,
        slower: tuple[float, float],
    ) -> None:
        self.costs, self.pipeline, self.parallel = costs, pipeline, parallel
        self.network = network
        self.place = {node.name: at for at, node in enumerate(costs.nodes)}
        forward, backward, weights = costs.seconds(items, machine, parallel.shares)
        self.forward, self.backward = forward * slower[0], backward * slower[1]
        self.weight_time = weights * slower[1]
        self.sizes = costs.bytes.at(items)
        self.saved = costs.saved_bytes.at(items) * parallel.saved_shares(costs)
        #: The numbers of saved tensors, and the places of the nodes that keep them.
        pairs = [(at, place) for at, own in enumerate(costs.saved) for place in own.places]
        self.kept = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
        self.moved = costs.moved.at(items) * parallel.shares
        starts = [0, *(self.place[name] for name in pipeline.cuts), len(costs.nodes)]
        self.ranges = list(itertools.pairwise(starts))

    def all(self) -> list[StageCosts]:
        return [self._stage(number) for number in range(len(self.ranges))]

    def _stage(self, number: int) -> StageCosts:
        first, last = self.ranges[number]
        stage = self.pipeline.stages[number]
        again = [self.place[name] for name in stage.recomputed]
        run = [own for own in self.parallel.collectives if first <= own.place < last]
        sizes = [(own, self.parallel.size_bytes(own, self.costs, self.sizes)) for own in run]

        def of(kind: str, backward: bool) -> tuple[float, int]:
            own = [size for one, size in sizes if (one.kind, one.backward) == (kind, backward)]
            return sum(own), len(own)

        def waiting(backward: bool) -> float:
            return sum(
                self.parallel.seconds(own, size, self.network)
                for own, size in sizes
                if own.backward is backward
            )

        inputs = [self.place[name] for name in stage.inputs] if number else []
        outputs = [self.place[name] for name in stage.outputs]
        is_last = number == len(self.ranges) - 1
        passed = [] if is_last else outputs
        weights, trained = self._weights(stage.weights)
        times = StageTimes(
            forward=float(self.forward[first:last].sum() + self.forward[again].sum())
            + waiting(False),
            backward=float(self.backward[first:last].sum()) + waiting(True),
            weights=float(self.weight_time[first:last].sum()),
            received=float(self.sizes[inputs].sum()),
            returned=self._gradients(inputs),
            held=self._held(first, last, inputs, outputs),
            gradients=trained,
        )
        return StageCosts(
            times,
            weights,
            trained,
            float(self.moved[first:last].max()) if last > first else 0.0,
            {(kind, way): of(kind, way) for kind in KINDS for way in (False, True)},
            sum(self.parallel.sent_bytes(own, size) for own, size in sizes),
            float(self.sizes[passed].sum()),
            self._gradients(passed),
        )

    def _gradients(self, places: Sequence[int]) -> float:
        """The bytes of the gradients of values that have them."""
        values = ((at, self.costs.values[self.costs.nodes[at]]) for at in places)
        return sum(float(self.sizes[at]) for at, own in values if own.requires_grad)

    def _weights(self, names: Sequence[str]) -> tuple[float, float]:
        """The bytes of a rank's part of weights, and of those with gradients."""
        total = trained = 0.0
        for name in names:
            weight = self.pipeline.program.weights[name]
            size = float(torch.Size(self.parallel.plan.local_shape(name)).numel())
            size *= weight.dtype.itemsize
            total += size
            trained += size if weight.requires_grad else 0.0
        return total, trained

    def _held(self, first: int, last: int, inputs: list[int], outputs: list[int]) -> float:
        """Bytes that are kept between the passes: what autograd has saved, what was received, and copies of what is
        sent."""
        inside = (self.kept[:, 1] >= first) & (self.kept[:, 1] < last)
        own = self.kept[inside, 0].unique()
        owners = {self.place[self.costs.saved[at].owner.name] for at in own.tolist()}
        received = [at for at in inputs if at not in owners]
        return float(self.saved[own].sum() + self.sizes[received].sum() + self.sizes[outputs].sum())


__all__ = ["StageCosts", "stage_costs"]
