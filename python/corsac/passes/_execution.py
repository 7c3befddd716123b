"""Runs of a graph module that can be compared."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

from corsac.fx import Interpreter, Node
from corsac.fx.graph_module import GraphModule


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a run and the state after it.

    Attributes:
        result: the returned value.
        inputs: the inputs, which may have been written to.
        state: the parameters and buffers that were written to, by name.
    """

    result: Any
    inputs: list[Any]
    state: dict[str, torch.Tensor]


class Execution:
    """Runs graph modules on copies of the same inputs, from the same random state, and restores
    parameters, buffers and random state afterwards."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._inputs = copy.deepcopy(list(inputs))
        self._random = torch.get_rng_state(), random.getstate()

    def run(self, gm: GraphModule) -> Run:
        """Run ``gm`` and return copies of its result, inputs and written state."""
        with self._restored(gm) as written:
            inputs = copy.deepcopy(self._inputs)
            result = detached(gm(*inputs))
            return Run(result, detached(inputs), written())

    def values(self, gm: GraphModule) -> dict[str, Any]:
        """The value of every node of ``gm`` in a run, by name."""
        with self._restored(gm):
            recorder = _Recorder(gm)
            recorder.run(*copy.deepcopy(self._inputs))
            return recorder.values

    @contextmanager
    def _restored(self, gm: GraphModule) -> Iterator[Callable[[], dict[str, torch.Tensor]]]:
        # Compared by value: a batch norm in training writes without raising the version counter.
        state = [*gm.named_parameters(), *gm.named_buffers()]
        saved = {name: (tensor, detached(tensor)) for name, tensor in state}

        def written() -> dict[str, torch.Tensor]:
            return {
                name: detached(tensor)
                for name, (tensor, before) in saved.items()
                if not torch.equal(tensor, before)
            }

        random_now = torch.get_rng_state(), random.getstate()
        torch.set_rng_state(self._random[0])
        random.setstate(self._random[1])
        try:
            with torch.no_grad():
                yield written
        finally:
            with torch.no_grad():
                for tensor, before in saved.values():
                    if not torch.equal(tensor, before):
                        tensor.copy_(before)
            torch.set_rng_state(random_now[0])
            random.setstate(random_now[1])


def detached(value: Any) -> Any:
    """``value`` with copies of its tensors, so that later writes do not show."""
    return tree_map(lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x, value)


class _Recorder(Interpreter):
    """Keeps the value of every node."""

    def __init__(self, gm: GraphModule) -> None:
        super().__init__(gm)
        self.values: dict[str, Any] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        try:
            self.values[n.name] = detached(result)
        except Exception:  # The value cannot be copied: it is not compared.
            self.values.pop(n.name, None)
        return result
