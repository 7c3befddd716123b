"""Lowering backends (ONNX Runtime, OpenVINO, users' own) as backends of ``corsac.compile``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from corsac._engine.compiled_graph import CompiledGraph
from corsac._engine.dynamo_graph import Piece
from corsac.backends._aliases import views_that_show
from corsac.backends._contract import Declined
from corsac.backends._engine import prepared
from corsac.fx import GraphModule, Node
from corsac.lowering import Backend, LoweringError, Preview, lower
from corsac.lowering._backend import make_backend


class RuntimeBackend:
    """A runtime of :func:`corsac.lower` as a backend: for inference; PyTorch runs unsupported operators."""

    copies_weights = True

    def __init__(self, runtime: str | Backend | type[Backend], name: str) -> None:
        self._runtime = runtime
        self.name = self.__name__ = name

    def __call__(
        self,
        module: GraphModule,
        example_inputs: Sequence[Any],
        *,
        options: Mapping[str, Any] | None = None,
    ) -> Piece:
        """Compile the graph with the supported parts on the runtime; ``options`` are those of the runtime.

        Raises:
            Declined: the runtime is not installed, or none of the graph can run there.
            TypeError: an option that the runtime does not have.
        """
        missing = self._made(options or {}).available()
        if missing is not None:
            raise Declined(missing)

        def compiled(graph_module: Any, capture: Callable[[], Any]) -> LoweredModule:
            return LoweredModule(graph_module, lambda: self._made(options or {}), capture)

        return prepared(Piece(module, compiled=compiled), example_inputs)

    def preload(self, options: Mapping[str, Any]) -> None:
        """Import the runtime and the modules around it, without using it."""
        self._made(options).available()

    def _made(self, options: Mapping[str, Any]) -> Backend:
        return make_backend(self._runtime, options, self.name)

    def __repr__(self) -> str:
        return f"<backend {self.name}>"


class LoweredModule(CompiledGraph):
    """A graph that a runtime runs, lowered for each set of types that it is called with."""

    _dtypes = None

    def __init__(
        self,
        module: GraphModule,
        runtime: Callable[[], Backend],
        capture: Callable[[], GraphModule],
    ) -> None:
        super().__init__(module, capture)
        self.__dict__["_runtime"] = runtime

    def _native(
        self, inputs: tuple[torch.Tensor, ...]
    ) -> tuple[Callable[..., Any], Preview | None]:
        """The graph with the supported parts on the runtime, and the placement of its nodes."""
        keeping = _KeepingViews(self._runtime(), views_that_show(self._captured, inputs))
        lowered = lower(self._captured, keeping, inputs)
        preview = lowered.meta["lowering"]
        if not preview.parts:
            first = next((row for row in preview.host), None)
            why = "it computes nothing" if first is None else f"{first.node}: {first.reason}"
            raise LoweringError(f"nothing of it can run on {keeping.name}: {why}")
        return lowered, preview


class _KeepingViews(Backend):
    """A runtime that leaves calls with visible views to the host."""

    def __init__(self, runtime: Backend, kept: set[str]) -> None:
        self.name = runtime.name
        self._runtime, self._kept = runtime, kept

    def available(self) -> str | None:
        return self._runtime.available()

    def prepare(self, module: GraphModule) -> None:
        self._runtime.prepare(module)

    def supports(self, node: Node, types: Mapping[Node, Any]) -> bool | str:
        if node.name in self._kept:
            return "its result shares memory with an input or another result"
        return self._runtime.supports(node, types)

    def compile(self, part: GraphModule, types: Sequence[Any]) -> Callable[..., Any]:
        return self._runtime.compile(part, types)
