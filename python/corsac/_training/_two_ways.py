"""A forward and a backward graph as one function that autograd can go back from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

#: A graph that runs: of a list that it empties.
Run = Callable[[list[Any]], Any]


class TwoWays:
    """What a program gives, with gradients.

    Args:
        forward: takes the inputs, gives the results and what is saved.
        make_backward: makes what takes that and the gradients of results, and gives those of inputs; is called
            when somebody goes back first.
        results: what the results are, by stand-ins; those that want gradients require them.
    """

    def __init__(
        self,
        forward: Run,
        make_backward: Callable[[], Run],
        results: Sequence[torch.Tensor],
    ) -> None:
        self.forward = forward
        self._make_backward = make_backward
        self._backward: Run | None = None
        self._lock = threading.Lock()
        self.wanting = [own.requires_grad for own in results]
        #: Gradients are to lie as results do.
        self.strides = [tuple(own.stride()) for own in results]

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results: tuple[torch.Tensor, ...] = _TwoWays.apply(self, *inputs)
        return results

    def backward(self, arguments: list[Any]) -> Any:
        """The gradients of inputs."""
        if self._backward is None:
            with self._lock:
                if self._backward is None:
                    self._backward = self._make_backward()
        if torch.is_autocast_enabled("cpu"):
            # Graphs say themselves what they compute in.
            with torch.autocast("cpu", enabled=False):
                return self._backward(arguments)
        return self._backward(arguments)


class _TwoWays(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ways: TwoWays, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found, count = ways.forward(list(inputs)), len(ways.wanting)
        results = tuple(found[:count])
        ctx.ways = ways
        #: What gradients depend on, whether it is saved or not.
        ctx.inputs = [own for own in inputs if own.requires_grad]
        ctx.save_for_backward(*found[count:])
        unwanted = [own for own, wants in zip(results, ways.wanting, strict=True) if not wants]
        if unwanted:
            ctx.mark_non_differentiable(*unwanted)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if not torch.is_grad_enabled():
            return None, *_way_back(ctx, gradients)
        # Somebody may go back through this to any of the inputs, and is to be told.
        given = [*gradients, *ctx.inputs]
        results: tuple[torch.Tensor | None, ...] = _Once.apply(ctx, len(gradients), *given)
        return None, *results


class _Once(torch.autograd.Function):
    """A way back that nobody goes back through."""

    @staticmethod
    def forward(
        ctx: Any, of_program: Any, count: int, *given: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        del ctx
        return _way_back(of_program, given[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise RuntimeError(
            "second derivatives of a compiled model are not computed: call the model itself for them"
        )


def _way_back(ctx: Any, gradients: Sequence[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
    ways = ctx.ways
    tangents = [
        _laid_out(own, strides)
        for own, strides, wants in zip(gradients, ways.strides, ways.wanting, strict=True)
        if wants
    ]
    arguments = [*ctx.saved_tensors, *tangents]
    del tangents
    # Each goes when it was read last, unless somebody goes back once more.
    if hasattr(ctx, "maybe_clear_saved_tensors"):
        ctx.maybe_clear_saved_tensors()
    return tuple(ways.backward(arguments))


def _laid_out(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    if tensor.is_conj() or tensor.is_neg():
        # Graphs are of numbers as they are in memory.
        tensor = tensor.resolve_conj().resolve_neg()
    if tensor.stride() == strides:
        return tensor
    made = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype)
    return made.copy_(tensor)


__all__ = ["TwoWays"]
