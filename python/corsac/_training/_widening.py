"""Operators of 16 bits for which PyTorch has no fast kernels on this processor, computed in float32."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch.utils._pytree import tree_map_only

from corsac.fx import Graph, Node
from corsac.fx.node import map_aggregate, map_arg

_aten = torch.ops.aten
#: Operators that the engine leaves to PyTorch. Without oneDNN's kernels they take about a hundred times as long as in float32.
_PRODUCTS = frozenset(
    [
        _aten.convolution_backward.default,
        _aten._scaled_dot_product_flash_attention_for_cpu.default,
        _aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
    ]
)


def _is_slow(dtype: torch.dtype | None) -> bool:
    """Whether products of this type have no kernels of oneDNN here."""
    if dtype is torch.bfloat16:
        return not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype is torch.float16 and not torch.ops.mkldnn._is_mkldnn_fp16_supported()


def widen(graph: Graph) -> bool:
    """Compute the operators of ``graph`` in float32 that are slow in 16 bits, and round their results.

    Operands are converted before, results after, which keep the strides that they had. Returns whether there are any.
    """
    slow = [
        node
        for node in graph.nodes
        if node.target in _PRODUCTS and any(_is_slow(_dtype(own)) for own in node.all_input_nodes)
    ]
    for node in slow:
        _widen(graph, node)
    return bool(slow)


def _widen(graph: Graph, node: Node) -> None:
    narrow = [own for own in node.all_input_nodes if _is_slow(_dtype(own))]
    with graph.inserting_before(node):
        wide = {own: _converted(graph, own, torch.float32) for own in narrow}
    args, kwargs = map_arg((node.args, node.kwargs), lambda own: wide.get(own, own))
    node.args, node.kwargs = args, kwargs
    # The strides of results may depend on their type.
    values = map_aggregate((args, kwargs), _value)
    before = node.meta["val"]
    node.meta["val"] = tree_map_only(
        torch.Tensor, torch.Tensor.detach, node.target(*values[0], **values[1])
    )
    for item in list(node.users):
        assert item.target is operator.getitem
        own = before[item.args[1]]
        single = item.meta["val"] = node.meta["val"][item.args[1]]
        if single.dtype == own.dtype:
            continue
        kept = single.stride() == own.stride()
        layout = torch.preserve_format if kept else suggest_memory_format(own)
        with graph.inserting_after(item):
            rounded = _converted(graph, item, own.dtype, memory_format=layout)
        item.replace_all_uses_with(rounded, lambda user, rounded=rounded: user is not rounded)


def _converted(graph: Graph, own: Node, dtype: torch.dtype, **layout: torch.memory_format) -> Node:
    options = {"dtype": dtype, **layout}
    made = graph.call_function(_aten._to_copy.default, (own,), options)
    made.meta["val"] = _aten._to_copy.default(own.meta["val"], **options)
    return made


def _value(own: Any) -> Any:
    return own.meta["val"] if isinstance(own, Node) else own


def _dtype(node: Node) -> torch.dtype | None:
    return getattr(node.meta.get("val"), "dtype", None)


__all__ = ["widen"]
