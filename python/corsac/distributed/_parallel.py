"""Tensor parallelism: a rank's part of a model as a module."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from corsac.distributed import collectives
from corsac.distributed._agreement import agree, digest_of_samples, digest_of_values
from corsac.distributed._errors import ParallelError
from corsac.distributed._parallel_graph import parallel_graph, uses_random_numbers
from corsac.distributed._parallel_plan import ParallelPlan, plan_parallel
from corsac.distributed._rank_module import RankModule, share_parts, squares_of
from corsac.distributed._values import input_types, summary
from corsac.distributed._weights import on_meta, other_shape, read_weights, reader_of
from corsac.fx import Graph


class Parallel(RankModule):
    """A rank's part of a model, which all ranks of a group call together with the same arguments.

    Parameters have the names of the model and are this rank's parts, so that optimizers and gradients are as usual;
    norms of gradients are to be taken with :meth:`clip_grad_norm_`. Results are whole, on all ranks.

    Attributes:
        plan: how the model is cut.
        group: the process group.
        rank: of this process in the group.
    """

    def __init__(
        self,
        plan: ParallelPlan,
        graph: Graph,
        weights: Mapping[str, torch.Tensor],
        group: Any,
    ) -> None:
        draws = uses_random_numbers(graph)
        state = {"plan": plan, "group": group, "rank": dist.get_rank(group), "_draws": draws}
        state["_has_compared"] = False
        super().__init__(graph, weights, state)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the model.

        Raises:
            ParallelError: the graph is not that of the model for arguments of these sizes, or a call failed.
            TypeError: the arguments are not those of the call that was captured.
        """
        program = self.plan.program
        inputs = program.arguments.tensors(args, kwargs)
        self.prepare(inputs)
        try:
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.plan.training):
                found = self.graph_module.forward(*inputs)
        except Exception as error:
            raise ParallelError(
                f"rank {dist.get_rank()}{self._place(error)}: {summary(error)}"
            ) from error
        return found if program.build is None else program.build(found)

    def prepare(self, inputs: Sequence[torch.Tensor]) -> None:
        """Prepare for a call of the graph with these inputs: check their types, at the first call also that all ranks have
        the same values, and give all ranks a seed.

        Raises:
            ParallelError: the graph is not that of the model for such inputs.
            PlanMismatchError: the ranks have different inputs.
        """
        self.plan.check(input_types(inputs))
        if not self._has_compared:
            values = {
                f"values of input {number}": digest_of_values([own])
                for number, own in enumerate(inputs)
            }
            agree(self.group, values, None, ParallelError)
            self.__dict__["_has_compared"] = True
        if self._draws:
            collectives.draw_seed(self.group)

    def whole(self, name: str, part: torch.Tensor) -> torch.Tensor:
        """The whole of a tensor of which each rank has its part as of the weight ``name``: a weight, its gradient, or
        the state of an optimizer. All ranks call it."""
        return collectives.whole_of(part, self.plan.shards.get(name), self.group)

    def full_state_dict(self) -> dict[str, torch.Tensor]:
        """The whole weights that the graph reads, under all their names in the state dict of the model, on all ranks."""
        return self.plan.program.under_all_names(
            (name, self.whole(name, own)) for name, own in self._weights()
        )

    def load_full_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take this rank's part of the weights of a state dict of the model.

        Raises:
            ParallelError: a parameter is missing, or has another shape.
        """
        found: list[tuple[torch.Tensor, torch.Tensor]] = []
        for name, own in self._weights():
            weight = self.plan.program.weights[name]
            value = next((state[key] for key in (name, *weight.aliases) if key in state), None)
            if value is None:
                if weight.kind == "parameter":
                    raise ParallelError(f"rank {dist.get_rank()}: the state dict lacks {name}")
                continue
            if tuple(value.shape) != weight.shape:
                raise ParallelError(
                    f"rank {dist.get_rank()}: expected {name} of shape {list(weight.shape)}, got "
                    f"{list(value.shape)}"
                )
            found.append((own, _own(self.plan, name, value, self.rank)))
        with torch.no_grad():
            for own, part in found:
                own.copy_(part)

    def _weights(self) -> Iterable[tuple[str, torch.Tensor]]:
        return [*self.named_parameters(), *self.named_buffers()]

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Scale the gradients so that their norm, over the parts of all ranks, is at most ``max_norm``.

        Returns:
            The norm before.
        """
        sharded, replicated = squares_of(self.named_parameters(), self.plan.shards)
        norm = (collectives._reduced(sharded, self.group.group_name) + replicated).sqrt()
        torch.nn.utils.clip_grads_with_norm_(self.parameters(), max_norm, norm)
        return norm


