"""One matrix product for several."""

from __future__ import annotations

from corsac import _core
from corsac.fx import Graph
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget, current_budget
from corsac.passes._report import Report
from corsac.passes._target import RawSites, run


def merge_matmul(target: GraphModule | Graph, *, budget: Budget | None = None) -> Report:
    """Make one product of ``torch.matmul(x, w)``, ``torch.matmul(y, w)``, ... with one right-hand
    side: of the rows of all of them, taken apart again.

    The left-hand sides have to agree in all dimensions but the first, of two or more, and the
    right-hand side to have two dimensions or one, as ``node.meta["tensor_meta"]`` says, which
    :func:`corsac.analysis.propagate` writes and which has to hold for every call. Results are views of
    one tensor afterwards, and may differ in rounding.

    Args:
        target: what to change.
        budget: how many groups of products may be merged; see :class:`Budget`.

    The report lists every product; those that stay with the reason: no other has its right-hand side,
    one depends on another, something is written to in between or to a result, shapes are not known
    or do not fit.
    """

    def transform(graph: Graph) -> RawSites:
        return _core.merge_products(graph, budget=current_budget(budget))

    return run("matrix products", target, transform)
