"""Tensor parallelism: a rank's part of a model as a module."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves

from corsac._capture.result_template import flat_results
from corsac.distributed import collectives
from corsac.distributed._agreement import agree, digest_of_samples, digest_of_values
from corsac.distributed._announcements import Announcements
from corsac.distributed._errors import ParallelError
from corsac.distributed._failures import Watch, failure_keys
from corsac.distributed._parallel_graph import parallel_graph, uses_random_numbers
from corsac.distributed._parallel_plan import ParallelPlan, plan_parallel
from corsac.distributed._rank_module import RankModule, share_parts, squares_of
from corsac.distributed._values import described, input_types, shown_types
from corsac.distributed._weights import on_meta, other_shape, read_weights, reader_of
from corsac.fx import Graph, Node


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
        keys: Mapping[Any, str],
    ) -> None:
        own = dist.get_rank()
        others = [rank for rank in dist.get_process_group_ranks(group) if rank != own]
        watched = Watch(
            ParallelError,
            f"rank {own}",
            f"one of the ranks {others} has ended, or does not run this",
            keys,
        )
        state = {
            "plan": plan,
            "group": group,
            "rank": dist.get_rank(group),
            "announced": Announcements([group], watched, ParallelError),
            "_watched": watched,
            "_draws": uses_random_numbers(graph),
            "_calls": 0,
            "_first": next(
                (f" from {described(own)}" for own in plan.program.graph.nodes if own.source), ""
            ),
        }
        super().__init__(graph, weights, state)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the model.

        Raises:
            ParallelError: the graph is not that of the model for arguments of these sizes, the ranks have different ones, or
                a call failed.
            TypeError: the arguments are not those of the call that was captured.
        """
        inputs = self.prepare(args, kwargs)
        has_gradients = torch.is_grad_enabled() and self.plan.training
        with self._watched(self._place), torch.set_grad_enabled(has_gradients):
            found = self.graph_module.forward(*inputs)
        self.follow(flat_results(self.graph.output_node())[0], tree_leaves(found))
        build = self.plan.program.build
        return found if build is None else build(found)

    def prepare(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """The inputs of the graph in a call with these arguments, for which it is prepared: it is checked that all ranks make
        the same call, at the first one also that they have the same values, and all ranks get a seed.

        Raises:
            ParallelError: the graph is not that of the model for such inputs, or the ranks make different calls.
            PlanMismatchError: the ranks have different values.
            TypeError: the arguments are not those of the call that was captured.
        """
        inputs: tuple[torch.Tensor, ...] = ()
        error: Exception | None = None
        try:
            inputs = self.plan.program.arguments.tensors(args, kwargs)
            self.plan.check(input_types(inputs))
        except Exception as caught:
            error = caught
        self.__dict__["_calls"] += 1
        types = shown_types(input_types(inputs))
        modes = "with" if torch.is_grad_enabled() else "without"
        self.announced.compare(
            f"call {self._calls} of {types} {modes} gradients{self._first}", error
        )
        if self._calls == 1:
            values = {
                f"values of input {number}": digest_of_values([own])
                for number, own in enumerate(inputs)
            }
            agree(self.group, values, None, ParallelError)
        if self._draws:
            with self._watched():
                collectives.draw_seed(self.group)
        return inputs

    def follow(self, nodes: Sequence[Any], results: Sequence[Any]) -> None:
        """Compare the backward passes through the results of a call with those of the other ranks; ``nodes`` are of the
        results."""
        own = [
            (node, result)
            for node, result in zip(nodes, results, strict=True)
            if isinstance(node, Node) and node.op != "placeholder"
        ]
        self.announced.follow([node for node, _ in own], [r for _, r in own], f"call {self._calls}")

    def whole(self, name: str, part: torch.Tensor) -> torch.Tensor:
        """The whole of a tensor of which each rank has its part as of the weight ``name``: a weight, its gradient, or
        the state of an optimizer. All ranks call it."""
        self.announced.compare(f"gathering {name}")
        return self._whole(name, part)

    def _whole(self, name: str, part: torch.Tensor) -> torch.Tensor:
        with self._watched():
            return collectives.whole_of(part, self.plan.shards.get(name), self.group)

    def full_state_dict(self) -> dict[str, torch.Tensor]:
        """The whole weights that the graph reads, under all their names in the state dict of the model, on all ranks."""
        self.announced.compare("gathering all weights")
        return self.plan.program.under_all_names(
            (name, self._whole(name, own)) for name, own in self._weights()
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
        self.announced.compare("the norm of gradients")
        sharded, replicated = squares_of(self.named_parameters(), self.plan.shards)
        with self._watched():
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
    keys = failure_keys([group])
    plan: ParallelPlan | None = None
    parts: dict[str, torch.Tensor] = {}
    digests: dict[str, str] | None = None
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
        whole = (parts[name] for name in sorted(parts) if name not in plan.shards)
        digests = plan.digests() | {"values of whole weights": digest_of_values(whole)}
        if weights is None:
            digests["values of weights"] = digest_of_samples(plan.program.tensors)
            digests |= _digests_of_parts(plan, parts, rank)
    except Exception as caught:
        error = caught
    agree(group, digests, error, ParallelError, None if plan is None else plan.program.graph)
    assert plan is not None
    made = Parallel(plan, graph, parts, group, keys)
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


def _digests_of_parts(
    plan: ParallelPlan, parts: Mapping[str, torch.Tensor], rank: int
) -> dict[str, str]:
    """A hash of some values of each part of the weights that are not on ``meta``: of this rank's as it is, of the others as
    they should be."""
    found: dict[str, str] = {}
    for name in plan.shards:
        whole = plan.program.tensors[name].detach()
        reader = reader_of(plan.program.graph, name)
        for other in () if whole.is_meta else range(plan.ranks):
            own = parts[name] if other == rank else _own(plan, name, whole, other)
            found[f"part {other} of {name}, {reader}"] = digest_of_samples({name: own})
    return found


def _own(plan: ParallelPlan, name: str, value: torch.Tensor, rank: int) -> torch.Tensor:
    if name not in plan.shards:
        return value
    dim, pieces = plan.shards[name]
    return collectives.own_part(value, dim, pieces, rank, plan.ranks)


__all__ = ["Parallel", "WithLoss", "own_weights", "parallel_of"]