def parallel_of(
    model: Any,
    example_inputs: Any,
    kwargs: Mapping[str, Any] | None,
    group: Any,
    tp: int | None,
    loss_fn: Callable[..., torch.Tensor] | None,
    weights: str | os.PathLike[str] | None,
    options: Mapping[str, Any],
) -> Parallel:
    """This rank's part of a model, as :func:`corsac.distributed.parallelize` makes it; ``options`` are those of
    :func:`plan_parallel`.

    Raises:
        ParallelError: the model cannot be captured or cut, or a rank failed.
        PlanMismatchError: the ranks have different plans.
    """
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    plan: ParallelPlan | None = None
    parts: dict[str, torch.Tensor] = {}
    error: Exception | None = None
    try:
        if tp is not None and tp != size:
            raise ValueError(f"tp: expected {size}, the number of ranks of the group, got {tp}")
        if isinstance(model, ParallelPlan):
            plan = model
        else:
            if loss_fn is not None:
                model = WithLoss(model, loss_fn)
            plan = plan_parallel(model, example_inputs, kwargs, tp=size, **options)
        if plan.ranks != size:
            raise ParallelError(f"the plan is for {plan.ranks} ranks, the group has {size}")
        graph = parallel_graph(plan, group.group_name)
        parts = own_weights(plan, rank, weights)
    except Exception as caught:
        error = caught
    digests: dict[str, str] | None = None
    if plan is not None:
        whole = (parts[name] for name in sorted(parts) if name not in plan.shards)
        digests = plan.digests() | {"values of whole weights": digest_of_values(whole)}
        if weights is None:
            digests["values of weights"] = digest_of_samples(plan.program.tensors)
    agree(group, digests, error, ParallelError)
    assert plan is not None
    made = Parallel(plan, graph, parts, group)
    made.training = getattr(model, "training", True)
    return made


class WithLoss(torch.nn.Module):
    """A model with a loss: its last positional argument is the target."""

    def __init__(self, model: torch.nn.Module, loss_fn: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.__dict__["loss_fn"] = loss_fn
        self.__dict__["model"] = model
        share_parts(self, model)

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        *inputs, target = args
        return self.loss_fn(self.model(*inputs, **kwargs), target)


def own_weights(
    plan: ParallelPlan, rank: int, path: str | os.PathLike[str] | None
) -> dict[str, torch.Tensor]:
    """A rank's parts of the weights.

    Raises:
        ParallelError: a weight is on ``meta``, and not in the file.
    """
    program = plan.program

    def refuse(name: str, reason: str) -> ParallelError:
        return ParallelError(f"rank {rank}, {reader_of(program.graph, name)}: {reason}")

    def ranges(name: str, shape: Sequence[int]) -> tuple[int, list[tuple[int, int]]] | None:
        if tuple(shape) != program.weights[name].shape:
            raise refuse(name, other_shape(program, name, shape, path))
        if name not in plan.shards:
            return None
        dim, pieces = plan.shards[name]
        return dim, collectives.own_ranges(pieces, rank, plan.ranks)

    known = {} if path is None else read_weights(program, program.weights, path, refuse, ranges)
    made: dict[str, torch.Tensor] = {}
    for name, weight in program.weights.items():
        if name in known:
            part = known[name].to(weight.dtype)
        else:
            value = program.tensors[name]
            if value.is_meta:
                raise refuse(name, on_meta(program, name, path))
            part = _own(plan, name, value.detach(), rank)
            part = part.clone(memory_format=torch.contiguous_format)
        if weight.kind == "parameter":
            part = torch.nn.Parameter(part, weight.requires_grad)
        made[name] = part
    return made


def _own(plan: ParallelPlan, name: str, value: torch.Tensor, rank: int) -> torch.Tensor:
    if name not in plan.shards:
        return value
    dim, pieces = plan.shards[name]
    return collectives.own_part(value, dim, pieces, rank, plan.ranks)


__all__ = ["Parallel", "WithLoss", "own_weights", "parallel_of"]
