"""Inversion: the program that computes the input from the result."""

from __future__ import annotations

from corsac import _core
from corsac.fx.graph_module import GraphModule
from corsac.passes._report import Report, Site
from corsac.passes._target import graph_of


class NotInvertible(ValueError):
    """A program that has no inverse, or no known one.

    Attributes:
        node: the name of the node that cannot be inverted.
        report: every step, with the reason if it cannot be undone.
    """

    def __init__(self, node: str, reason: str, report: Report) -> None:
        super().__init__(f"the program cannot be inverted at {node}: {reason}")
        self.node, self.report = node, report


def invert(gm: GraphModule) -> GraphModule:
    """The module that computes the input of ``gm`` from its result.

    ``gm`` has one input and one result, and every step between them is invertible: sums, differences,
    products and quotients with values that do not depend on the input, ``exp``, ``log``, ``tanh``,
    ``sigmoid``, ``sqrt`` and others, transpositions, ``permute`` and ``flip``. Exact up to rounding
    where the functions are; a factor of zero leads to a division by zero. Nodes of the inverse have
    the source lines and metadata of the nodes they undo. Weights are shared with ``gm``. The result
    has a :class:`Report` of the steps that were undone as ``meta["report"]``.

    Raises:
        NotInvertible: a step has no inverse, the input is used twice on the way, a step writes or uses
            random numbers, or there is not exactly one input and one result. Its ``report`` lists
            every step, with the reason if it cannot be undone.

    Reference: J. Reed et al., "torch.fx: Practical Program Capture and Transformation for Deep
    Learning in Python", MLSys 2022, shows the idea.
    """
    graph = graph_of(gm)
    inverse, obstacle, steps = _core.invert(graph)
    nodes = 0 if inverse is None else len(inverse.nodes)
    report = Report("inversion", tuple(Site(*step) for step in steps), len(graph.nodes), nodes)
    if obstacle is not None:
        raise NotInvertible(*obstacle, report)
    made = GraphModule(gm, inverse)
    made.meta["report"] = report
    made.graph.lint()
    return made


__all__ = ["NotInvertible", "invert"]
