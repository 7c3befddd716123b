"""Records of graphs that were passed to a backend."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from corsac._engine.compiled_graph import CompiledGraph
from corsac._engine.dynamo_graph import Piece
from corsac.backends._contract import CheckedCall
from corsac.backends._fallback import Chosen
from corsac.fx import GraphModule


class GraphRecord:
    """A graph that was passed to a backend, and the result.

    Attributes:
        module: the graph.
        inputs: the types of the example inputs, as text.
        tracer: its origin: ``"corsac"`` or ``"Dynamo"``.
        seconds: time of each stage.
        declined: why the backend declined, if it did: PyTorch runs the graph.
        stopped: Dynamo's reason for the end of the graph.
        compiled: the function compiled by the backend.
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
        """The compiled forms of the graph by corsac's engine or a runtime, one for each set of weights."""
        return [
            variant
            for own in self._layers()
            if isinstance(own, Piece)
            for variant in own.variants()
        ]

    def trained(self) -> Any:
        """The compiled form of the graph for training by corsac's engine, or None."""
        training = sys.modules.get("corsac._training")
        made = (
            own for own in self._layers() if training and isinstance(own, training.TrainedGraph)
        )
        return next(made, None)

    def _layers(self) -> Iterator[Any]:
        """The compiled function, and the functions that it wraps."""
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
