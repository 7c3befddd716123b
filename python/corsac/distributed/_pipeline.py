"""Pipelines: the stages of a rank, and a schedule of PyTorch that runs them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining.microbatch import TensorChunkSpec, _CustomReducer
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.utils._pytree import tree_map_only

from corsac import _core
from corsac.distributed import collectives
from corsac.distributed._agreement import agree_all, group_of
from corsac.distributed._announcements import Announcements, compare_in_turn
from corsac.distributed._buckets import BYTES
from corsac.distributed._errors import PipelineError
from corsac.distributed._failures import Watch, failure_keys
from corsac.distributed._parallel_graph import uses_random_numbers
from corsac.distributed._plan import PipelinePlan, plan_pipeline
from corsac.distributed._planning.schedules import (
    ranks_of_stages,
    schedule_name,
    takes_several_stages,
)
from corsac.distributed._program import positional
from corsac.distributed._replicas import Replicas
from corsac.distributed._stage import SizedStage, StageModule, may_split
from corsac.distributed._stage_weights import stage_weights
from corsac.distributed._tensor_stages import TensorStages
from corsac.distributed._values import InputType, shown_types
from corsac.distributed._weights import start_equal
from corsac.fx._module_attributes import _get_attr

#: Operators that may compute the statistics of a batch.
_BATCH_NORMS = frozenset(map(_core.operator_named, ("batch_norm", "native_batch_norm")))


class Pipeline:
    """The stages of this rank, and a schedule that runs them.

    Attributes:
        plan: the graphs of all stages.
        modules: the modules of the stages of this rank, whose weights have the names that they have in the model.
        stages: their places in the schedule.
        schedule: a schedule of :mod:`torch.distributed.pipelining`. :meth:`step` calls it, and sums the gradients of
            weights that several stages have.
        group: the process group.
        replicas: the ranks that have the same stages for other batches, None if there are none.
    """

    def __init__(
        self,
        plan: PipelinePlan,
        modules: Mapping[int, StageModule],
        schedule: str,
        microbatches: int,
        loss_fn: Callable[[Any, Any], torch.Tensor] | None,
        loss_reduction: str,
        device: torch.device,
        group: Any,
        rank_of: Mapping[int, int],
        keys: Mapping[Any, str],
        replicas: Any,
        bucket_bytes: int,
        tensor: TensorStages | None,
        tensor_group: Any,
    ) -> None:
        self.plan, self.group = plan, group
        self.modules = list(modules.values())
        self._numbered, self._name = dict(modules), schedule
        self._microbatches, self._device = microbatches, device
        self._loss_fn, self._reduction = loss_fn, loss_reduction
        self._rank_of = rank_of
        self.rank = dist.get_rank(group)
        self._batch = 0
        self._types: list[list[InputType]] = []
        self._tensor, self._tensor_group = tensor, tensor_group
        self._draws = any(uses_random_numbers(own.graph) for own in self.modules)
        self.replicas: Replicas | None = None
        if replicas is not None:
            weights = plan.program.weights
            apart = [name for name in plan.shared() if weights[name].requires_grad]
            self.replicas = Replicas(replicas, modules, weights, apart, microbatches, bucket_bytes)
        near = {rank_of.get(other) for number in modules for other in (number - 1, number + 1)}
        others = {dist.get_global_rank(group, own) for own in near - {None, self.rank}}
        for other in keys:
            if other is not group:
                others.update(dist.get_process_group_ranks(other))
        self._watched = Watch(
            PipelineError,
            f"rank {dist.get_rank()}, stages {list(modules)}",
            f"one of its neighbours, ranks {sorted(others - {dist.get_rank()})}, has ended or does not answer",
            keys,
        )
        self._steps = 0
        self._announced, self._of_replicas = (
            Announcements(
                [own for own in keys if (own is replicas) == is_of_replicas],
                self._watched,
                PipelineError,
            )
            for is_of_replicas in (False, True)
        )
        self.stages: list[SizedStage] = []
        self.schedule: Any = None

    # Sizes ---------------------------------------------------------------------------------

    def resize(self, *args: Any, **kwargs: Any) -> None:
        """Prepare for batches of other sizes. All ranks must call it, with tensors of the same sizes, which may be on
        ``meta``. Microbatches differ by one in size if the batch is no multiple of their number.

        Raises:
            PipelineError: the graph is not that of the model for these sizes.
        """
        tensors = self.plan.program.arguments.tensors(args, kwargs)
        split = self._split(tensors)
        self._types = [[(tuple(own.shape), own.dtype) for own in one] for one in split]
        self._batch = tensors[0].size(0)
        values = [self.plan.values(own) for own in self._types]
        last = self.plan.stages[-1]
        count = len(self.plan.stages)
        self.stages = []
        for number, module in self._numbered.items():
            if self._tensor is not None:
                for own in self._types:
                    self._tensor.check(number, own)
            stage = self.plan.stages[number]
            inputs = [_contiguous(own, stage.inputs) for own in values]
            outputs = [_contiguous(own, stage.outputs) for own in values]
            splits = (
                number == 0
                or "ZeroBubble" not in self._name
                or may_split(stage, inputs[0], self.plan.program.weights)
            )
            self.stages.append(
                SizedStage(
                    module,
                    number,
                    count,
                    self._device,
                    self.group,
                    inputs,
                    outputs,
                    splits=splits,
                )
            )
        self._merge = tuple(self._merge_spec(name) for name in last.outputs)
        self.schedule = self._scheduled()

    def _scheduled(self) -> Any:
        cls = get_schedule_class(self._name)
        is_multi = takes_several_stages(self._name)
        loss = None if self._loss_fn is None else self._loss
        return cls(
            self.stages if is_multi else self.stages[0],
            n_microbatches=self._microbatches,
            loss_fn=loss,
            output_merge_spec=self._merge,
            # Losses have the share of their microbatch.
            scale_grads=False,
        )

    def _split(self, tensors: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, ...]]:
        """The inputs of each microbatch."""
        if not tensors or tensors[0].dim() == 0:
            raise PipelineError("the first input has no batch dimension")
        batch = tensors[0].size(0)
        if batch < self._microbatches:
            raise PipelineError(
                f"expected a batch of at least {self._microbatches} for as many microbatches, got {batch}"
            )
        parts = [_parts(own, batch, self._microbatches) for own in tensors]
        return list(zip(*parts, strict=True))

    def _merge_spec(self, name: str) -> Any:
        """How the results of microbatches become one: concatenated along the dimension that depends on the batch, or
        stacked if there is none."""
        found = [self.plan.values(own)[name].shape for own in self.plan.inputs[:2]]
        differ = [dim for dim, (a, b) in enumerate(zip(found[0], found[-1], strict=True)) if a != b]
        if differ:
            return TensorChunkSpec(differ[0])
        size = self.plan.inputs[0][0][0][0]
        if len(self.plan.inputs) == 1 and found[0] and found[0][0] == size:
            return TensorChunkSpec(0)
        return _CustomReducer(
            None, lambda all, own: own[None] if all is None else torch.cat([all, own[None]])
        )

    # Steps ---------------------------------------------------------------------------------

    def step(
        self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any
    ) -> Any:
        """Run the model on a batch, and if the pipeline has a loss, compute gradients.

        Args:
            args, kwargs: the arguments of the model; they are used on the rank of the first stage, others may leave
                them out.
            target: the second argument of the loss, a tensor or a container of tensors for the whole batch; used on
                the rank of the last stage.
            losses: is filled with the loss of each microbatch, on the rank of the last stage.

        Returns:
            The result of the model on the rank of the last stage, None on others.

        Raises:
            PipelineError: a stage failed, on this rank or another.
        """
        self._begin("step")
        with self._watched():
            if self._loss_fn is None:
                return self._run(self.schedule.step, args, kwargs, target, losses)
            self._check_gradients()
            before = self._put_aside()
            if self.replicas is not None:
                self.replicas.begin()
            result = self._run(self.schedule.step, args, kwargs, target, losses)
            if self.replicas is not None:
                self.replicas.finish()
            self._sum_shared(before)
        return result

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model on a batch without gradients; see :meth:`step`."""
        self._begin("call")
        with self._watched(), torch.no_grad():
            has_loss = self.schedule._loss_fn
            # Without targets there is no loss.
            self.schedule._loss_fn = None
            try:
                return self._run(self.schedule.eval, args, kwargs, None, None)
            finally:
                self.schedule._loss_fn = has_loss

    def _begin(self, what: str) -> None:
        """Check that all ranks begin the same step; replicas may have batches of other sizes.

        Raises:
            PipelineError: they do not.
        """
        self._steps += 1
        step = f"{what} {self._steps}"
        batch = f"{step} of {self._batch} items, first {shown_types(self._types[0])}"
        compare_in_turn([(self._announced, batch), (self._of_replicas, step)])

    def _run(
        self,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        target: Any,
        losses: list[Any] | None,
    ) -> Any:
        if self._draws:
            collectives.draw_seed(self._tensor_group)
        given: dict[str, Any] = {"arg_mbs": [()] * self._microbatches}
        if 0 in self._numbered:
            tensors = self.plan.program.arguments.tensors(args, kwargs)
            split = self._split(tensors)
            types = [[(tuple(own.shape), own.dtype) for own in one] for one in split]
            if types != self._types:
                wanted = [list(shape) for shape, _ in self._types[0]]
                got = [list(shape) for shape, _ in types[0]]
                raise PipelineError(
                    f"expected microbatches of sizes {wanted}, got {got}: call resize on all ranks"
                )
            given["arg_mbs"] = [tuple(own.to(self._device) for own in one) for one in split]
        is_last = len(self.plan.stages) - 1 in self._numbered
        if is_last:
            given["target_mbs"] = self._targets(target)
        found: list[torch.Tensor] = []
        if losses is not None:
            given["losses"] = found
        merged = run(**given)
        if losses is not None:
            losses[:] = [
                own.detach() / share for own, share in zip(found, self._shares(), strict=False)
            ]
        return self.plan.program.result(merged) if is_last else None

    def _shares(self) -> list[float]:
        """The part of the batch that each microbatch is, for losses that are means."""
        if self._reduction == "sum":
            return [1.0] * self._microbatches
        return [own[0][0][0] / self._batch for own in self._types]

    def _targets(self, target: Any) -> list[tuple[float, Any]]:
        """The target of each microbatch, with its share."""
        parts: list[Any] = []
        for number in range(self._microbatches):
            parts.append(
                tree_map_only(
                    torch.Tensor,
                    lambda own, at=number: _parts(own, self._batch, self._microbatches)[at].to(
                        self._device
                    ),
                    target,
                )
            )
        return list(zip(self._shares(), parts, strict=True))

    def _loss(self, output: Any, target: tuple[float, Any]) -> torch.Tensor:
        assert self._loss_fn is not None
        share, own = target
        values = output if isinstance(output, tuple) else (output,)
        try:
            return self._loss_fn(self.plan.program.result(values), own) * share
        except Exception as error:
            raise PipelineError(
                f"rank {dist.get_rank()}, loss_fn: {type(error).__name__}: {error}"
            ) from error

    # Weights -------------------------------------------------------------------------------

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """The parameters of the stages of this rank, by their names in the model."""
        for own in self.modules:
            yield from own.named_parameters()

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """The parameters of the stages of this rank."""
        for _, own in self.named_parameters():
            yield own

    def shards(self) -> dict[str, tuple[int, list[int]]]:
        """The dimension of each weight that is cut among the ranks of ``tensor_group``, and the sizes of the pieces that
        are cut."""
        found: dict[str, tuple[int, list[int]]] = {}
        for number in self._numbered if self._tensor is not None else ():
            found |= self._tensor.stages[number].shards
        return found

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The weights of the stages of this rank, under all their names in the model; of weights that are cut among
        ranks its parts."""
        return self.plan.program.under_all_names(
            own for module in self.modules for own in module.state_dict().items()
        )

    def _copies(self, name: str) -> dict[int, torch.Tensor]:
        """The copies of a weight on this rank, by stage."""
        return {
            number: _get_attr(module, name)
            for number, module in self._numbered.items()
            if name in self.plan.stages[number].weights
        }

    def _check_gradients(self) -> None:
        """Check that the parameters that are trained are those of the plan.

        Raises:
            PipelineError: one is not, and the gradients of others, or of its copies, depend on it.
        """
        weights, shared = self.plan.program.weights, self.plan.shared()
        for module in self.modules:
            for name, own in module.named_parameters():
                planned = weights[name].requires_grad
                if own.requires_grad != planned and (own.requires_grad or name in shared):
                    raise PipelineError(
                        f"stage {module.index}: requires_grad of {name} was {planned} when the pipeline was made: make a "
                        "new one"
                    )

    def _tied(self) -> list[tuple[dict[int, torch.Tensor], list[int]]]:
        """The copies of the weights with gradients that several stages have, some on this rank, and these stages."""
        weights = self.plan.program.weights
        found = [
            (self._copies(name), numbers)
            for name, numbers in sorted(self.plan.shared().items())
            if weights[name].requires_grad
        ]
        return [own for own in found if own[0]]

    def _put_aside(self) -> dict[torch.Tensor, torch.Tensor | None]:
        """Take the gradients of earlier steps off the parameters that several stages have."""
        before = {}
        for copies, _ in self._tied():
            for own in copies.values():
                before[own], own.grad = own.grad, None
        return before

    def _sum_shared(self, before: Mapping[torch.Tensor, torch.Tensor | None]) -> None:
        """Sum the gradients of the parameters that several stages have, in the order of the stages on all ranks."""
        for copies, numbers in self._tied():
            own = {
                number: torch.zeros_like(copy) if copy.grad is None else copy.grad.contiguous()
                for number, copy in copies.items()
            }
            exchanged = self._exchanged(own, numbers)
            total = torch.stack([exchanged[number] for number in numbers]).sum(0)
            if self.replicas is not None:
                total = self.replicas.mean(total)
            for copy in copies.values():
                earlier = before[copy]
                copy.grad = total.clone() if earlier is None else earlier + total

    def _exchanged(
        self, own: Mapping[int, torch.Tensor], numbers: Sequence[int]
    ) -> dict[int, torch.Tensor]:
        """A tensor for each of the stages ``numbers``, of which this rank has those in ``own``."""
        ranks = sorted({self._rank_of[number] for number in numbers})
        like = next(iter(own.values()))
        found: dict[int, torch.Tensor] = {}
        work = []
        for number in numbers:
            if number in own:
                found[number] = own[number]
                for rank in ranks:
                    if rank != self.rank:
                        work.append(self._p2p(dist.isend, own[number], rank))
            else:
                found[number] = torch.empty_like(like)
                work.append(self._p2p(dist.irecv, found[number], self._rank_of[number]))
        for one in work:
            one.wait()
        return found

    def _p2p(self, op: Callable[..., Any], tensor: torch.Tensor, rank: int) -> Any:
        return op(tensor, dist.get_global_rank(self.group, rank), group=self.group)

    def _start_equal(self) -> None:
        """Give all copies of a parameter the values of the first one."""
        with torch.no_grad():
            for name, numbers in sorted(self.plan.shared().items()):
                copies = self._copies(name)
                if copies:
                    values = {n: copy.detach().contiguous() for n, copy in copies.items()}
                    first = self._exchanged(values, numbers)[numbers[0]]
                    for copy in copies.values():
                        copy.copy_(first)


def _contiguous(
    values: Mapping[str, torch.Tensor], names: Sequence[str]
) -> tuple[torch.Tensor, ...]:
    """Types of values as they are sent."""
    return tuple(
        torch.empty(values[name].shape, dtype=values[name].dtype, device="meta").requires_grad_(
            values[name].requires_grad
        )
        for name in names
    )


def _parts(tensor: torch.Tensor, batch: int, count: int) -> Sequence[torch.Tensor]:
    """A tensor in microbatches, or the whole for each if it has no batch dimension."""
    if tensor.dim() and tensor.size(0) == batch:
        return torch.tensor_split(tensor, count)
    return [tensor] * count


def pipeline(
    model: Any,
    example_inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    stages: int | None = None,
    memory: int | None = None,
    schedule: str = "1f1b",
    microbatches: int = 8,
    loss_fn: Callable[[Any, Any], torch.Tensor] | None = None,
    loss_reduction: str = "mean",
    weights: str | os.PathLike[str] | None = None,
    dynamic_shapes: Mapping[str | int, Collection[int]] | None = None,
    device: torch.device | str | None = None,
    group: Any = None,
    replicas: Any = None,
    tensor_group: Any = None,
    sequence_parallel: bool = False,
    bucket_bytes: int = BYTES,
    timeout: float = 300.0,
) -> Pipeline:
    """Cut a model into stages, one or more for each rank, that a schedule of PyTorch runs. All ranks call it.

    Args:
        model: a module, which may be on ``meta``, or a :class:`PipelinePlan`. The graph has the training modes that
            its modules have now.
        example_inputs: the positional arguments of a call with a whole batch: a tensor, or a tuple of tensors and
            plain values. Tensors whose first dimension is that of the first one are split into microbatches.
        kwargs: its keyword arguments.
        stages: the number of stages; by default one for each rank, or two where the schedule takes several.
        memory: the largest number of bytes of weights and their gradients of a stage.
        schedule: ``"gpipe"``, ``"1f1b"``, ``"interleaved1f1b"``, ``"looped_bfs"``, ``"interleaved_zero_bubble"`` or
            ``"zbv_zero_bubble"``.
        microbatches: the number of microbatches of a batch.
        loss_fn: takes the result of the model and the target of a microbatch; without it there are no gradients.
        loss_reduction: whether the loss of a batch is the ``"mean"`` or the ``"sum"`` over its items.
        weights: a safetensors file, of which each rank reads the bytes of its own stages. By default, the weights of
            the model.
        dynamic_shapes: as for :func:`plan_pipeline`.
        device: where the stages run; by default the CPU.
        group: the process group, or a :class:`~torch.distributed.device_mesh.DeviceMesh` of one dimension; by default a
            group of all ranks.
        replicas: as ``group``, the ranks that have the same stages for other batches, if there are any: gradients are
            means over them.
        tensor_group: as ``group``, the ranks with the same stages for the same batch, if there are any. Weights of
            stages are cut among them as by :func:`parallelize`, and all are called with the same arguments.
        sequence_parallel: as for :func:`parallelize`, with ``tensor_group``; what stages send is whole.
        bucket_bytes: as for :func:`data_parallel`.
        timeout: seconds after which a rank that waits for another one gives up, if ``group`` is None.

    Raises:
        PipelineError: the model cannot be captured or cut, or a rank failed.
        PlanMismatchError: the ranks have different plans.
        ValueError: the number of stages does not fit the schedule and the number of ranks.
    """
    group = group_of(group, timeout, PipelineError)
    replicas, tensor_group = (
        None if own is None else group_of(own, timeout, PipelineError)
        for own in (replicas, tensor_group)
    )
    if loss_reduction not in ("mean", "sum"):
        raise ValueError(f"loss_reduction: expected 'mean' or 'sum', got {loss_reduction!r}")
    if sequence_parallel and tensor_group is None:
        raise ValueError("sequence_parallel: expected a tensor_group, whose ranks have the parts")
    groups = [own for own in (group, replicas, tensor_group) if own is not None]
    keys = failure_keys(groups)
    device = torch.device("cpu" if device is None else device)
    name = schedule_name(schedule)
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    made: Pipeline | None = None
    error: Exception | None = None
    plan: PipelinePlan | None = None
    cut: TensorStages | None = None
    try:
        args = positional(example_inputs)
        named = dict(kwargs or {})
        plan = _planned(
            model, args, named, stages, memory, name, microbatches, size, dynamic_shapes
        )
        rank_of = ranks_of_stages(name, size, len(plan.stages))
        mine = [number for number, own in rank_of.items() if own == rank]
        tensors = stage_weights(plan, mine, weights, device)
        stages_of = dict(zip(mine, tensors, strict=True))
        graphs = {number: plan.stages[number] for number in mine}
        if tensor_group is not None:
            cut = TensorStages(plan, dist.get_world_size(tensor_group), sequence_parallel)
            part = dist.get_rank(tensor_group)
            graphs = {number: cut.stage(number, tensor_group.group_name) for number in mine}
            stages_of = {
                number: cut.weights(number, part, own) for number, own in stages_of.items()
            }
        modules = {
            number: StageModule(rank, number, graphs[number], own, device)
            for number, own in stages_of.items()
        }
        made = Pipeline(
            plan,
            modules,
            name,
            microbatches,
            loss_fn,
            loss_reduction,
            device,
            group,
            rank_of,
            keys,
            replicas,
            bucket_bytes,
            cut,
            tensor_group,
        )
        made.resize(*args, **named)
    except Exception as caught:
        error = caught
    options = {
        "schedule": repr((name, microbatches)),
        "loss": loss_reduction,
        "buckets": repr(bucket_bytes),
    }
    digests: dict[str, str] | None = None
    if plan is not None:
        digests = plan.digests() | options | ({} if cut is None else cut.digests())
    agree_all(groups, digests, error, graph=None if plan is None else plan.program.graph)
    assert made is not None and plan is not None
    if rank == 0 and _has_batch_statistics(plan):
        warnings.warn(
            "a batch norm in training mode takes its statistics from each microbatch, not from the batch",
            stacklevel=2,
        )
    with made._watched():
        if made.replicas is not None:
            made.replicas.start_equal()
        if cut is not None:
            start_equal(
                tensor_group,
                (
                    own
                    for module in made.modules
                    for name, own in (*module.named_parameters(), *module.named_buffers())
                    if name not in cut.stages[module.index].shards
                ),
            )
        made._start_equal()
    return made


def _planned(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    stages: int | None,
    memory: int | None,
    schedule: str,
    microbatches: int,
    size: int,
    dynamic_shapes: Mapping[str | int, Collection[int]] | None,
) -> PipelinePlan:
    """The plan for a schedule; that which is given, or one for the first microbatch."""
    is_multi = takes_several_stages(schedule)
    if isinstance(model, PipelinePlan):
        count = len(model.stages)
    else:
        count = stages if stages is not None else size * (2 if is_multi else 1)
    if (count != size) if not is_multi else (count % size != 0):
        wanted = f"a multiple of {size}" if is_multi else f"{size}, one for each rank"
        raise ValueError(f"{schedule}: expected {wanted} stages, got {count}")
    if isinstance(model, PipelinePlan):
        return model
    tensors = [own for own in (*args, *kwargs.values()) if isinstance(own, torch.Tensor)]
    if not tensors or tensors[0].dim() == 0 or tensors[0].size(0) < microbatches:
        got = list(tensors[0].shape) if tensors else "no tensor"
        raise PipelineError(
            f"expected a first input with a batch of at least {microbatches}, got {got}"
        )
    batch = tensors[0].size(0)

    def part(own: Any) -> Any:
        return _parts(own, batch, microbatches)[0] if isinstance(own, torch.Tensor) else own

    return plan_pipeline(
        model,
        tuple(map(part, args)),
        {key: part(own) for key, own in kwargs.items()},
        stages=count,
        memory=memory,
        dynamic_shapes=dynamic_shapes,
    )


def _has_batch_statistics(plan: PipelinePlan) -> bool:
    """Whether a batch norm computes its statistics from its input."""
    for node in plan.program.graph.nodes:
        is_call = node.op == "call_function"
        if is_call and _core.operator_of(node.op, node.target)[0] in _BATCH_NORMS:
            named = _core.named_arguments_of(node.op, node.target, node.args, node.kwargs) or {}
            if named.get("training") is True:
                return True
    return False


__all__ = ["Pipeline", "pipeline"]
