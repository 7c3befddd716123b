"""Types of items of tuples and lists."""

from __future__ import annotations

import operator
import typing
from typing import Any

import torch

from .._packages import expect_ours
from ..graph import Graph


def annotate_getitem_nodes(graph: Graph) -> None:
    """Set ``node.type`` of items whose type follows from that of their tuple, list or named tuple.

    Raises:
        AssertionError: the index is beyond the types of the tuple, or a list has several types.
    """
    expect_ours(graph, "annotate_getitem_nodes")
    for node in graph.find_nodes(op="call_function", target=operator.getitem):
        sequence, index = node.args
        if sequence.type:
            item = _item_type(sequence.type, index)
            if item is not None:
                node.type = item


def _item_type(sequence: Any, index: Any) -> Any:
    """The type of item ``index`` of a ``sequence``; None if unknown."""
    parameters = typing.get_args(sequence)
    if typing.get_origin(sequence) is tuple:
        if len(parameters) == 2 and parameters[1] is ...:
            return parameters[0]
        if len(parameters) <= index:
            raise AssertionError(
                f"Index {index} out of range for parameterized_types (len={len(parameters)})"
            )
        return parameters[index]
    if typing.get_origin(sequence) is list:
        if len(parameters) != 1:
            raise AssertionError(f"Expected 1 parameterized type, got {len(parameters)}")
        return parameters[0]
    if sequence is torch.Tensor or not hasattr(sequence, "_fields"):
        return None
    return typing.cast("Any", sequence).__annotations__.get(sequence._fields[index])
