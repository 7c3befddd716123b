"""Data parallelism: a copy of a model on each rank, whose backward graph averages gradients."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from corsac._pytorch.aten import storage_of
from corsac.distributed._agreement import agree_all, digests_of, group_of
from corsac.distributed._announcements import Announcements
from corsac.distributed._buckets import BYTES, Bucket, plan_buckets
from corsac.distributed._errors import ParallelError, as_parallel_errors
from corsac.distributed._failures import Watch, failure_keys
from corsac.distributed._gradient_means import GradientMeans
from corsac.distributed._parallel import Parallel, WithLoss
from corsac.distributed._program import Program, positional, program_of
from corsac.distributed._rank_module import RankModule, failed_node, move_graph
from corsac.distributed._stage_weights import part_weights
from corsac.distributed._step_graph import InputSpec, StepGraph
from corsac.distributed._values import InputType, described, input_types, quiet, summary, values_for
from corsac.distributed._weights import reader_of, start_equal
from corsac.fx import GraphModule
from corsac.fx._own_copy import copied_graph
from corsac.passes._writes import written_sources

#: Number of joint graphs, for inputs of different types, that are kept.
_KEPT = 16


class DataParallel(RankModule):
    """A model of which each rank of a group has a copy, and calls it with its own part of a batch.

    Its parameters are those of the model, under their names. A backward pass leaves in each the mean of its gradients
    over the ranks, as that of :class:`~torch.nn.parallel.DistributedDataParallel` does.

    Attributes:
        program: the model as a graph.
        module: the model, or the :class:`Parallel` of this rank. It has the same parameters, unless these were moved to
            a device or read from a file.
        buckets: the gradients that one collective averages, in the order of the collectives.
        group: the process group.
        rank: of this process in the group.
        scattered: whether a backward pass leaves each rank a part of each bucket, for a :class:`ShardedOptimizer`, and
            parameters without gradients.
    """

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, torch.Tensor],
        module: Any,
        group: Any,
        device: torch.device,
        keys: Mapping[Any, str],
        scattered: bool,
    ) -> None:
        graph = copied_graph(program.graph)
        move_graph(graph, device)
        sources = written_sources(graph)
        if isinstance(module, Parallel):
            # Of collectives it is not known that they write to nothing.
            sources = written_sources(module.plan.program.graph)
        others = sorted(
            {own for one in keys for own in dist.get_process_group_ranks(one)} - {dist.get_rank()}
        )
        written = {str(node.target) for node in sources if node.op == "get_attr"}
        watched = Watch(
            ParallelError,
            f"rank {dist.get_rank()}",
            f"one of the ranks {others} has ended, or does not run this pass",
            keys,
        )
        buckets: list[Bucket] = []
        state = {
            "program": replace(program, graph=graph),
            "module": module,
            "buckets": buckets,
            "group": group,
            "rank": dist.get_rank(group),
            "_device": device,
            "announced": Announcements([group], watched, ParallelError),
            "_watched": watched,
            "_calls": 0,
            "_means": GradientMeans(group, buckets, self.get_parameter, watched, scattered),
            "scattered": scattered,
            "_writes_to_inputs": any(node.op == "placeholder" for node in sources),
            "_own": dict(weights),
            "_written": [own.detach() for key, own in weights.items() if key in written],
            "_steps": {},
            "_checked": set(),
            "_syncs": True,
            "_has_new_buffers": True,
        }
        super().__init__(graph, weights, state)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the model.

        Raises:
            ParallelError: the graph is not that of the model for such arguments, or a call failed, on this rank or
                another.
        """
        with self._watched(self._place):
            if isinstance(self.module, Parallel):
                inputs = self.module.prepare(args, kwargs)
            else:
                inputs = self.program.arguments.tensors(args, kwargs)
                self._check(input_types(inputs))
            inputs = tuple(own.to(self._device) for own in inputs)
            if self._writes_to_inputs and len(set(map(storage_of, inputs))) < len(inputs):
                raise ParallelError("the model may write to an input, and inputs share memory")
            if self._has_new_buffers and self._written:
                self.announced.compare("a call that takes the buffers of the first rank")
                start_equal(self.group, self._written)
            has_gradients = torch.is_grad_enabled()
            # As in DistributedDataParallel, calls that do not communicate leave buffers as they are.
            self.__dict__["_has_new_buffers"] = has_gradients and self._syncs
            if has_gradients:
                step = self._step(tuple(InputSpec.of(own, self._device) for own in inputs))
                found = step(*inputs)
                self._follow(found)
                return self.program.result(found)
            found = self.graph_module.forward(*inputs)
            return found if self.program.build is None else self.program.build(found)

    def _follow(self, results: Sequence[torch.Tensor]) -> None:
        """Compare the backward passes of a call with those of the other ranks."""
        nodes = self.program.results()
        if isinstance(self.module, Parallel):
            self.module.follow(nodes, results)
        if self._syncs:
            self.__dict__["_calls"] += 1
            self.announced.follow(nodes, results, f"call {self._calls} with gradients")

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let calls in the block leave gradients as they are, on this rank. They are averaged together with those of
        the next call outside."""
        before = self._syncs
        self.__dict__["_syncs"] = False
        try:
            yield
        finally:
            self.__dict__["_syncs"] = before

    def full_state_dict(self) -> dict[str, torch.Tensor]:
        """The weights that the graph reads, under all their names in the state dict of the model. With a
        :class:`Parallel`, all ranks call it."""
        if isinstance(self.module, Parallel):
            return self.module.full_state_dict()
        return self.program.under_all_names(self.state_dict().items())

    def graphs(self) -> tuple[GraphModule, GraphModule | None]:
        """The forward and the backward graph, of ATen operators, of the latest call with gradients."""
        step = next(reversed(self._steps.values()))
        return step.forward, step.backward

    # Graphs --------------------------------------------------------------------------------

    def _plan(self, inputs: Sequence[InputSpec], bucket_bytes: int) -> None:
        """Make the joint graph for inputs of these types, and put its gradients into buckets.

        Raises:
            ParallelError: there is no such graph, or no parameter has a gradient.
        """
        if not isinstance(self.module, Parallel):
            self._check([(own.shape, own.dtype) for own in inputs])
        step = self._traced(inputs)
        if step.backward is not None:
            graph, weights = step.backward.graph, self.program.weights
            self.buckets.extend(plan_buckets(graph, step.gradients, weights, bucket_bytes))
        if not self.buckets:
            raise ParallelError("no parameter of the model has a gradient")
        self._means.average(step)
        self._means.watch()
        self._steps[self._key(tuple(inputs))] = step

    def _check(self, inputs: Sequence[InputType]) -> None:
        """Check that the graph is that of the model for inputs of these types."""
        key = tuple(inputs)
        if key not in self._checked:
            with as_parallel_errors(), quiet():
                values_for(self.program, inputs)
            self._checked.add(key)

    def _key(self, inputs: tuple[InputSpec, ...]) -> tuple[Any, ...]:
        """All that a joint graph depends on."""
        kind = self._device.type
        autocast = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind)
        return inputs, self._syncs, autocast

    def _step(self, inputs: tuple[InputSpec, ...]) -> StepGraph:
        """The joint graph for inputs of these types, in the present modes."""
        for name, own in (*self.named_parameters(), *self.named_buffers()):
            if own is not self._own[name]:
                raise ParallelError(
                    f"{name} is another tensor than when data_parallel was called: call it again, or copy values into it"
                )
            weight = self.program.weights[name]
            if (own.requires_grad, own.dtype) != (weight.requires_grad, weight.dtype):
                raise ParallelError(
                    f"{name} was of {weight.dtype}, with requires_grad={weight.requires_grad}, when data_parallel was "
                    f"called, and is of {own.dtype}, with requires_grad={own.requires_grad}: call it again"
                )
        key = self._key(inputs)
        step = self._steps.pop(key, None)
        if step is None:
            step = self._traced(inputs)
            (self._means.average if self._syncs else self._means.keep)(step)
            if len(self._steps) >= _KEPT:
                del self._steps[next(iter(self._steps))]
        self._steps[key] = step
        return step

    def _traced(self, inputs: Sequence[InputSpec]) -> StepGraph:
        try:
            return StepGraph(self.program, self.graph_module, inputs)
        except Exception as error:
            raise ParallelError(f"the model has no joint graph: {summary(error)}") from error

    def _place(self, error: Exception) -> str:
        """The node at which a forward pass failed, as text."""
        step = next(reversed(self._steps.values()), None)
        if step is not None and (node := failed_node(step.forward, error)) is not None:
            return f", {described(node)}"
        return super()._place(error)


def data_parallel(
    model: Any,
    example_inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    mesh: Any = None,
    *,
    loss_fn: Callable[..., torch.Tensor] | None = None,
    bucket_bytes: int = BYTES,
    scatter: bool = False,
    weights: str | os.PathLike[str] | None = None,
    dynamic_shapes: Mapping[str | int, Collection[int]] | None = None,
    device: torch.device | str | None = None,
    timeout: float = 300.0,
) -> DataParallel:
    """Give each rank of a group a copy of a model, whose backward passes average gradients. All ranks call it; the
    parameters and buffers of all become those of the first rank.

    Args:
        model: a module, which may be on ``meta``, or a :class:`Parallel`, whose inputs are then known. The graph has the
            training modes that its modules have now.
        example_inputs: the positional arguments of a call: a tensor, or a tuple of tensors and plain values. They have
            the same sizes on all ranks; batches may differ later.
        kwargs: its keyword arguments.
        mesh: a :class:`~torch.distributed.device_mesh.DeviceMesh` of one dimension, or a process group; by default a
            group of all ranks.
        loss_fn: takes the result of the model and a target, which is then the last positional argument of a call and of
            ``example_inputs``.
        bucket_bytes: the size from which a bucket takes no more gradients; that of the first bucket is at most 1 MiB.
        scatter: give each rank the means of a part of each bucket only, by a ``reduce_scatter``. The parameters are then
            to be trained with a :class:`ShardedOptimizer`.
        weights: a safetensors file, or a folder of them. By default, the weights of the model.
        dynamic_shapes: dimensions of inputs that may have other sizes in later calls, by position or name; by default
            all.
        device: where the graph runs; by default the CPU.
        timeout: seconds after which a rank that waits for another one gives up, if ``mesh`` is None.

    Raises:
        ParallelError: the model cannot be captured, or a rank failed.
        PlanMismatchError: the ranks have different graphs, parameters or buckets.
    """
    group = group_of(mesh, timeout)
    groups = [group, *([model.group] if isinstance(model, Parallel) else [])]
    keys = failure_keys(groups)
    device = torch.device("cpu" if device is None else device)
    made: DataParallel | None = None
    error: Exception | None = None
    digests: dict[str, str] | None = None
    try:
        if isinstance(model, Parallel):
            if loss_fn is not None or weights is not None:
                raise ValueError("loss_fn and weights of a Parallel are arguments of parallelize")
            program, own = _of_parts(model)
            inputs = [InputSpec.contiguous(*one, device) for one in model.plan.inputs]
            digests = {name: one for name, one in model.plan.digests().items() if name != "inputs"}
        else:
            args, named = positional(example_inputs), dict(kwargs or {})
            with as_parallel_errors():
                module = model if loss_fn is None else WithLoss(model, loss_fn)
                program = program_of(module, args, named, dynamic_shapes)
            own = _weights(program, weights, device)
            tensors = program.arguments.tensors(args, named)
            inputs = [InputSpec.of(one, device) for one in tensors]
            digests = digests_of(program.parts())
        made = DataParallel(program, own, model, group, device, keys, scatter)
        made._plan(inputs, bucket_bytes)
        digests |= digests_of({"buckets": [repr(own) for own in made.buckets], "scatter": scatter})
    except Exception as caught:
        error = caught
    agree_all(groups, digests, error, ParallelError, None if made is None else made.program.graph)
    assert made is not None
    made.training = model.training
    with made._watched():
        start_equal(group, (*made.parameters(), *made.buffers()))
    return made


def _of_parts(module: Parallel) -> tuple[Program, dict[str, torch.Tensor]]:
    """The program that a rank runs of a model whose weights are cut, and its parts of the weights.

    Raises:
        ValueError: it is not for training.
    """
    if not module.plan.training:
        raise ValueError("the Parallel was made with training=False")
    program = module.plan.program
    own = dict((*module.named_parameters(), *module.named_buffers()))
    types = {
        name: replace(
            program.weights[name], shape=tuple(one.shape), requires_grad=one.requires_grad
        )
        for name, one in own.items()
    }
    return replace(program, graph=module.graph, weights=types), own


def _weights(
    program: Program, path: str | os.PathLike[str] | None, device: torch.device
) -> dict[str, torch.Tensor]:
    def refuse(name: str, reason: str) -> ParallelError:
        return ParallelError(f"{reader_of(program.graph, name)}: {reason}")

    (found,) = part_weights(program, [program.weights], path, device, refuse)
    return found


__all__ = ["DataParallel", "data_parallel"]
