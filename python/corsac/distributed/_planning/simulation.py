"""A training step of all ranks of a mesh in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from corsac.distributed._planning.mesh_plan import MeshPlan
from corsac.distributed._planning.threads import run_as_threads
from corsac.distributed._program import positional


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """What a step has computed.

    Attributes:
        losses: the loss of each microbatch, of all copies of the model in turn.
        gradients: the whole gradients, by the names of the parameters.
    """

    losses: list[torch.Tensor]
    gradients: dict[str, torch.Tensor]


def simulate_step(
    plan: MeshPlan,
    inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    target: Any,
    loss_fn: Callable[[Any, Any], torch.Tensor],
    loss_reduction: str = "mean",
    timeout: float = 120.0,
) -> SimulatedStep:
    """Run a training step of a plan with all its ranks as threads of this process, with the weights of the model that it
    was made for. Threads have one generator of random numbers: dropout is another than in processes.

    Args:
        plan: the plan.
        inputs, kwargs: the arguments of a call with the whole batch; tensors whose first dimension is its size are split
            among the copies of the model.
        target: of the whole batch.
        loss_fn, loss_reduction: as for :func:`pipeline`.
        timeout: seconds after which a rank that waits for another one gives up.

    Raises:
        DistributedError: a rank failed, or this process has a process group.
    """
    content = plan.content()
    weights = plan.pipeline.program.tensors
    mesh = plan.mesh

    def job(rank: int) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
        # Threads share no weights.
        own = MeshPlan.of_content(content, "the plan")
        own.pipeline.program.tensors.update({n: v.detach().clone() for n, v in weights.items()})
        own.pipeline.program.build = plan.pipeline.program.build
        copy = rank // mesh.tensor % mesh.data

        def part(value: Any) -> Any:
            def cut(tensor: torch.Tensor) -> torch.Tensor:
                is_batched = tensor.dim() and tensor.size(0) == plan.batch
                return tensor.chunk(mesh.data)[copy] if is_batched else tensor

            return tree_map_only(torch.Tensor, cut, value)

        args, named = part(positional(inputs)), part(dict(kwargs or {}))
        ready = own.start(
            args, named, loss_fn=loss_fn, loss_reduction=loss_reduction, timeout=timeout
        )
        losses: list[torch.Tensor] = []
        ready.step(*args, target=part(target), losses=losses, **named)
        gradients = {
            name: ready.whole(name, parameter.grad)
            for name, parameter in ready.pipeline.named_parameters()
            if parameter.grad is not None
        }
        return losses, gradients

    found = run_as_threads(mesh.ranks, job, timeout)
    losses: list[torch.Tensor] = []
    gradients: dict[str, torch.Tensor] = {}
    for data in range(mesh.data):
        losses += next(
            own for at in range(mesh.pipeline) if (own := found[mesh.rank(at, 0, data)][0])
        )
    for at in range(mesh.pipeline):
        gradients |= found[mesh.rank(at, 0, 0)][1]
    return SimulatedStep(losses, gradients)


__all__ = ["SimulatedStep", "simulate_step"]
