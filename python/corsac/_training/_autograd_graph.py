"""A forward and a backward graph as one differentiable function."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

#: A compiled graph: a function of a list of arguments, which it empties.
Run = Callable[[list[Any]], Any]


class AutogradGraph:
    """A forward and a backward graph as a differentiable function of tensors.

    Args:
        forward: maps the inputs to the results, the new values of inputs, and the saved tensors.
        make_backward: makes the function from saved tensors and gradients of results to gradients of inputs;
            called at the first backward pass.
        results: fake tensors for the results, with ``requires_grad`` set as in the program.
        written: indices of the inputs that are written to, which want no gradients.
    """

    def __init__(
        self,
        forward: Run,
        make_backward: Callable[[], Run],
        results: Sequence[torch.Tensor],
        written: Sequence[int] = (),
    ) -> None:
        self.forward = forward
        self.written = tuple(written)
        self._make_backward = make_backward
        self._backward: Run | None = None
        self._lock = threading.Lock()
        self.wanting = [own.requires_grad for own in results]
        #: Strides of results, which the backward graph expects of their gradients.
        self.strides = [tuple(own.stride()) for own in results]

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results: tuple[torch.Tensor, ...] = _Function.apply(self, *inputs)
        return results

    def backward(self, arguments: list[Any]) -> Any:
        """The gradients of inputs."""
        if self._backward is None:
            with self._lock:
                if self._backward is None:
                    self._backward = self._make_backward()
        return self._backward(arguments)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graph: AutogradGraph, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found, count = graph.forward(list(inputs)), len(graph.wanting)
        end = count + len(graph.written)
        results, saved = tuple(found[:count]), found[end:]
        if graph.written:
            torch._foreach_copy_([inputs[at] for at in graph.written], found[count:end])
        ctx.graph = graph
        #: Inputs that gradients may depend on, whether they are saved or not.
        ctx.inputs = [own for own in inputs if own.requires_grad]
        ctx.save_for_backward(*saved)
        unwanted = [own for own, wants in zip(results, graph.wanting, strict=True) if not wants]
        if unwanted:
            ctx.mark_non_differentiable(*unwanted)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if not torch.is_grad_enabled():
            return None, *_way_back(ctx, gradients)
        # A second derivative with respect to any of these must raise an error.
        given = [*gradients, *ctx.inputs]
        results: tuple[torch.Tensor | None, ...] = _Once.apply(ctx, len(gradients), *given)
        return None, *results


class _Once(torch.autograd.Function):
    """A backward pass that is not differentiable itself."""

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
    graph = ctx.graph
    tangents = [
        _laid_out(own, strides)
        for own, strides, wants in zip(gradients, graph.strides, graph.wanting, strict=True)
        if wants
    ]
    arguments = [*ctx.saved_tensors, *tangents]
    del tangents
    # Each is freed after its last use, unless the autograd graph is retained.
    if hasattr(ctx, "maybe_clear_saved_tensors"):
        ctx.maybe_clear_saved_tensors()
    return tuple(graph.backward(arguments))


def _laid_out(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    if tensor.is_conj() or tensor.is_neg():
        # Graphs work on values as they are in memory.
        tensor = tensor.resolve_conj().resolve_neg()
    if tensor.stride() == strides:
        return tensor
    made = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype)
    return made.copy_(tensor)


__all__ = ["AutogradGraph"]
