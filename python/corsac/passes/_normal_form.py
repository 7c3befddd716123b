"""Calls in one of several forms that mean the same."""

from __future__ import annotations

from corsac import _core
from corsac.fx import Graph
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget, current_budget
from corsac.passes._report import Report
from corsac.passes._target import RawSites, run


def keyword_arguments(target: GraphModule | Graph, *, budget: Budget | None = None) -> Report:
    """Give the arguments of PyTorch's functions by keyword: ``F.relu(x)`` becomes
    ``F.relu(input=x)``.

    Where the overloads of a function call its arguments differently, the types decide, and the call
    stays. :class:`corsac.fx.experimental.normalize.NormalizeArgs` asks PyTorch for its signatures,
    knows types from ``node.meta["type"]``, and adds defaults.

    Args:
        target: what to change.
        budget: how many calls may be changed; see :class:`Budget`.

    The report lists every call of a function of PyTorch that had arguments by position.
    """

    def transform(graph: Graph) -> RawSites:
        return _core.keyword_arguments(graph, budget=current_budget(budget))

    return run("keyword arguments", target, transform)


def functions_to_operators(target: GraphModule | Graph, *, budget: Budget | None = None) -> Report:
    """Write functions of ``torch`` that Python has an operator for as that operator:
    ``torch.add(x, y)`` becomes ``x + y``.

    Calls with further arguments (``alpha=2``, ``out=``, ``rounding_mode=``) stay.

    Args:
        target: what to change.
        budget: how many calls may be changed; see :class:`Budget`.

    The report lists every call of such a function.
    """

    def transform(graph: Graph) -> RawSites:
        return _core.functions_to_operators(graph, budget=current_budget(budget))

    return run("operators", target, transform)
