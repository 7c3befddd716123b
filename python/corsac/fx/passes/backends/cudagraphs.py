"""Partitions of a program that can run as CUDA graphs."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ...graph_module import GraphModule
from ...node import Node
from ..fake_tensor_prop import FakeTensorProp
from ..infra.partitioner import CapabilityBasedPartitioner
from ..operator_support import OperatorSupport
from ..tools_common import CALLABLE_NODE_OPS

__all__ = ["CudaGraphsSupport", "partition_cudagraphs"]


class CudaGraphsSupport(OperatorSupport):
    """Supports calls whose inputs and results are all on a CUDA device, according to metadata."""

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        """Whether ``node`` can be part of a CUDA graph."""
        if node.op not in CALLABLE_NODE_OPS:
            return False
        # It synchronises with the device.
        if node.target is torch.ops.aten.embedding_dense_backward.default:
            return False
        if node.target is operator.getitem:
            return True
        return all(_is_on_cuda(value.meta) for value in (*node.all_input_nodes, node))


def _is_on_cuda(meta: Mapping[str, Any]) -> bool:
    """Whether all tensors of a value are on CUDA devices."""
    value = meta["val"] if "val" in meta else meta["fake_result"]
    tensors = (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))
    return all(tensor.device.type == "cuda" for tensor in tensors)


def partition_cudagraphs(gm: GraphModule, inputs: Sequence[object]) -> GraphModule:
    """Move nodes that can run as CUDA graphs into submodules.

    Args:
        gm: a module that calls operators; it is run on fake tensors, and changed.
        inputs: example inputs.
    """
    FakeTensorProp(gm).propagate(*inputs)
    partitioner = CapabilityBasedPartitioner(
        gm, CudaGraphsSupport(), allows_single_node_partition=True
    )
    return partitioner.fuse_partitions(partitioner.propose_partitions())
