"""Stages of pipelines whose weights are cut among the ranks of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from corsac.distributed._borders import with_types
from corsac.distributed._errors import ParallelError
from corsac.distributed._parallel import own_weights
from corsac.distributed._parallel_graph import parallel_graph
from corsac.distributed._parallel_plan import ParallelPlan, plan_program
from corsac.distributed._plan import PipelinePlan
from corsac.distributed._program import Arguments, Program
from corsac.distributed._stage_graphs import StageGraph, sent
from corsac.distributed._values import InputType
from corsac.fx._own_copy import copied_graph


class TensorStages:
    """The stages of a plan, each cut among the ranks of a group. What stages send is whole, so each rank of the group
    sends it to its own rank of the next stage. A weight that several stages have is cut in the same way in all.

    Args:
        plan: the stages.
        ranks: the number of ranks of the group.
        sequence_parallel: as for :func:`plan_parallel`.

    Raises:
        ParallelError: a stage cannot be cut in this way.
    """

    def __init__(self, plan: PipelinePlan, ranks: int, sequence_parallel: bool = False) -> None:
        self.plan, self.ranks, self.sequence_parallel = plan, ranks, sequence_parallel
        shared = plan.shared()
        #: How weights are cut that several stages have: as in the whole model, or not.
        known: dict[str, int | None] = dict.fromkeys(shared)
        if shared:
            made = plan_program(plan.program, plan.inputs[0], ranks, True, (), {}, "error")
            known |= {name: own[0] for name, own in made.shards.items() if name in shared}
        try:
            self.stages = self._cut(known)
        except ParallelError:
            if not any(own is not None for own in known.values()):
                raise
            self.stages = self._cut(dict.fromkeys(shared))

    def _cut(self, known: Mapping[str, int | None]) -> list[ParallelPlan]:
        """All stages, with the weights in ``known`` cut along these dimensions, or whole.

        Raises:
            ParallelError: a stage cannot be cut in this way.
        """
        found: list[ParallelPlan] = []
        for number, stage in enumerate(self.plan.stages):
            own = {name: known[name] for name in stage.weights if name in known}
            shard = {name: dim for name, dim in own.items() if dim is not None}
            whole = [name for name, dim in own.items() if dim is None]
            inputs = self.inputs(number, self.plan.inputs[0])
            program = _program(self.plan, stage)
            try:
                made = plan_program(
                    program, inputs, self.ranks, True, whole, shard, "error", self.sequence_parallel
                )
            except ParallelError as error:
                raise ParallelError(f"stage {number}: {error}") from error
            for name in own:
                first = next(at for at in self.plan.shared()[name])
                if first < number and found[first].shards.get(name) != made.shards.get(name):
                    raise ParallelError(f"stages {first} and {number} cut {name} in other ways")
            found.append(made)
        return found

    def inputs(self, number: int, given: Sequence[InputType]) -> list[InputType]:
        """The types of what a stage takes, for inputs of the model of these types."""
        values = self.plan.values(given)
        own = (values[name] for name in self.plan.stages[number].inputs)
        return [(tuple(value.shape), value.dtype) for value in own]

    def check(self, number: int, given: Sequence[InputType]) -> None:
        """Check that the graph of a stage is right for inputs of the model of these types.

        Raises:
            ParallelError: it is not.
        """
        self.stages[number].check(self.inputs(number, given))

    def stage(self, number: int, group: str) -> StageGraph:
        """A stage as the ranks of a group of this name run it."""
        graph = parallel_graph(self.stages[number], group)
        output = graph.output_node()
        with graph.inserting_before(output):
            results = [graph.call_function(sent, (own,)) for own in output.args[0]]
        output.args = (tuple(results),)
        return replace(self.plan.stages[number], graph=graph)

    def weights(
        self, number: int, rank: int, values: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """A rank's parts of the weights of a stage."""
        plan = self.stages[number]
        held = replace(plan.program, tensors=dict(values))
        return own_weights(replace(plan, program=held), rank, None)

    def digests(self) -> dict[str, str]:
        """A hash of each part of the plan."""
        return {
            f"{name} of stage {number}": own
            for number, plan in enumerate(self.stages)
            for name, own in plan.digests().items()
        }


def _program(plan: PipelinePlan, stage: StageGraph) -> Program:
    """A stage as a program of its own, whose results are not copied: of copies nothing is known."""
    weights = {name: plan.program.weights[name] for name in stage.weights}
    tensors: dict[str, Any] = {name: plan.program.tensors[name] for name in stage.weights}
    graph = copied_graph(stage.graph)
    for node in graph.find_nodes(op="call_function", target=sent):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
    module = with_types(graph, weights)
    places = tuple(range(len(stage.inputs)))
    return Program(module.graph, Arguments(places, {}), weights, tensors)


__all__ = ["TensorStages"]
