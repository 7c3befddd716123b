"""The search for the best mesh of a model."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from corsac._messages.report_text import shortened
from corsac.analysis._machine import Machine
from corsac.distributed._errors import DistributedError, ParallelError, PipelineError
from corsac.distributed._parallel_plan import plan_program
from corsac.distributed._plan import PipelinePlan, plan_stages
from corsac.distributed._planning.costs import ModelCosts, resized
from corsac.distributed._planning.exchanges import exchanges
from corsac.distributed._planning.matching import check_matching
from corsac.distributed._planning.meshes import Mesh, MeshCosts, Refusal
from corsac.distributed._planning.network import Network
from corsac.distributed._planning.parallel_costs import ParallelCosts
from corsac.distributed._planning.schedules import (
    Action,
    orders_of,
    schedule_name,
    takes_several_stages,
)
from corsac.distributed._planning.stages import StageCosts, stage_costs
from corsac.distributed._planning.timeline import Timeline, simulate
from corsac.distributed._program import Program
from corsac.distributed._tensor_stages import TensorStages
from corsac.distributed._values import InputType, values_for

_Plan = TypeVar("_Plan")
#: Stages of each rank in schedules that take several.
_STAGES = 2


class Planner:
    """Costs of meshes for one model. What meshes have in common is computed once.

    Args:
        program: the model as one graph.
        inputs: the types of its inputs that plans are made for, and others with which sizes are told apart.
        sized: the types of its inputs for two sizes of a batch, and ``sizes`` these sizes, which are equal if the graph is
            for one size only.
        batch: the size of the batch of a step.
        machine: the speed of a rank.
        network: the connections between ranks.
        memory: bytes of a rank; None for no bound.
        states: tensors of the size of each parameter that the optimizer keeps.
        slower: factors by which forward and backward passes are slower than ``machine`` allows.
        overhead: seconds that an action of a schedule takes besides its pass.
        split: factor by which backward passes are slower that compute gradients of weights apart.
        sequence_parallel: whether ranks that share a stage keep parts of sequences between layers.
    """

    def __init__(
        self,
        program: Program,
        inputs: list[list[InputType]],
        sized: Sequence[list[InputType]],
        sizes: tuple[int, int],
        batch: int,
        machine: Machine,
        network: Network,
        memory: int | None,
        states: int,
        slower: tuple[float, float] | None = None,
        overhead: float = 0.0,
        split: float = 1.0,
        sequence_parallel: bool = False,
    ) -> None:
        self.program, self.inputs, self.batch = program, inputs, batch
        self.machine, self.network, self.memory, self.states = machine, network, memory, states
        self.slower, self.overhead, self.split = slower, overhead, split
        self.sequence_parallel = sequence_parallel
        self.sizes = sizes
        self.costs = ModelCosts.of(program, sized, sizes)
        self._values = [values_for(program, own) for own in inputs]
        self._pipelines: dict[tuple[int, int], PipelinePlan | PipelineError] = {}
        #: Sizes of microbatches, with the reason why the graph is not right for them.
        self._refused: dict[int, PipelineError | None] = {}
        self._parallels: dict[int, ParallelCosts | ParallelError] = {}
        self._stages: dict[tuple[int, int, float], list[StageCosts]] = {}

    def pipeline(self, stages: int, tensor: int) -> PipelinePlan:
        """The model cut into stages that take about the same time, if ``tensor`` ranks share each.

        Raises:
            DistributedError: it cannot be cut in this way.
        """
        key = stages, tensor
        if key not in self._pipelines:
            seconds = self.parallel(tensor).all_seconds(
                self.costs, self.sizes[0], self.machine, self.network
            )
            try:
                self._pipelines[key] = plan_stages(
                    self.program,
                    self.inputs,
                    stages,
                    None,
                    None,
                    self._values,
                    seconds.tolist(),
                )
            except PipelineError as error:
                self._pipelines[key] = error
        return _found(self._pipelines[key])

    def parallel(self, ranks: int) -> ParallelCosts:
        """The model cut among ranks.

        Raises:
            ParallelError: it cannot be cut among so many.
        """
        if ranks not in self._parallels:
            try:
                plan = plan_program(
                    self.program,
                    self.inputs[0],
                    ranks,
                    True,
                    (),
                    {},
                    "error",
                    self.sequence_parallel,
                )
                self._parallels[ranks] = ParallelCosts.of(plan)
            except ParallelError as error:
                self._parallels[ranks] = error
        return _found(self._parallels[ranks])

    def stages(self, stages: int, tensor: int, items: float) -> list[StageCosts]:
        """The costs of stages for microbatches of ``items``.

        Raises:
            DistributedError: the model cannot be cut in this way.
        """
        key = stages, tensor, items
        if key not in self._stages:
            self._stages[key] = stage_costs(
                self.costs,
                self.pipeline(stages, tensor),
                self.parallel(tensor),
                items,
                self.machine,
                self.network,
                self.slower,
            )
        return self._stages[key]

    def best(self, mesh: Mesh, schedules: Sequence[str], microbatches: Sequence[int]) -> MeshCosts:
        """The fastest schedule and number of microbatches for a mesh.

        Raises:
            Refusal: the mesh cannot be used.
        """
        if self.batch % mesh.data:
            raise Refusal(f"the number of copies does not divide a batch of {self.batch}")
        counts = [own for own in microbatches if own <= self.batch // mesh.data]
        if not counts:
            raise Refusal(f"the batch of a copy is less than {microbatches[0]} microbatches")
        try:
            return self._best(mesh, schedules, counts)
        except (ParallelError, PipelineError) as error:
            raise Refusal(str(error)) from error

    def _best(self, mesh: Mesh, schedules: Sequence[str], counts: Sequence[int]) -> MeshCosts:
        reasons: dict[str, None] = {}
        found: MeshCosts | None = None
        least: MeshCosts | None = None
        for schedule in schedules:
            name = schedule_name(schedule)
            count = mesh.pipeline * (_STAGES if takes_several_stages(name) else 1)
            if name == "1F1B" and counts[-1] < count:
                reasons.setdefault("1f1b needs a microbatch for each stage")
                continue
            for number in sorted(counts, key=lambda own: self._bound(mesh, count, own)):
                if found is not None and self._bound(mesh, count, number) >= found.seconds:
                    break
                try:
                    own = self.costs_of(mesh, schedule, number)
                    self._check_sizes(own)
                except ValueError:
                    # Fewer microbatches than stages.
                    continue
                except PipelineError as error:
                    reasons.setdefault(str(error))
                    continue
                if self.memory is not None and own.memory_bytes > self.memory:
                    if least is None or own.memory_bytes < least.memory_bytes:
                        least = own
                elif found is None or own.seconds < found.seconds:
                    found = own
        if found is not None:
            return found
        if least is not None:
            raise Refusal("it needs more memory", least.memory_bytes)
        known = ", ".join(schedules)
        raise Refusal(shortened(reasons) or f"no number of microbatches is one for {known}")

    def _check_sizes(self, own: MeshCosts) -> None:
        """Check that the graph is right for microbatches of these sizes.

        Raises:
            PipelineError: it is not.
        """
        first, second = self.sizes
        for items in {math.floor(own.items), math.ceil(own.items)}:
            if first == second != items:
                raise PipelineError(f"the graph is for microbatches of {first} only")
            if items not in self._refused:
                self._refused[items] = None
                try:
                    values_for(self.program, resized(self.inputs[0], self.sizes[0], items))
                except PipelineError as error:
                    self._refused[items] = error
            refused = self._refused[items]
            if refused is not None:
                raise refused

    def _bound(self, mesh: Mesh, count: int, microbatches: int) -> float:
        """The least time that a step can take: that of the slowest rank."""
        stages = self.stages(count, mesh.tensor, self.batch / mesh.data / microbatches)
        each = [own.times.forward + own.times.backward for own in stages]
        return microbatches * max(max(each), sum(each) / mesh.pipeline)

    def costs_of(self, mesh: Mesh, schedule: str, microbatches: int) -> MeshCosts:
        """What a step costs.

        Raises:
            DistributedError: the model cannot be cut in this way.
            ValueError: the schedule does not allow this number of microbatches.
        """
        orders, stages = self.parts(mesh, schedule, microbatches)
        step = self.timeline(mesh, schedule, microbatches)
        shared = self.shared(len(stages), mesh.tensor)
        exchange = sum(
            (len(numbers) - 1) * self.network.send(size) for numbers, size in shared.values()
        )
        sent = memory = 0.0
        for rank, order in enumerate(orders):
            own = sorted({action.stage for action in order})
            sent = max(sent, self._sent(mesh, order, stages, own, shared))
            kept = sum(stages[at].weights + (1 + self.states) * stages[at].trained for at in own)
            memory = max(memory, kept + step.held[rank] + max(stages[at].working for at in own))
        return MeshCosts(
            mesh,
            schedule,
            len(stages),
            microbatches,
            self.batch / mesh.data / microbatches,
            step.seconds + exchange,
            1 - (1 - step.bubble) * step.seconds / (step.seconds + exchange),
            max(step.exposed),
            sent,
            memory,
        )

    def _sent(
        self,
        mesh: Mesh,
        order: Sequence[Action],
        stages: Sequence[StageCosts],
        own: Sequence[int],
        shared: Mapping[str, tuple[list[int], float]],
    ) -> float:
        """The bytes that a rank sends."""
        total = 0.0
        for kind, stage, _ in order:
            if kind == "SEND_F":
                total += stages[stage + 1].times.received
            elif kind == "SEND_B":
                total += stages[stage].times.returned
            elif kind == "F":
                # Those of the backward pass, too.
                total += stages[stage].sent
        gradients = sum(stages[at].times.gradients for at in own)
        total += 2 * gradients * (mesh.data - 1) / mesh.data
        for numbers, size in shared.values():
            total += size * (len(numbers) - 1) * sum(at in own for at in numbers)
        return total

    def parts(
        self, mesh: Mesh, schedule: str, microbatches: int
    ) -> tuple[list[list[Action]], list[StageCosts]]:
        """The actions of each rank of a pipeline, and the costs of its stages."""
        name = schedule_name(schedule)
        count = mesh.pipeline * (_STAGES if takes_several_stages(name) else 1)
        stages = self.stages(count, mesh.tensor, self.batch / mesh.data / microbatches)
        return _orders(name, mesh.pipeline, count, microbatches), stages

    def timeline(self, mesh: Mesh, schedule: str, microbatches: int) -> Timeline:
        """The simulated step."""
        orders, stages = self.parts(mesh, schedule, microbatches)
        times = [own.times for own in stages]
        return simulate(orders, times, self.network, mesh.data, self.overhead, self.split)

    def shared(self, stages: int, tensor: int) -> dict[str, tuple[list[int], float]]:
        """The weights with gradients that several stages have: these stages, and the bytes of a rank's part."""
        plan = self.parallel(tensor).plan
        weights = self.program.weights
        found = {}
        for name, numbers in self.pipeline(stages, tensor).shared().items():
            if weights[name].requires_grad:
                share = weights[name].bytes / (tensor if name in plan.shards else 1)
                found[name] = numbers, share
        return found

    def checked_pipeline(self, own: MeshCosts) -> PipelinePlan:
        """The stages of a mesh, which can be run with its microbatches, and be cut among its ranks.

        Raises:
            DistributedError: they cannot.
        """
        plan, tensor = self.pipeline(own.stages, own.mesh.tensor), own.mesh.tensor
        cut = TensorStages(plan, tensor, self.sequence_parallel) if tensor > 1 else None
        for items in {math.floor(own.items), math.ceil(own.items)}:
            types = resized(self.inputs[0], self.sizes[0], items)
            plan.values(types)
            if cut is not None:
                for number in range(own.stages):
                    cut.check(number, types)
        return plan

    def check(self, own: MeshCosts) -> int:
        """Check that what all ranks of a mesh send, receive and reduce fits together.

        Returns:
            The number of messages and collectives.

        Raises:
            MatchingError: it does not.
        """
        orders, stages = self.parts(own.mesh, own.schedule, own.microbatches)
        shared = self.shared(len(stages), own.mesh.tensor)
        return check_matching(exchanges(own.mesh, orders, stages, shared))


def _found(own: _Plan | DistributedError) -> _Plan:
    if isinstance(own, DistributedError):
        raise own
    return own


@functools.lru_cache(maxsize=256)
def _orders(schedule: str, ranks: int, stages: int, microbatches: int) -> list[list[Action]]:
    return orders_of(schedule, ranks, stages, microbatches)


__all__ = ["Planner"]
