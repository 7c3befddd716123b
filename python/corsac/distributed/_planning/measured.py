"""Times of passes, measured on one rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from corsac.analysis._machine import Machine
from corsac.distributed._planning.costs import ModelCosts


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """What the passes of the whole model take on one rank.

    Attributes:
        items: the size of the microbatch.
        forward, backward: seconds.
        action: seconds that an action of a schedule takes besides the pass.
    """

    items: int
    forward: float
    backward: float
    action: float = 0.0


def measure_step(
    model: torch.nn.Module,
    args: Sequence[Any],
    loss_fn: Callable[[Any], torch.Tensor],
    repeats: int = 5,
) -> StepSeconds:
    """The least times of the passes of one microbatch. Gradients are left as they were.

    Args:
        model: the model.
        args: the arguments of a call with one microbatch.
        loss_fn: the loss of the result.
        repeats: the number of timed passes.
    """
    items = next(own.size(0) for own in args if isinstance(own, torch.Tensor))
    before = [(own, own.grad) for own in model.parameters()]
    found: list[tuple[float, float]] = []
    for _ in range(repeats + 1):
        for own, _grad in before:
            own.grad = None
        start = time.perf_counter()
        loss = loss_fn(model(*args))
        middle = time.perf_counter()
        loss.backward()
        found.append((middle - start, time.perf_counter() - middle))
    for own, grad in before:
        own.grad = grad
    # The first one warms up.
    forward, backward = zip(*found[1:], strict=True)
    return StepSeconds(items, min(forward), min(backward))


def slower_than(own: StepSeconds, costs: ModelCosts, machine: Machine) -> tuple[float, float]:
    """Factors by which measured passes are slower than the roofline of a machine."""
    whole = torch.ones(len(costs.nodes), dtype=torch.float64)
    forward, backward, _ = costs.seconds(own.items, machine, whole)
    return own.forward / float(forward.sum()), own.backward / float(backward.sum())


__all__ = ["StepSeconds", "measure_step", "slower_than"]
