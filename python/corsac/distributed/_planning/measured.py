"""Times of passes, measured on one rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from corsac.analysis._machine import Machine
from corsac.distributed._planning.costs import ModelCosts


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """What the passes of the whole model take on one rank.

    Attributes:
        items: the size of the microbatch.
        forward, backward: seconds.
        action: seconds that an action of a schedule takes besides the pass.
        split: factor by which a backward pass is slower if gradients of weights are computed apart, as in zero-bubble
            schedules.
    """

    items: int
    forward: float
    backward: float
    action: float = 0.0
    split: float = 1.0


def measure_step(
    model: torch.nn.Module,
    args: Sequence[Any],
    loss_fn: Callable[[Any], torch.Tensor],
    repeats: int = 5,
) -> StepSeconds:
    """The least times of the passes of one microbatch. Gradients are left as they were. ``split`` is measured if one
    input is of a floating-point type.

    Args:
        model: the model.
        args: the arguments of a call with one microbatch.
        loss_fn: the loss of the result.
        repeats: the number of timed passes.
    """
    items = next(own.size(0) for own in args if isinstance(own, torch.Tensor))
    before = [(own, own.grad) for own in model.parameters()]
    found: list[tuple[float, ...]] = []
    for _ in range(repeats + 1):
        for own, _grad in before:
            own.grad = None
        start = time.perf_counter()
        loss = loss_fn(model(*args))
        middle = time.perf_counter()
        loss.backward()
        end = time.perf_counter()
        found.append((middle - start, end - middle, _split_seconds(model, args, loss_fn)))
    for own, grad in before:
        own.grad = grad
    # The first one warms up.
    forward, backward, split = map(min, zip(*found[1:], strict=True))
    return StepSeconds(items, forward, backward, split=max(split / backward, 1.0))


def _split_seconds(
    model: torch.nn.Module, args: Sequence[Any], loss_fn: Callable[[Any], torch.Tensor]
) -> float:
    """Seconds of a backward pass that computes gradients of weights apart; 0 where pipelines do not."""
    inputs = [
        own.detach().requires_grad_()
        if isinstance(own, torch.Tensor) and own.is_floating_point()
        else own
        for own in args
    ]
    given = [own for own in inputs if isinstance(own, torch.Tensor) and own.requires_grad]
    if len(given) != 1:
        return 0.0
    loss = loss_fn(model(*inputs))
    begin = time.perf_counter()
    try:
        gradients, groups = stage_backward_input([loss], None, given, model.parameters())
        if any(own is None for own in gradients):
            return 0.0
        stage_backward_weight(model.parameters(), groups)
    except RuntimeError:
        # The loss does not depend on the input.
        return 0.0
    return time.perf_counter() - begin


def slower_than(own: StepSeconds, costs: ModelCosts, machine: Machine) -> tuple[float, float]:
    """Factors by which measured passes are slower than the roofline of a machine."""
    whole = torch.ones(len(costs.nodes), dtype=torch.float64)
    forward, backward, _ = costs.seconds(own.items, machine, whole)
    return own.forward / float(forward.sum()), own.backward / float(backward.sum())


__all__ = ["StepSeconds", "measure_step", "slower_than"]
