"""Plans of meshes as files, and the ranks that run them."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from corsac.distributed import collectives
from corsac.distributed._agreement import agree, digests_of
from corsac.distributed._errors import DistributedError, PipelineError
from corsac.distributed._pipeline import Pipeline, pipeline
from corsac.distributed._plan import PipelinePlan
from corsac.distributed._plan_file import PlanFile
from corsac.distributed._planning.meshes import DIMENSIONS, Mesh, MeshCosts
from corsac.distributed._rank_module import squares_of

#: Version of plan files.
_FORMAT = 1


@dataclass(slots=True)
class MeshPlan(PlanFile):
    """A model on a mesh of ranks, without its weights.

    Attributes:
        costs: the mesh, schedule and number of microbatches, and what a step is expected to cost.
        batch: the size of the batch of a step.
        pipeline: the stages.
        sequence_parallel: whether ranks that share a stage keep parts of sequences between layers.
    """

    costs: MeshCosts
    batch: int
    pipeline: PipelinePlan
    sequence_parallel: bool = False

    @property
    def mesh(self) -> Mesh:
        """The mesh."""
        return self.costs.mesh

    def content(self) -> dict[str, Any]:
        content = {"corsac.mesh": _FORMAT, **asdict(self.costs), "batch": self.batch}
        content["sequence_parallel"] = self.sequence_parallel
        return content | {"pipeline": self.pipeline.content()}

    @classmethod
    def of_content(cls, content: Mapping[str, Any], name: str) -> MeshPlan:
        try:
            if content.get("corsac.mesh") != _FORMAT:
                found = content.get("corsac.mesh")
                raise PipelineError(f"{name}: expected a mesh of version {_FORMAT}, got {found}")
            fields = {own: content[own] for own in MeshCosts.__dataclass_fields__}
            costs = MeshCosts(**(fields | {"mesh": Mesh(**content["mesh"])}))
            batch, stages = content["batch"], content["pipeline"]
            sequences = bool(content.get("sequence_parallel", False))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise PipelineError(
                f"{name} is no plan of a mesh: {type(error).__name__}: {error}"
            ) from error
        plan = PipelinePlan.of_content(stages, name)
        if len(plan.stages) != costs.stages:
            raise PipelineError(
                f"{name}: expected {costs.stages} stages, got {len(plan.stages)} in its pipeline"
            )
        return cls(costs, batch, plan, sequences)

    def digests(self) -> dict[str, str]:
        """A hash of each part of the plan."""
        own = self.costs
        parts = {
            "mesh": self.mesh.shape,
            "schedule": [own.schedule, own.microbatches],
            "sequence_parallel": self.sequence_parallel,
        }
        return self.pipeline.digests() | digests_of(parts)

    def device_mesh(self, device_type: str = "cpu") -> DeviceMesh:
        """The device mesh, with the dimensions ``pipeline``, ``data`` and ``tensor``. All ranks call it.

        Raises:
            DistributedError: there are not as many ranks.
        """
        if not dist.is_initialized():
            raise DistributedError(
                "there is no process group: call torch.distributed.init_process_group"
            )
        if dist.get_world_size() != self.mesh.ranks:
            raise DistributedError(
                f"the plan is for {self.mesh.ranks} ranks ({self.mesh}), there are {dist.get_world_size()}"
            )
        return init_device_mesh(device_type, self.mesh.shape, mesh_dim_names=DIMENSIONS)

    def start(
        self,
        example_inputs: Any,
        kwargs: Mapping[str, Any] | None = None,
        *,
        loss_fn: Callable[[Any, Any], torch.Tensor] | None = None,
        loss_reduction: str = "mean",
        weights: str | os.PathLike[str] | None = None,
        device: torch.device | str | None = None,
        timeout: float = 300.0,
    ) -> MeshRank:
        """This rank's part of the model. All ranks call it.

        Args:
            example_inputs, kwargs: the arguments of a call with the items of the batch that a copy of the model gets; may
                be on ``meta``.
            loss_fn, loss_reduction, weights, device: as for :func:`pipeline`.
            timeout: seconds after which a rank that waits for another one gives up.

        Raises:
            PipelineError: a rank failed.
            PlanMismatchError: the ranks have different plans.
        """
        mesh = self.device_mesh(torch.device(device or "cpu").type)
        agree(dist.group.WORLD, self.digests(), None)
        for name in DIMENSIONS:
            _set_timeout(mesh[name].get_group(), timeout)
        pipe = pipeline(
            self.pipeline,
            example_inputs,
            kwargs,
            schedule=self.costs.schedule,
            microbatches=self.costs.microbatches,
            loss_fn=loss_fn,
            loss_reduction=loss_reduction,
            weights=weights,
            device=device,
            group=mesh["pipeline"],
            replicas=mesh["data"] if self.mesh.data > 1 else None,
            tensor_group=mesh["tensor"] if self.mesh.tensor > 1 else None,
            sequence_parallel=self.sequence_parallel and self.mesh.tensor > 1,
        )
        return MeshRank(mesh, pipe, loss_reduction)


def _set_timeout(group: Any, seconds: float) -> None:
    """Let operations of a group give up after so many seconds."""
    # Its public name is newer than 2.6.
    if hasattr(dist, "set_timeout"):
        dist.set_timeout(datetime.timedelta(seconds=seconds), group)
    else:
        dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=seconds), group)


class MeshRank:
    """A rank's part of a model on a mesh. Norms of gradients are to be taken with :meth:`clip_grad_norm_`.

    Attributes:
        mesh: the device mesh.
        pipeline: the stages of the rank, or its parts of them.
    """

    def __init__(self, mesh: DeviceMesh, pipe: Pipeline, loss_reduction: str) -> None:
        self.mesh, self.pipeline = mesh, pipe
        self._count = mesh["data"].size() if loss_reduction == "sum" else 1

    @property
    def copy(self) -> int:
        """The number of this rank's copy of the model, which says which part of the batch it gets."""
        return self.mesh.get_local_rank("data")

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters of this rank."""
        return self.pipeline.parameters()

    def whole(self, name: str, part: torch.Tensor) -> torch.Tensor:
        """The whole of a tensor of which each rank of the dimension ``tensor`` has its part as of the weight ``name``: a
        weight, its gradient, or the state of an optimizer. All of these ranks call it."""
        shard = self.pipeline.shards().get(name)
        return collectives.whole_of(part, shard, self.mesh["tensor"].get_group())

    def full_state_dict(self) -> dict[str, torch.Tensor]:
        """The whole weights of this rank's stages, under all their names in the state dict of the model. All ranks of the
        dimension ``tensor`` call it."""
        shards, weights = self.pipeline.shards(), self.pipeline.plan.program.weights
        found = self.pipeline.state_dict()
        for name in sorted(shards):
            whole = self.whole(name, found[name])
            found.update(dict.fromkeys((name, *weights[name].aliases), whole))
        return found

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Scale the gradients so that their norm, over all weights of the model, is at most ``max_norm``. All ranks call it.

        Returns:
            The norm before.
        """
        shared = self.pipeline.plan.shared()
        # A weight that several stages have counts in the first one.
        own = (
            (name, parameter)
            for module in self.pipeline.modules
            for name, parameter in module.named_parameters()
            if shared.get(name, [module.index])[0] == module.index
        )
        parts, whole = squares_of(own, self.pipeline.shards())
        with self.pipeline._watched():
            dist.all_reduce(parts, group=self.mesh["tensor"].get_group())
            total = parts + whole
            dist.all_reduce(total, group=self.mesh["pipeline"].get_group())
        norm = total.sqrt()
        torch.nn.utils.clip_grads_with_norm_(self.parameters(), max_norm, norm)
        return norm

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model on this copy's part of the batch, compute gradients, and take their mean over all copies, or the
        sum if the loss is one: copies get parts of equal size. The arguments are those of :meth:`Pipeline.step`.

        Raises:
            PipelineError: a rank failed.
        """
        if self._count == 1:
            return self.pipeline.step(*args, **kwargs)
        trained = [own for own in self.parameters() if own.requires_grad]
        before = [own.grad for own in trained]
        for own in trained:
            own.grad = None
        result = self.pipeline.step(*args, **kwargs)
        for own, earlier in zip(trained, before, strict=True):
            if own.grad is not None:
                own.grad.mul_(self._count)
            if earlier is not None:
                own.grad = earlier if own.grad is None else earlier + own.grad
        return result


__all__ = ["MeshPlan", "MeshRank"]
