"""Targets of passes: a graph, or a module that runs one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from corsac import _core
from corsac.fx import Graph
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget, current_budget
from corsac.passes._report import Report, Site


def graph_of(target: GraphModule | Graph) -> Graph:
    """The graph that ``target`` is, or runs."""
    if isinstance(target, GraphModule):
        # The property `graph` generates code first, if that is deferred.
        graph = vars(target).get("_graph")
    else:
        graph = target if isinstance(target, _core.Graph) else getattr(target, "graph", None)
    if isinstance(graph, _core.Graph):
        return graph
    raise TypeError(
        f"expected a corsac.fx.Graph or GraphModule, got {type(target).__module__}."
        f"{type(target).__qualname__}: trace it with corsac.fx.symbolic_trace, or convert it "
        "with corsac.fx.from_torch"
    )


def run_pass(
    name: str,
    target: GraphModule | Graph,
    *,
    budget: Budget | None = None,
    drop: bool = False,
    **options: Any,
) -> Report:
    """Run the native pass ``name`` and report; recompile a module. With ``drop``, submodules whose calls were
    changed are deleted where the graph no longer names them."""
    graph = graph_of(target)
    before = len(graph.nodes)
    raw = _core.run_pass(name, graph, budget=current_budget(budget), **options)
    report = Report(name, tuple(Site(*site) for site in raw), before, len(graph.nodes))
    if report.changed and isinstance(target, GraphModule):
        target._refresh()
        if drop:
            drop_unused(target, [site.target for site in report.applied])
    return report


def drop_unused(gm: GraphModule, paths: Iterable[str]) -> None:
    """Delete those of the submodules and attributes ``paths`` that the graph no longer names."""
    used: set[str] = set()
    for op in ("call_module", "get_attr"):
        for node in graph_of(gm).find_nodes(op=op):
            # With the modules that contain it.
            path = node.target
            while path and path not in used:
                used.add(path)
                path = path.rpartition(".")[0]
    for path in set(paths) - used:
        # Attributes of submodules belong to the model, which may share them.
        if not gm.delete_submodule(path) and (path in gm._parameters or path in gm._buffers):
            delattr(gm, path)
