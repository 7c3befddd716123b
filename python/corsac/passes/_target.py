"""Targets of passes: a graph, or a module that runs one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from corsac import _core
from corsac.fx import Graph
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget, current_budget
from corsac.passes._report import Report, Site

RawSites = list[tuple[str, str, str | None, str | None]]


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
    name: str, target: GraphModule | Graph, *, budget: Budget | None = None, **options: Any
) -> Report:
    """Run the native pass ``name`` and report; recompile a module."""
    budget = current_budget(budget)
    return run(name, target, lambda graph: _core.run_pass(name, graph, budget=budget, **options))


def run(name: str, target: GraphModule | Graph, transform: Callable[[Any], RawSites]) -> Report:
    """Apply ``transform`` to the graph of ``target`` and report; recompile a module."""
    graph = graph_of(target)
    before = len(graph.nodes)
    sites = tuple(Site(*site) for site in transform(graph))
    report = Report(name, sites, before, len(graph.nodes))
    if report.changed and isinstance(target, GraphModule):
        target._refresh()
    return report
