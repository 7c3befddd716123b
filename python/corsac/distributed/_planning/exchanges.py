"""What each rank of a mesh sends, receives and reduces in a training step, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corsac.distributed._planning.matching import Exchange
from corsac.distributed._planning.meshes import Mesh
from corsac.distributed._planning.schedules import COMPUTES, SENDS, Action
from corsac.distributed._planning.stages import StageCosts


def exchanges(
    mesh: Mesh,
    orders: Sequence[Sequence[Action]],
    stages: Sequence[StageCosts],
    shared: Mapping[str, tuple[Sequence[int], float]],
) -> list[list[Exchange]]:
    """The exchanges of all ranks of a mesh.

    Args:
        mesh: the mesh.
        orders: the actions of each rank of a pipeline.
        stages: the costs of the stages.
        shared: the stages of weights that several have, and the bytes of a rank's part.
    """
    found: list[list[Exchange]] = [[] for _ in range(mesh.ranks)]
    stage_rank = {own.stage: at for at, order in enumerate(orders) for own in order}
    for at, order in enumerate(orders):
        last = {own.stage: own for own in order if own.kind in ("B", "W")}
        for data in range(mesh.data):
            for tensor in range(mesh.tensor):
                one = _Rank(mesh, at, tensor, data, stages, stage_rank)
                own = found[mesh.rank(at, tensor, data)]
                for action in order:
                    own += one.exchanges(action)
                    if mesh.data > 1 and last.get(action.stage) == action:
                        own += one.reduced_gradients(action.stage)
                for name in sorted(shared):
                    own += one.shared_gradients(name, *shared[name])
    return found


class _Rank:
    """A rank of a mesh."""

    def __init__(
        self,
        mesh: Mesh,
        pipeline: int,
        tensor: int,
        data: int,
        stages: Sequence[StageCosts],
        stage_rank: Mapping[int, int],
    ) -> None:
        self.mesh, self.at, self.tensor, self.data = mesh, pipeline, tensor, data
        self.stages, self.stage_rank = stages, stage_rank
        self.tensor_group = tuple(mesh.rank(pipeline, own, data) for own in range(mesh.tensor))
        self.data_group = tuple(mesh.rank(pipeline, tensor, own) for own in range(mesh.data))

    def exchanges(self, action: Action) -> list[Exchange]:
        """Those of an action."""
        kind, stage, microbatch = action
        what = f"{kind}{stage}.{microbatch}"
        if kind in COMPUTES:
            # Gradients of weights need none.
            return [] if kind == "W" else self._collectives(stage, kind != "F", what)
        forward = kind.endswith("_F")
        sends = kind in SENDS
        other = stage + 1 if forward is sends else stage - 1
        # A message is called after what its receiver does with it.
        target = other if sends else stage
        rank = self._rank(self.stage_rank[other])
        what = f"{'F' if forward else 'B'}{target}.{microbatch}"
        costs = self.stages[stage]
        if sends:
            size = costs.passed if forward else costs.times.returned
        else:
            size = costs.times.received if forward else costs.awaited
        return [Exchange("send" if sends else "receive", (rank,), size, what)]

    def _rank(self, pipeline: int) -> int:
        return self.mesh.rank(pipeline, self.tensor, self.data)

    def _collectives(self, stage: int, backward: bool, what: str) -> list[Exchange]:
        return [
            Exchange(kind, self.tensor_group, size, what, count)
            for (kind, way), (size, count) in self.stages[stage].collectives.items()
            if way is backward and count
        ]

    def reduced_gradients(self, stage: int) -> list[Exchange]:
        """The sum of the gradients of a stage over all copies of the model."""
        size = self.stages[stage].times.gradients
        return [Exchange("all_reduce", self.data_group, size, f"gradients of stage {stage}")]

    def shared_gradients(
        self, name: str, numbers: Sequence[int], size_bytes: float
    ) -> list[Exchange]:
        """The exchange of the gradients of a weight that several stages have: each sends its own to all ranks that have
        another one."""
        ranks = sorted({self.stage_rank[own] for own in numbers})
        found = []
        for number in numbers:
            what = f"gradient of {name} in stage {number}"
            owner = self.stage_rank[number]
            if owner == self.at:
                found += [
                    Exchange("send", (self._rank(own),), size_bytes, what)
                    for own in ranks
                    if own != owner
                ]
            elif self.at in ranks:
                found.append(Exchange("receive", (self._rank(owner),), size_bytes, what))
        return found


__all__ = ["exchanges"]
