"""corsac's own engine as a lowering backend: it needs no other package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from corsac import _core
from corsac._native.call import NativeCall
from corsac._native.options import Precision
from corsac._native.panic import as_compile_error
from corsac._native.race import Choice
from corsac.analysis._meta_run import MetaRun
from corsac.fx import Node
from corsac.fx.graph_module import GraphModule
from corsac.lowering._backend import Backend, LoweringError
from corsac.lowering._part import LoweredPart
from corsac.onnx._translate import spec_of


class _HostTypes(MetaRun):
    """Result types of calls without a rule, which the host runs: found on meta tensors, reported as CPU tensors."""

    def __call__(self, node: Node, known: dict[Node, Any]) -> tuple[Any] | None:
        found = super().__call__(node, known)
        return tree_map_only(torch.Tensor, _on_cpu, found)


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_nested or not all(type(own) is int for own in tensor.shape):
        raise LoweringError("it has a tensor of sizes that are no numbers")
    # Its elements are never touched, so it takes no physical memory.
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


class Engine(Backend):
    """The engine behind ``corsac.compile``."""

    name = "corsac"

    def __init__(
        self, *, strict: bool = False, precision: Precision = "f32", apart: bool = False
    ) -> None:
        #: Whether sharing of memory between results and inputs, or among results, must be kept.
        self._strict = strict
        self._precision = precision
        self.apart = apart
        self._module: GraphModule | None = None
        self._reasons: dict[Node, str] | None = None

    def prepare(self, module: GraphModule) -> None:
        self._module, self._reasons = module, None

    def supports(self, node: Node, types: Mapping[Node, Any]) -> bool | str:
        if self._reasons is None:
            graph = node.graph
            placeholders = graph.find_nodes(op="placeholder")
            inputs = tuple(spec_of(types[placeholder]) for placeholder in placeholders)
            host = _HostTypes(self._module)
            with as_compile_error("it looked at a graph"):
                self._reasons = _core.explain_compilation(graph, inputs, host, strict=self._strict)
        return self._reasons.get(node, True)

    def compile(self, part: GraphModule, types: Sequence[Any]) -> Callable[..., Any]:
        inputs = tuple(spec_of(t) for t in types)
        with as_compile_error("it compiled a part"):
            program = _core.compile_graph(part.graph, inputs, precision=self._precision)
        return EnginePart(NativeCall(program), part)


class EnginePart:
    """A part of a program that runs natively or by PyTorch, whichever is faster.

    If the engine refuses a call, for instance because of an index out of range, PyTorch runs the part and raises
    its own error: nothing of the surrounding program runs twice.

    Attributes:
        choice: the choice between native code and PyTorch.
    """

    def __init__(self, native: NativeCall, part: GraphModule) -> None:
        self._native, self._part = native, part
        self.choice = Choice()

    def __call__(self, *arguments: Any) -> Any:
        def native() -> Any:
            try:
                return self._native(*arguments)
            except ValueError:
                return self._part(*arguments)

        return self.choice.call(native, lambda: self._part(*arguments))


def engine_parts(lowered: torch.nn.Module) -> tuple[EnginePart, ...]:
    """The parts of a program that the engine has compiled."""
    found = (own.function for own in lowered.modules() if isinstance(own, LoweredPart))
    return tuple(own for own in found if isinstance(own, EnginePart))
