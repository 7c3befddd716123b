"""Normalisation of calls: one of several equivalent forms."""

from __future__ import annotations

from corsac.fx import Graph
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget
from corsac.passes._registry import registered
from corsac.passes._report import Report
from corsac.passes._target import run_pass


@registered
def keyword_arguments(target: GraphModule | Graph, *, budget: Budget | None = None) -> Report:
    """Pass the arguments of PyTorch's functions by keyword: ``F.relu(x)`` becomes
    ``F.relu(input=x)``.

    A call stays if the overloads of its function name the arguments differently: then types would
    decide. :class:`corsac.fx.experimental.normalize.NormalizeArgs` uses PyTorch's signatures and the
    types of ``node.meta["type"]``, and adds defaults.

    Args:
        target: the module or graph to change.
        budget: largest number of calls to change; see :class:`Budget`.

    The report lists every call of a function of PyTorch that had arguments by position.
    """
    return run_pass("keyword arguments", target, budget=budget)


@registered
def functions_to_operators(target: GraphModule | Graph, *, budget: Budget | None = None) -> Report:
    """Replace functions of ``torch`` by the operators of Python: ``torch.add(x, y)`` becomes ``x + y``.

    Calls with further arguments (``alpha=2``, ``out=``, ``rounding_mode=``) stay.

    Args:
        target: the module or graph to change.
        budget: largest number of calls to change; see :class:`Budget`.

    The report lists every call of such a function.
    """
    return run_pass("operators", target, budget=budget)
