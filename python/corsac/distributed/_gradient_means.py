"""Backward graphs of steps: those that average gradients, and those that leave them as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from corsac._training._placed_graph import boxed
from corsac.distributed._buckets import Bucket, average_gradients
from corsac.distributed._errors import ParallelError
from corsac.distributed._failures import Watch
from corsac.distributed._rank_module import failed_node
from corsac.distributed._step_graph import StepGraph
from corsac.distributed._values import described
from corsac.fx import GraphModule

#: Number of parameters that a message names.
_NAMED = 3


class GradientMeans:
    """Makes backward graphs of steps for the ranks of a group.

    Args:
        group: the process group.
        buckets: the gradients that one collective averages; more may be added until the first graph is made.
        parameter: the parameter of a name.
        watched: watches passes.
        scattered: whether each rank gets a part of each bucket, in place of gradients of parameters.

    Attributes:
        parts: this rank's parts of the buckets, None before the first backward pass; None if they are not scattered.
        optimized: whether something takes the parts.
    """

    def __init__(
        self,
        group: Any,
        buckets: Sequence[Bucket],
        parameter: Callable[[str], torch.nn.Parameter],
        watched: Watch,
        scattered: bool = False,
    ) -> None:
        self._group, self._buckets = group, buckets
        self._parameter, self._watched = parameter, watched
        self.parts: list[torch.Tensor | None] | None = None
        self.optimized = False
        self._scattered = scattered
        #: Parameters whose gradients are not averaged yet, and those that the present backward pass averages.
        self._kept: set[str] = set()
        self._averaged: set[str] = set()
        #: The number of the present backward pass, and whether it averages gradients.
        self._task, self._averages = -1, False
        #: Nodes of autograd that add gradients up, which live as long.
        self._nodes: list[Any] = []

    def average(self, step: StepGraph) -> None:
        """Let the backward graph of a step average gradients, together with those that this rank has kept."""
        if step.backward is None:
            return
        modules = []
        for accumulated in (False, True):
            graph = average_gradients(
                step.backward.graph,
                step.gradients,
                self._buckets,
                self._group.group_name,
                dist.get_world_size(self._group),
                accumulated=accumulated,
                scattered=self._scattered,
            )
            modules.append(GraphModule(step.backward, graph))
        runs = list(map(boxed, modules))

        def run(arguments: list[Any]) -> Any:
            kept: list[torch.Tensor] = []
            with self._watched(lambda error: self._place(modules[bool(kept)], error)):
                self._enter(averages=True)
                kept += self._earlier()
                arguments.extend(kept)
                found = runs[bool(kept)](arguments)
                return self._without_parts(found) if self._scattered else found

        step.backward, step.run_backward = modules[0], run

    def keep(self, step: StepGraph) -> None:
        """Let the backward graph of a step leave gradients as they are, on this rank."""
        if step.backward is None:
            return
        module, own = step.backward, boxed(step.backward)

        def run(arguments: list[Any]) -> Any:
            with self._watched(lambda error: self._place(module, error)):
                self._enter(averages=False)
                self._kept.update(self._names())
                return own(arguments)

        step.run_backward = run

    def watch(self) -> None:
        """See when autograd adds up the gradients of parameters. The buckets are known by now."""
        for name in self._names():
            own = self._parameter(name)
            with torch.enable_grad():
                node = own.expand_as(own).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
            node.register_prehook(lambda _, name=name: self._replace(name))
            self._nodes.append(node)

    def _names(self) -> list[str]:
        return [name for bucket in self._buckets for name in bucket.names]

    def _enter(self, *, averages: bool) -> None:
        """A backward graph begins.

        Raises:
            ParallelError: another one of the same pass does otherwise, or nothing takes the parts of gradients.
        """
        if self._scattered and not self.optimized:
            raise ParallelError(
                "gradients are scattered, and parameters get none: make an optimizer with ShardedOptimizer before"
            )
        task = torch._C._current_graph_task_id()
        if task != self._task:
            self._task, self._averages = task, averages
            self._averaged.clear()
        elif self._averages != averages:
            raise ParallelError(
                "a backward pass goes through calls inside and outside of no_sync: make one for each"
            )

    def _earlier(self) -> list[torch.Tensor]:
        """The gradients that this rank has kept, in the order of the buckets; none if it has kept none."""
        missing = self._kept - self._averaged
        if not missing:
            return []
        self._averaged |= missing
        found = []
        for name in self._names():
            parameter = self._parameter(name)
            is_kept = name in missing and parameter.grad is not None
            found.append(parameter.grad.detach() if is_kept else torch.zeros_like(parameter))
        return found

    def _without_parts(self, found: Sequence[Any]) -> Sequence[Any]:
        """The results of a backward graph without this rank's parts of the buckets, which are added to those before."""
        count = len(found) - len(self._buckets)
        before = self.parts or [None] * len(self._buckets)
        self.parts = [
            own if earlier is None else earlier + own
            for earlier, own in zip(before, found[count:], strict=True)
        ]
        for name in self._averaged:
            self._parameter(name).grad = None
        self._kept -= self._averaged
        self._averaged.clear()
        return found[:count]

    def _replace(self, name: str) -> None:
        """The mean that comes has the gradient in it that a parameter has kept."""
        if name in self._averaged and torch._C._current_graph_task_id() == self._task:
            self._averaged.discard(name)
            self._kept.discard(name)
            self._parameter(name).grad = None

    def _place(self, module: GraphModule, error: Exception) -> str:
        """The node of a backward graph at which a call failed, as text."""
        node = failed_node(module, error)
        if node is None:
            return ", backward pass"
        place = f", backward pass, {described(node)}"
        for number, bucket in enumerate(self._buckets):
            if node.name == f"wait_{number}":
                more = len(bucket.names) - _NAMED
                names = ", ".join(bucket.names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
                place = f"{place} for gradients of {names}"
        return place


__all__ = ["GradientMeans"]
