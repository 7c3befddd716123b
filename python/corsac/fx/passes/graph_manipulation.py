"""Sizes of values in bytes, and replacement of targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ..graph_module import GraphModule
from ..node import Node, Target, map_arg  # noqa: F401
from .shape_prop import ShapeProp, TensorMetadata

__all__ = [
    "get_size_of_all_nodes",
    "get_size_of_node",
    "get_tensor_meta",
    "replace_target_nodes_with",
    "size_bytes",
]


def replace_target_nodes_with(
    fx_module: GraphModule,
    old_op: str,
    old_target: Target,
    new_op: str,
    new_target: Target,
) -> None:
    """Replace one opcode and target by another in all nodes, with the same arguments.

    Names, metadata and order are kept; the module is recompiled.
    """
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            node.op = new_op
            node.target = new_target
    fx_module.recompile()


class size_bytes(NamedTuple):
    """Sizes of a node in bytes: of its value, and of its value and the parameters of its module."""

    output_size: int
    total_size: int


def get_size_of_all_nodes(fx_module: GraphModule, args: list[torch.Tensor] | None = None) -> None:
    """Set ``node.size_bytes`` of all nodes but the output.

    Args:
        fx_module: the module.
        args: inputs to run it on, unless :class:`.shape_prop.ShapeProp` has been run.
    """
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op == "output":
            break
        node.size_bytes = get_size_of_node(fx_module, node)


def get_tensor_meta(node: Node) -> TensorMetadata:
    """The metadata that :class:`.shape_prop.ShapeProp` stored for the tensor of ``node``.

    Raises:
        RuntimeError: there is none.
    """
    described = node.meta.get("tensor_meta")
    if not described:
        raise RuntimeError(
            f"Node {node} has no tensor metadata associated with it! Check that shape propagation "
            "has run."
        )
    return described


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """The size of the tensors that ``node`` computes, without and with its module's parameters.

    Parameters are counted in the dtype of the first tensor of the value.

    Raises:
        RuntimeError: :class:`.shape_prop.ShapeProp` stored no tensor metadata.
    """
    described = get_tensor_meta(node)
    tensors = list(_tensors_in(described))
    output_size = sum(tensor.shape.numel() * tensor.dtype.itemsize for tensor in tensors)
    parameters = 0
    if node.op == "call_module":
        module = fx_module.get_submodule(str(node.target))
        parameters = sum(parameter.numel() for parameter in module.parameters())
    itemsize = tensors[0].dtype.itemsize if tensors else 0
    return size_bytes(output_size, output_size + itemsize * parameters)


def _tensors_in(described: Any) -> Iterator[TensorMetadata]:
    """The metadata of each tensor in a value."""
    if isinstance(described, TensorMetadata):
        yield described
    elif isinstance(described, list | tuple | dict):
        for part in described.values() if isinstance(described, dict) else described:
            yield from _tensors_in(part)
