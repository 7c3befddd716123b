"""Tensor parallelism: a rank's part of a model as a module."""

from __future__ import annotations

import datetime
import os
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from corsac._files.safetensors import read_safetensors
from corsac.distributed import collectives
from corsac.distributed._agreement import agree
from corsac.distributed._errors import ParallelError
from corsac.distributed._parallel_graph import parallel_graph
from corsac.distributed._parallel_plan import ParallelPlan, plan_parallel
from corsac.distributed._program import Program, Weight
from corsac.distributed._values import described, input_types
from corsac.fx import Graph, GraphModule
from corsac.fx._generated_source import is_generated
from corsac.fx._module_attributes import _assign_attr
from corsac.fx._wrapped_call import _node_of_line


class Parallel(torch.nn.Module):
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
        super().__init__()
        holder = torch.nn.Module()
        for name, value in weights.items():
            _assign_attr(value, holder, name)
        module = GraphModule(holder, graph)
        state = self.__dict__
        state["graph_module"], state["plan"], state["group"] = module, plan, group
        state["rank"] = dist.get_rank(group)
        state["_draws"] = any(node.target is collectives.begin_random for node in graph.nodes)
        # The same dictionaries, so that names have no prefix.
        for name in ("_parameters", "_buffers", "_modules"):
            state[name] = getattr(module, name)

    @property
    def graph(self) -> Graph:
        """The graph that each rank runs."""
        return self.graph_module.graph

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the model.

        Raises:
            ParallelError: the graph is not that of the model for arguments of these sizes, or a call failed.
            TypeError: the arguments are not those of the call that was captured.
        """
        program = self.plan.program
        inputs = program.arguments.tensors(args, kwargs)
        self.plan.check(input_types(inputs))
        if self._draws:
            self._seed()
        try:
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.plan.training):
                found = self.graph_module.forward(*inputs)
        except Exception as error:
            lines = str(error).strip().splitlines()
            raise ParallelError(
                f"rank {self.rank}{self._place(error)}: {type(error).__name__}: "
                f"{lines[0] if lines else ''}"
            ) from error
        return found if program.build is None else program.build(found)

    def _seed(self) -> None:
        """Give all ranks a seed that the generator of the first one has drawn."""
        seed = torch.randint(2**62, ())
        dist.broadcast(seed, group=self.group, group_src=0)
        collectives.shared_seed(self.group.group_name, int(seed))

    def _place(self, error: Exception) -> str:
        """The node at which a call failed, as text."""
        for frame, line in traceback.walk_tb(error.__traceback__):
            if is_generated(frame.f_code.co_filename):
                node = _node_of_line(self.graph_module, line)
                if node is not None:
                    return f", {described(node)}"
        return ""

    def whole(self, name: str, part: torch.Tensor) -> torch.Tensor:
        """The whole of a tensor of which each rank has its part as of the weight ``name``: a weight, its gradient, or
        the state of an optimizer. All ranks call it."""
        shard = self.plan.shards.get(name)
        if shard is None:
            return part.detach().clone()
        return collectives._whole(part.detach(), shard[0], shard[1], self.group.group_name)

    def full_state_dict(self) -> dict[str, torch.Tensor]:
        """The whole weights that the graph reads, under all their names in the state dict of the model, on all ranks."""
        found: dict[str, torch.Tensor] = {}
        for name, own in self._weights():
            weight = self.plan.program.weights[name]
            if weight.kind == "constant":
                continue
            whole = self.whole(name, own)
            for alias in (name, *weight.aliases):
                found[alias] = whole
        return found

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
                    raise ParallelError(f"rank {self.rank}: the state dict lacks {name}")
                continue
            if tuple(value.shape) != weight.shape:
                raise ParallelError(
                    f"rank {self.rank}: expected {name} of shape {list(weight.shape)}, got "
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
        sharded = torch.zeros(())
        replicated = torch.zeros(())
        for name, own in self.named_parameters():
            if own.grad is not None:
                square = own.grad.detach().float().square().sum()
                if name in self.plan.shards:
                    sharded = sharded + square
                else:
                    replicated = replicated + square
        total = collectives._reduced(sharded, self.group.group_name) + replicated
        norm = total.sqrt()
        torch.nn.utils.clip_grads_with_norm_(self.parameters(), max_norm, norm)
        return norm


def parallelize(
    model: Any,
    example_inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    mesh: Any = None,
    *,
    tp: int | None = None,
    training: bool = True,
    replicate: Collection[str] = (),
    shard: Mapping[str, int] | None = None,
    uneven: str = "error",
    loss_fn: Callable[..., torch.Tensor] | None = None,
    weights: str | os.PathLike[str] | None = None,
    dynamic_shapes: Mapping[str | int, Collection[int]] | None = None,
    timeout: float = 300.0,
) -> Parallel:
    """Cut the weights and computations of a model among the ranks of a group. All ranks call it.

    Args:
        model: a module, which may be on ``meta``, or a :class:`ParallelPlan`. The graph has the training modes that
            its modules have now.
        example_inputs: the positional arguments of a call: a tensor, or a tuple of tensors and plain values.
        kwargs: its keyword arguments.
        mesh: a :class:`~torch.distributed.device_mesh.DeviceMesh` of one dimension, or a process group; by default a
            group of all ranks.
        tp: the number of ranks, which has to be that of ``mesh``.
        training, replicate, shard, uneven, dynamic_shapes: as for :func:`plan_parallel`.
        loss_fn: takes the result of the model and a target, which is then the last positional argument of a call and of
            ``example_inputs``. In the graph, a cross entropy needs no whole logits.
        weights: a safetensors file, or a folder of them, of which each rank reads its parts only. By default, the weights of the model.
        timeout: seconds after which a rank that waits for another one gives up, if ``mesh`` is None.

    Raises:
        ParallelError: the model cannot be captured or cut, or a rank failed.
        PlanMismatchError: the ranks have different plans.
    """
    if not dist.is_initialized():
        raise ParallelError("there is no process group: call torch.distributed.init_process_group")
    if mesh is None:
        group = dist.new_group(timeout=datetime.timedelta(seconds=timeout))
    else:
        group = mesh if isinstance(mesh, dist.ProcessGroup) else mesh.get_group()
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
            plan = plan_parallel(
                model,
                example_inputs,
                kwargs,
                tp=size,
                training=training,
                replicate=replicate,
                shard=shard,
                uneven=uneven,
                dynamic_shapes=dynamic_shapes,
            )
        if plan.ranks != size:
            raise ParallelError(f"the plan is for {plan.ranks} ranks, the group has {size}")
        graph = parallel_graph(plan, group.group_name)
        parts = own_weights(plan, rank, weights)
    except Exception as caught:
        error = caught
    agree(group, rank, None if plan is None else plan.digests(), error, ParallelError)
    assert plan is not None
    return Parallel(plan, graph, parts, group)


class WithLoss(torch.nn.Module):
    """A model with a loss: its last positional argument is the target."""

    def __init__(self, model: torch.nn.Module, loss_fn: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.__dict__["loss_fn"] = loss_fn
        self.__dict__["model"] = model
        # Names have no prefix.
        for name in ("_parameters", "_buffers", "_modules"):
            self.__dict__[name] = getattr(model, name)

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
    known = {} if path is None else _read(plan, rank, path)
    made: dict[str, torch.Tensor] = {}
    for name, weight in program.weights.items():
        if name in known:
            part = known[name]
        else:
            value = program.tensors[name]
            if value.is_meta:
                place = "no file of weights was given" if path is None else f"{path} lacks it"
                raise ParallelError(
                    f"rank {rank}, {_reader(program, name)}: the {weight.kind} {name} is on meta, and {place}"
                )
            part = _own(plan, name, value.detach(), rank).clone(
                memory_format=torch.contiguous_format
            )
        if weight.kind == "parameter":
            part = torch.nn.Parameter(part, weight.requires_grad)
        made[name] = part
    return made


def _own(plan: ParallelPlan, name: str, value: torch.Tensor, rank: int) -> torch.Tensor:
    if name not in plan.shards:
        return value
    dim, pieces = plan.shards[name]
    return collectives.own_part(value, dim, pieces, rank, plan.ranks)


def _read(plan: ParallelPlan, rank: int, path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """A rank's parts of the weights that are in a file, or in those of a folder, under one of their names."""
    program = plan.program
    found: dict[str, torch.Tensor] = {}
    #: The names of weights by those in a file.
    wanted: dict[str, list[str]] = {}

    def choose(held: Collection[str]) -> Collection[str]:
        wanted.clear()
        for name, weight in program.weights.items():
            own = next((other for other in (name, *weight.aliases) if other in held), None)
            if own is not None and name not in found:
                wanted.setdefault(own, []).append(name)
        return wanted.keys()

    def ranges(own: str, shape: Sequence[int]) -> tuple[int, list[tuple[int, int]]] | None:
        name = wanted[own][0]
        weight = program.weights[name]
        if tuple(shape) != weight.shape:
            raise ParallelError(
                f"rank {rank}, {_reader(program, name)}: expected {name} of shape "
                f"{list(weight.shape)}, got {list(shape)} in {path}"
            )
        if name not in plan.shards:
            return None
        dim, pieces = plan.shards[name]
        return dim, collectives.own_ranges(pieces, rank, plan.ranks)

    files = sorted(Path(path).glob("*.safetensors")) if os.path.isdir(path) else [path]
    for file in files:
        for own, value in read_safetensors(file, choose, ranges).items():
            for name in wanted[own]:
                found[name] = value.to(program.weights[name].dtype)
    for name, weight in program.weights.items():
        missing = name not in found and weight.kind == "parameter"
        if missing and not program.tensors[name].is_meta:
            raise ParallelError(
                f"rank {rank}, {_reader(program, name)}: {path} has no tensor {name}"
            )
    return found


def _reader(program: Program, name: str) -> str:
    """The first node that reads a weight, as text."""
    for node in program.graph.find_nodes(op="get_attr"):
        if node.target == name:
            return described(next(iter(node.users), node))
    return f"weight {name}"


__all__ = ["Parallel", "Weight", "WithLoss", "own_weights", "parallelize"]
