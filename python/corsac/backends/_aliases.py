"""Sharing of memory between the results of a graph, and with its inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves

from corsac.fx import GraphModule, Interpreter, Node
from corsac.lowering import LoweringError


class _Recorder(Interpreter):
    """Runs a graph on fake tensors, and keeps the memory of each node's result."""

    def __init__(self, module: GraphModule, mode: FakeTensorMode) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._mode = mode
        self.memory: dict[Node, set[int]] = {}
        # Addresses are unique as long as nothing is freed.
        self._held: list[Any] = []

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        result = torch.utils._pytree.tree_map_only(torch.Tensor, self._fake, result)
        self._held.append(result)
        self.memory[n] = set(_memory(result))
        return result

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if isinstance(tensor, FakeTensor) else self._mode.from_tensor(tensor)


def views_that_show(module: GraphModule, inputs: Sequence[Any]) -> set[str]:
    """The names of nodes that must return a view, since the caller could observe a copy.

    Raises:
        LoweringError: PyTorch cannot run the graph on fake tensors.
    """
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        # The fake tensors share memory as the inputs do.
        fakes = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in inputs]
        recorder = _Recorder(module, mode)
        try:
            recorder.run(*fakes)
        except Exception as error:
            said = next(iter(str(error).splitlines()), "")
            raise LoweringError(
                f"what of it shares memory is not known: {type(error).__name__}: {said}"
            ) from error
    memory = recorder.memory
    (output,) = module.graph.find_nodes(op="output")
    results = Counter(own for node in output.all_input_nodes for own in memory[node])
    given = {
        own
        for node in module.graph.nodes
        if node.op in ("placeholder", "get_attr")
        for own in memory[node]
    }
    shown = {own for own, count in results.items() if count > 1 or own in given}
    return {
        node.name
        for node in module.graph.nodes
        if node.op.startswith("call_")
        and memory[node] & shown
        and any(memory[node] & shown & memory[source] for source in node.all_input_nodes)
    }


def _memory(values: Any) -> list[int]:
    """The storages of the tensors in ``values``."""
    return [
        own.untyped_storage()._cdata
        for own in tree_leaves(values)
        if isinstance(own, torch.Tensor) and own.layout is torch.strided
    ]
