"""Inversion: the program that computes the input from the result."""

from __future__ import annotations

from corsac import _core
from corsac.fx.graph_module import GraphModule


class NotInvertible(ValueError):
    """A program that has no inverse, or none that is known.

    Attributes:
        node: the name of the node that is in the way.
    """

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"the program cannot be inverted at {node}: {reason}")
        self.node = node


def invert(gm: GraphModule) -> GraphModule:
    """The module that computes the input of ``gm`` from its result.

    ``gm`` has one input and one result, and every step between them is invertible: sums, differences,
    products and quotients with what does not depend on the input, ``exp``, ``log``, ``tanh``,
    ``sigmoid``, ``sqrt`` and others, transpositions, ``permute`` and ``flip``. Exact up to rounding
    where the functions are; a factor of zero gives what dividing by zero gives. Nodes of the inverse
    have the source lines and metadata of what they undo. Weights are shared with ``gm``.

    Raises:
        NotInvertible: a step has no inverse, the input is used twice on the way, something is written
            to or drawn at random, or there is not one input and one result.

    Reference: J. Reed et al., "torch.fx: Practical Program Capture and Transformation for Deep
    Learning in Python", MLSys 2022, shows the idea.
    """
    inverse, obstacle = _core.invert(gm.graph)
    if obstacle is not None:
        raise NotInvertible(*obstacle)
    made = GraphModule(gm, inverse)
    made.graph.lint()
    return made


__all__ = ["NotInvertible", "invert"]
