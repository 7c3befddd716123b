"""How the nodes of a graph are run by several ranks."""

from __future__ import annotations

from dataclasses import dataclass

from corsac.fx import Node

#: None for a whole tensor, ``"sum"`` for one of which each rank has a summand, or a dimension and the sizes of pieces.
Placement = None | str | tuple[int, list[int]]


@dataclass(slots=True)
class NodePlan:
    """How a node is run.

    Attributes:
        inputs: the placements of the values that it uses.
        output: the placements of the tensors that it makes.
        replicated: whether its result is made whole before it is used.
        split: whether ranks compute parts, so that the gradients of whole values are summands.
        form: ``"plain"``, or what else is done: ``"mean"``, ``"lookup"``, ``"classes"``, ``"sizes"``; ``"view"`` for one that keeps
            the order of elements.
        sizes: its arguments that are sizes of parts: position or name, and the path in it.
        has_summands: whether the gradients of its whole result are summands, which are summed for what it is a view of.
    """

    inputs: dict[Node, list[Placement]]
    output: list[Placement]
    replicated: bool
    split: bool
    form: str
    sizes: list[tuple[int | str, list[int]]]
    has_summands: bool = False


__all__ = ["NodePlan", "Placement"]
