"""A graph that was handed to a backend, and what became of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from corsac._compiled_graph import CompiledGraph
from corsac._dynamo import Piece
from corsac.backends._contract import CheckedCall
from corsac.backends._fallback import Chosen
from corsac.fx import GraphModule


class GraphRecord:
    """A graph that was handed to a backend, and what became of it.

    Attributes:
        module: the graph.
        inputs: the types of the example inputs, as text.
        tracer: what captured it: ``"corsac"`` or ``"Dynamo"``.
        seconds: how long each stage took.
        declined: why the backend declined, if it did: PyTorch runs the graph.
        stopped: Dynamo's reason to end the graph where it ends.
        compiled: what the backend compiled.
    """

    def __init__(
        self, module: GraphModule, inputs: Sequence[Any], tracer: str, seconds: float
    ) -> None:
        self.module = module
        self.inputs = tuple(_type_of(own) for own in inputs)
        self.tracer = tracer
        self.seconds: dict[str, float] = {"capture": seconds} if seconds else {}
        self.declined: str | None = None
        self.stopped: Any = None
        self.compiled: Callable[..., Any] | None = None

    def refusals(self) -> tuple[tuple[str, str], ...]:
        """The backends of a :func:`corsac.backends.fallback` that declined, each with its reason."""
        return tuple(
            pair for own in self._layers() if isinstance(own, Chosen) for pair in own.declined
        )

    def chosen(self) -> str | None:
        """The backend of a :func:`corsac.backends.fallback` that compiled the graph."""
        return next((own.backend for own in self._layers() if isinstance(own, Chosen)), None)

    def programs(self) -> list[CompiledGraph]:
        """What corsac's engine, or a runtime, compiled of it."""
        return [
            variant
            for own in self._layers()
            if isinstance(own, Piece)
            for variant in own.variants()
        ]

    def trained(self) -> Any:
        """What corsac's engine made of it for autograd; None if that is nothing."""
        training = sys.modules.get("corsac._training")
        made = (
            own for own in self._layers() if training and isinstance(own, training.TrainedGraph)
        )
        return next(made, None)

    def _layers(self) -> Iterator[Any]:
        """What was compiled, and what that is made of."""
        own: Any = self.compiled
        while own is not None:
            yield own
            own = own.compiled if isinstance(own, CheckedCall | Chosen) else None

    def __str__(self) -> str:
        calls = sum(node.op.startswith("call_") for node in self.module.graph.nodes)
        seconds = ", ".join(f"{stage} {own * 1e3:.1f} ms" for stage, own in self.seconds.items())
        lines = [f"{calls} calls for ({', '.join(self.inputs)}); {seconds}"]
        if self.declined is not None:
            lines.append(f"  run by PyTorch: {self.declined}")
        lines += [f"  {name} declined: {reason}" for name, reason in self.refusals()]
        if self.chosen() is not None:
            lines.append(f"  run by {self.chosen()}")
        for program in self.programs():
            lines += ["  " + line for line in program.explain().splitlines()]
        if (trained := self.trained()) is not None:
            lines += ["  " + line for line in trained.explain().splitlines()]
        return "\n".join(lines)


def _type_of(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
