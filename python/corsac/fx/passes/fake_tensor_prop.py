"""Runs a program on fake tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, is_fake_tensor
from torch.fx.experimental.proxy_tensor import py_sym_types, snapshot_fake
from torch.utils._ordered_set import OrderedSet

from ..graph_module import GraphModule
from ..interpreter import Interpreter
from ..node import Node, map_aggregate
from .shape_prop import _note_unbacked

__all__ = ["FakeTensorProp"]


class FakeTensorProp(Interpreter):
    """Runs a graph module on fake tensors and stores each node's value as ``node.meta["val"]``.

    Fake tensors have shape, dtype, device, strides and aliasing, but no data.

    Args:
        module: the module to run.
        mode: the fake tensor mode; a new one by default.
    """

    def __init__(self, module: GraphModule, mode: FakeTensorMode | None = None) -> None:
        super().__init__(module)
        self._mode = FakeTensorMode() if mode is None else mode
        self._mode.epoch += 1
        self._mode.reset_nt_tensor_id_counter()
        self.seen_subgraphs: OrderedSet[str] = OrderedSet()

    def run_node(self, n: Node) -> Any:
        """Run a node and store its value. A subgraph that several nodes call is run once."""
        from torch.fx.experimental.symbolic_shapes import rebind_unbacked

        invokes = n.op == "call_function" and n.target is torch.ops.higher_order.invoke_subgraph
        if invokes and n.args[1] not in self.seen_subgraphs:
            return self._run_subgraph(n)
        result = super().run_node(n)
        shape_env = self._mode.shape_env
        rebind_unbacked(shape_env, n, result)
        value = map_aggregate(result, self._note)
        if value is not None:
            n.meta["val"] = value
            _note_unbacked(n, shape_env, result)
        return result

    def _note(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if not is_fake_tensor(value):
                value = self._mode.from_tensor(value, static_shapes=True)
            return snapshot_fake(value)
        return value if isinstance(value, (*py_sym_types, int, float, bool)) else None

    def _run_subgraph(self, n: Node) -> Any:
        subgraph, name, *operands = n.args
        if not isinstance(name, str):
            raise AssertionError(f"{n} names its subgraph by {name!r}, not a str")
        if not (isinstance(subgraph, Node) and subgraph.op == "get_attr"):
            raise AssertionError(f"{n} calls {subgraph!r}, which is no attribute")
        self.seen_subgraphs.add(name)
        for operand in operands:
            if not (isinstance(operand, Node) and "val" in operand.meta):
                raise AssertionError(f"the value of {operand!r}, which {n} takes, is not known")
        inner = FakeTensorProp(getattr(self.module, str(subgraph.target)), mode=self._mode)
        return inner.propagate(*(operand.meta["val"] for operand in operands))

    def propagate(self, *args: object) -> Any:
        """Run the module on fake tensors like ``args`` and return its result."""
        fake = [self._mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
        return self.propagate_dont_convert_inputs(*fake)

    def propagate_dont_convert_inputs(self, *args: object) -> Any:
        """Run the module on ``args``, which are fake tensors of the mode or not tensors."""
        devices = [(a, a.fake_device) for a in args if isinstance(a, FakeTensor)]
        with self._mode:
            try:
                return super().run(*args)
            finally:
                # Programs may move their inputs to another device in place.
                for fake, device in devices:
                    fake.fake_device = device
