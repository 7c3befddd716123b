"""Checks that the parts of a plan are right for inputs of other sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from corsac.distributed._errors import ParallelError
from corsac.distributed._node_plan import NodePlan, Placement
from corsac.distributed._values import described
from corsac.distributed.collectives import part_of, pieces_for
from corsac.fx import Node


def check_sizes(nodes: Mapping[Node, NodePlan], values: Mapping[Node, Any], ranks: int) -> None:
    """Check that ranks have the parts that a plan says, where values have other sizes than those it was made for.

    Raises:
        ParallelError: they have not.
    """
    for node, planned in nodes.items():
        for source, placements in _tensors_of(node, planned):
            _check_parts(node, placements, values.get(source), ranks)
        _check_lengths(node, planned, values)
        _check_joined(node, planned, values)
        if planned.form == "view" and planned.split:
            _check_order(node, planned, values)


def _tensors_of(node: Node, planned: NodePlan) -> list[tuple[Node, list[Placement]]]:
    """The values that a call uses and makes, with their placements."""
    return [*planned.inputs.items(), (node, planned.output)]


def _check_parts(node: Node, placements: Sequence[Placement], value: Any, ranks: int) -> None:
    """Check that the dimensions along which a node cuts a value are those that the plan knows.

    Raises:
        ParallelError: one is not.
    """
    for own, placed in zip(_leaves(value), placements, strict=False):
        if isinstance(placed, tuple):
            try:
                pieces = pieces_for(own.shape[placed[0]], placed[1])
                for piece in pieces:
                    part_of(piece, ranks)
            except ValueError as error:
                raise ParallelError(f"{described(node)}: {error}") from error


def _check_lengths(node: Node, planned: NodePlan, values: Mapping[Node, Any]) -> None:
    """Check that dimensions that a call cuts, and that are equally long in the plan, are so: a slice may have been of
    all elements by chance.

    Raises:
        ParallelError: they are not.
    """
    if planned.form == "view":
        return
    lengths: dict[int, int] = {}
    for source, placements in _tensors_of(node, planned):
        tensors = _leaves(values.get(source))
        for own, placed in zip(tensors, placements, strict=False):
            if isinstance(placed, tuple):
                length = int(own.shape[placed[0]])
                if lengths.setdefault(sum(placed[1]), length) != length:
                    raise ParallelError(
                        f"{described(node)}: dimensions of {sum(placed[1])} in the plan are "
                        f"{lengths[sum(placed[1])]} and {length} here: make a plan with inputs of these sizes"
                    )


def _check_joined(node: Node, planned: NodePlan, values: Mapping[Node, Any]) -> None:
    """Check that what is joined along the dimension that is cut has the sizes of the plan: its pieces, which are those of
    all that is joined, say nothing about others.

    Raises:
        ParallelError: it has not.
    """
    given = [placed for placements in planned.inputs.values() for placed in placements]
    for own, placed in zip(_leaves(values.get(node)), planned.output, strict=False):
        if planned.form == "view" or not isinstance(placed, tuple) or len(placed[1]) == 1:
            continue
        is_new = all(not isinstance(one, tuple) or one[1] != placed[1] for one in given)
        if is_new and own.shape[placed[0]] != sum(placed[1]):
            raise ParallelError(
                f"{described(node)}: the pieces of a dimension of {sum(placed[1])} are joined here, and it has "
                f"{own.shape[placed[0]]}: make a plan with inputs of these sizes"
            )


def _check_order(node: Node, planned: NodePlan, values: Mapping[Node, Any]) -> None:
    """Check that a view takes the same elements of a part as of the whole: dimensions may have been equal by chance
    in the sizes that the plan was made for.

    Raises:
        ParallelError: it does not.
    """
    ((source, (given,)),) = planned.inputs.items()
    (made,) = planned.output
    if isinstance(given, tuple) and isinstance(made, tuple):
        orders = [
            _order(values[own].shape, placed) for own, placed in ((source, given), (node, made))
        ]
        if orders[0] != orders[1]:
            raise ParallelError(
                f"{described(node)}: from {list(values[source].shape)} to {list(values[node].shape)} parts are other "
                "elements than in the sizes of the plan: make a plan with inputs of these sizes"
            )


def _order(shape: Sequence[int], placed: tuple[int, list[int]]) -> tuple[int, list[int]]:
    """The pieces of all elements, in order, of which each is cut: how often they repeat, and those that do."""
    dim = placed[0]
    inner = math.prod(shape[dim + 1 :])
    pieces = [own * inner for own in pieces_for(shape[dim], placed[1])]
    count = len(pieces)
    period = next(
        own
        for own in range(1, count + 1)
        if count % own == 0 and pieces == pieces[:own] * (count // own)
    )
    return math.prod(shape[:dim]) * (count // period), pieces[:period]


def _leaves(value: Any) -> list[torch.Tensor]:
    """The tensors in a value."""
    return [own for own in tree_leaves(value) if isinstance(own, torch.Tensor)]


__all__ = ["check_sizes"]
