"""Runs single nodes on meta tensors where there is no rule for them."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.passes.shape_prop import TensorMetadata

from corsac.fx import Node


class NotKnown(Exception):
    """An input of the node is not known."""


class MetaRun:
    """Finds the types of results by running nodes on meta tensors.

    Values without a type in the rules are kept as they are, for the nodes that use them.
    """

    def __init__(self, root: torch.nn.Module | None) -> None:
        self._root = root
        self._values: dict[Node, Any] = {}
        #: Reasons for failures, by name of the node.
        self.failures: dict[str, str] = {}

    def __call__(self, node: Node, known: dict[Node, Any]) -> tuple[Any] | None:
        """The result of ``node`` (in a tuple) for inputs ``known``; None if it fails."""
        try:
            args, kwargs = torch.utils._pytree.tree_map_only(
                Node, lambda n: self._input(n, known), (tuple(node.args), dict(node.kwargs))
            )
            # Calls without a tensor run for real, and may use random numbers: the generator is restored.
            with torch.random.fork_rng(devices=[]):
                result = self._run(node, args, kwargs)
        except Exception as error:  # the node stays unknown, whatever the error
            self.failures[node.name] = f"{type(error).__name__}: {error}"
            return None
        self._values[node] = result
        return (result,)

    def _input(self, node: Node, known: dict[Node, Any]) -> Any:
        if node in self._values:
            return self._values[node]
        if node not in known:
            raise NotKnown(f"the value of {node.name} is not known")
        return _on_meta(known[node])

    def _run(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if node.op == "call_function":
            return node.target(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        if self._root is None:
            raise NotKnown("the graph has no module")
        module = self._root.get_submodule(node.target)
        state = {
            name: tensor.detach().to("meta")
            for name, tensor in (*module.named_parameters(), *module.named_buffers())
        }
        return torch.func.functional_call(module, state, args, kwargs)


def _on_meta(value: Any) -> Any:
    """``value`` with a meta tensor in place of each tensor's metadata."""
    if isinstance(value, TensorMetadata):
        if any(not isinstance(size, int) for size in value.shape):
            raise NotKnown("sizes that depend on symbols")
        if value.stride is None:
            tensor = torch.empty(value.shape, dtype=value.dtype, device="meta")
        else:
            tensor = torch.empty_strided(
                value.shape, value.stride, dtype=value.dtype, device="meta"
            )
        return tensor.requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: _on_meta(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_on_meta(item) for item in value)
    return value
