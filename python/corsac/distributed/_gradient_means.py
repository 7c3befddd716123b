"""Backward graphs of steps: those that average gradients, and those that leave them as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from corsac._training._placed_graph import boxed
from corsac.distributed._buckets import Bucket, average_gradients
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
    """

    def __init__(
        self,
        group: Any,
        buckets: Sequence[Bucket],
        parameter: Callable[[str], torch.nn.Parameter],
        watched: Watch,
    ) -> None:
        self._group, self._buckets = group, buckets
        self._parameter, self._watched = parameter, watched
        #: Whether parameters have gradients that are not averaged yet.
        self._has_kept = False

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
            )
            modules.append(GraphModule(step.backward, graph))
        runs = list(map(boxed, modules))

        def run(arguments: list[Any]) -> Any:
            kept = self._kept()
            with self._watched(lambda error: self._place(modules[bool(kept)], error)):
                arguments.extend(kept)
                return runs[bool(kept)](arguments)

        step.backward, step.run_backward = modules[0], run

    def keep(self, step: StepGraph) -> None:
        """Let the backward graph of a step leave gradients as they are, on this rank."""
        if step.backward is None:
            return
        module, own = step.backward, boxed(step.backward)

        def run(arguments: list[Any]) -> Any:
            self._has_kept = True
            with self._watched(lambda error: self._place(module, error)):
                return own(arguments)

        step.run_backward = run

    def _kept(self) -> list[torch.Tensor]:
        """The gradients that this rank has kept, taken off their parameters, in the order of the buckets."""
        if not self._has_kept:
            return []
        self._has_kept = False
        found = []
        for name in (name for bucket in self._buckets for name in bucket.names):
            parameter = self._parameter(name)
            kept, parameter.grad = parameter.grad, None
            found.append(torch.zeros_like(parameter) if kept is None else kept.detach())
        return found

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
