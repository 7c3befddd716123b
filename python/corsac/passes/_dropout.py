"""Removal of dropout."""

from __future__ import annotations

from corsac.fx import Graph
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget
from corsac.passes._registry import registered
from corsac.passes._report import Report
from corsac.passes._target import run_pass


@registered
def remove_dropout(
    target: GraphModule | Graph, *, in_training: bool = False, budget: Budget | None = None
) -> Report:
    """Remove dropouts that are the identity.

    These are the modules ``Dropout``, ``Dropout1d`` to ``3d``, ``AlphaDropout`` and
    ``FeatureAlphaDropout`` in evaluation mode, and their functions called with
    ``training=False``.

    Args:
        target: the module or graph to change.
        in_training: whether modules in training mode are removed too. The program then computes what
            it computes in evaluation mode.
        budget: largest number of dropouts to remove; see :class:`Budget`.

    The report lists every dropout, with the reason if it stays.
    """
    return run_pass("dropout", target, budget=budget, drop=True, in_training=in_training)
