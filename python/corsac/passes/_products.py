"""Merging of matrix products with the same right-hand side."""

from __future__ import annotations

from corsac.fx import Graph
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget
from corsac.passes._registry import registered
from corsac.passes._report import Report
from corsac.passes._target import run_pass


@registered
def merge_matmul(target: GraphModule | Graph, *, budget: Budget | None = None) -> Report:
    """Merge ``torch.matmul(x, w)``, ``torch.matmul(y, w)``, ... with one right-hand side into one
    product of the concatenated rows, whose result is split again.

    The left-hand sides must have two or more dimensions and agree in all but the first; the
    right-hand side must have one or two. Shapes are those of ``node.meta["tensor_meta"]``, which
    :func:`corsac.analysis.propagate` writes and which has to hold for every call. Results are views of
    one tensor afterwards, and may differ in rounding.

    Args:
        target: the module or graph to change.
        budget: largest number of groups of products to merge; see :class:`Budget`.

    The report lists every product, with the reason if it stays: no other has its right-hand side, one
    depends on another, an operand or a result is written to, shapes are unknown or do not fit.
    """
    return run_pass("matrix products", target, budget=budget)
