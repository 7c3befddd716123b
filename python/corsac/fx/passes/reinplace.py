"""Functional graphs computed in place, under the name of ``torch.fx.passes.reinplace``."""

from __future__ import annotations

from typing import Any

from corsac import _core
from corsac.analysis import propagate
from corsac.fx._packages import expect_ours
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node

__all__ = ["reinplace"]


def reinplace(gm: GraphModule, *sample_args: Any) -> GraphModule:
    """Let operators of a functional graph overwrite inputs that are not used afterwards, and copy into views
    where parts of tensors are replaced. ``gm`` is changed and returned, for inference only from then on.

    :func:`corsac.passes.reinplace` is the same with a report, a budget and gradients.

    Args:
        gm: a graph as from ``make_fx(functionalize(f))``, or any other.
        sample_args: arguments of the program, from which types are found.
    """
    expect_ours(gm, "reinplace")
    propagate(gm, sample_args)
    sites = _core.run_pass("in place", gm.graph, gradients=False)
    changed = {name for name, _, _, reason in sites if reason is None}
    for node in gm.graph.nodes:
        # The result is the input, and torch.fx returns it as such.
        if node.name in changed and isinstance(node.args[0], Node):
            node.replace_all_uses_with(node.args[0])
    gm.recompile()
    return gm
