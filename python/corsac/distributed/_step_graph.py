"""Joint graphs of training steps whose backward pass averages gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import default_partition
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode

from corsac._training._backend import _nothing_is_donated, _taking_a_list
from corsac._training._placed_graph import boxed
from corsac.distributed._program import Program
from corsac.fx import Graph, GraphModule
from corsac.fx.convert import from_torch, to_torch
from corsac.passes._writes import shared_sources

#: Runs a graph on a list of arguments, which it empties.
Run = Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True)
class InputSpec:
    """What a graph depends on of an input: all but its values."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool

    @classmethod
    def of(cls, tensor: torch.Tensor, device: torch.device) -> InputSpec:
        """The type of a tensor, on a device that may be another."""
        return cls(
            tuple(tensor.shape),
            tensor.stride(),
            tensor.dtype,
            device,
            tensor.requires_grad,
        )

    @classmethod
    def contiguous(
        cls, shape: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> InputSpec:
        """The type of a contiguous tensor without a gradient."""
        return cls.of(torch.empty(shape, dtype=dtype, device="meta"), device)

    def fake(self) -> torch.Tensor:
        """A tensor of this type, in a mode of fake tensors."""
        made = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.device)
        return made.requires_grad_(self.requires_grad)


class StepGraph:
    """The forward and the backward graph of a program, as a differentiable function of its inputs.

    AOTAutograd makes the graphs, of ATen operators with the source lines of the program.

    Args:
        program: the program, whose graph is only read.
        module: holds its weights, under their names.
        inputs: the types of its inputs.

    Attributes:
        forward: the forward graph.
        backward: the backward graph, None if no result has a gradient. Its results are the gradients of weights and
            inputs.
        gradients: the index of each weight's gradient in the results of the backward graph, by name.
    """

    def __init__(
        self, program: Program, module: torch.nn.Module, inputs: Sequence[InputSpec]
    ) -> None:
        self.forward: GraphModule | None = None
        self.backward: GraphModule | None = None
        #: Runs the backward graph; to be set before the first backward pass.
        self.run_backward: Run | None = None
        traced = _traced(program, module)
        names = (name for name, _ in (*traced.named_parameters(), *traced.named_buffers()))
        self.gradients = {name: at for at, name in enumerate(names)}
        self._count = len(self.gradients) + len(inputs)
        mode = FakeTensorMode(static_shapes=True)
        with tracing(TracingContext(mode)), _without_onednn():
            with mode:
                given = [own.fake() for own in inputs]
            self._run = aot_module_simplified(
                traced,
                given,
                self._forward_of,
                lambda *_: self._back(),
                self._partition,
                inference_compiler=self._forward_of,
            )

    def __call__(self, *inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        """The results of the program."""
        found: Sequence[torch.Tensor] = self._run(*inputs)
        return found

    def _partition(self, joint: Any, *args: Any, **options: Any) -> Any:
        there, back = default_partition(joint, *args, **options)
        self.backward = from_torch(back)
        count = len(self.backward.graph.output_node().args[0])
        if count != self._count:
            raise ValueError(
                f"expected {self._count} gradients, of weights and inputs, got {count}"
            )
        return there, back

    def _forward_of(self, module: torch.fx.GraphModule, inputs: Any) -> Run:
        del inputs
        _nothing_is_donated()
        self.forward = from_torch(module)
        return _taking_a_list(boxed(self.forward))

    def _back(self) -> Run:
        def run(arguments: list[Any]) -> Any:
            assert self.run_backward is not None
            return self.run_backward(arguments)

        _nothing_is_donated()
        return _taking_a_list(run)


@contextlib.contextmanager
def _without_onednn() -> Iterator[None]:
    """Let recurrent layers be traced as operators of ATen: that of oneDNN saves a workspace that need not exist."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _traced(program: Program, module: torch.nn.Module) -> torch.fx.GraphModule:
    """The program as a module of torch.fx that returns a tuple of tensors, with source lines as stack traces."""
    graph = Graph()
    copies: dict[Any, Any] = {}
    graph.graph_copy(program.graph, copies)
    sources = shared_sources(program.graph)
    results = []
    for own in program.results():
        result = copies[own]
        if any(source.op == "get_attr" for source in sources[own]):
            # AOTAutograd would return the weight itself, whose gradient the backward graph would not see.
            result = graph.call_function(torch.clone, (result,))
        results.append(result)
    graph.output(tuple(results))
    made = to_torch(GraphModule(module, graph))
    for node, own in zip(made.graph.nodes, graph.nodes, strict=True):
        if own.source is not None:
            node.stack_trace = str(own.source)
    return made
