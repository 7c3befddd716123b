"""Finds shapes and types by running the program."""

from __future__ import annotations

import traceback
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode

# Descriptions of tensors do not depend on graphs. They are PyTorch's own, so that they are equal to those of
# its passes, and are pickled under the same name.
from torch.fx.passes.shape_prop import TensorMetadata, _extract_tensor_metadata

from ..graph_module import GraphModule
from ..interpreter import Interpreter
from ..node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class ShapeProp(Interpreter):
    """Runs a graph module node by node and records the type of each node's value.

    ``node.meta["tensor_meta"]`` becomes a :class:`TensorMetadata`, or a structure with one for each
    tensor in the value; ``node.meta["type"]`` the type of the value.

    Example::

        ShapeProp(gm).propagate(torch.randn(50, 8))
        for node in gm.graph.nodes:
            print(node, node.meta["tensor_meta"].shape)

    Args:
        gm: the module to run.
        fake_mode: runs on fake tensors of this mode instead of the given tensors. By default the active mode,
            if there is one.
    """

    def __init__(self, gm: GraphModule, fake_mode: Any = None) -> None:
        super().__init__(gm)
        self.fake_mode = detect_fake_mode() if fake_mode is None else fake_mode
        self.fake_module: Any = None
        if self.fake_mode is not None:
            from torch._dynamo.utils import deepcopy_to_fake_tensor

            self.fake_module = deepcopy_to_fake_tensor(self.module, self.fake_mode)
        self.real_module = self.module

    def run_node(self, n: Node) -> Any:
        """Run a node and record the type of its value.

        Raises:
            RuntimeError: the node failed; the message contains the node and its metadata, and the cause is
                attached.
        """
        try:
            result = self._run_on_fake_tensors(n) if self.fake_mode else super().run_node(n)
        except Exception as error:
            traceback.print_exc()
            raise RuntimeError(
                f"ShapeProp error for: node={n.format_node()} with meta={n.meta}"
            ) from error
        has_tensor = False

        def describe(value: Any) -> Any:
            nonlocal has_tensor
            if not isinstance(value, torch.Tensor):
                return value
            has_tensor = True
            return _extract_tensor_metadata(value)

        described = map_aggregate(result, describe)
        if has_tensor:
            n.meta["tensor_meta"] = described
        if self.fake_mode:
            _note_unbacked(n, self.fake_mode.shape_env, result)
        n.meta["type"] = type(result)
        return result

    def _run_on_fake_tensors(self, n: Node) -> Any:
        from torch.fx.experimental.symbolic_shapes import rebind_unbacked

        self.module = self.fake_module
        try:
            with self.fake_mode, enable_python_dispatcher():
                result = super().run_node(n)
                rebind_unbacked(self.fake_mode.shape_env, n, result)
        finally:
            self.module = self.real_module
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the module on ``args`` and return its result."""
        if self.fake_mode is not None:
            args = tuple(
                self.fake_mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args
            )
        return super().run(*args)


def _note_unbacked(node: Node, shape_env: Any, result: Any) -> None:
    """Record where in the value new symbols occur that no input has."""
    from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings

    if shape_env and (bindings := compute_unbacked_bindings(shape_env, result)):
        node.meta["unbacked_bindings"] = bindings
