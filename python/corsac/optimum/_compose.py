"""Composes transformations."""

from __future__ import annotations

from collections.abc import Sequence

from corsac.fx.graph_module import GraphModule
from corsac.optimum._copying import DeepCopy
from corsac.optimum._transformation import ReversibleTransformation, Transformation
from corsac.passes import Report


def compose(*args: Transformation, inplace: bool = True) -> Transformation:
    """Compose ``args`` into one transformation that applies them in order.

    It is reversible if all of them are, and is undone from the last one to the first.

    Args:
        args: the transformations, at least one.
        inplace: whether the given module is changed, rather than a copy.

    Raises:
        TypeError: there are no transformations.
    """
    if not args:
        raise TypeError("compose() needs at least one transformation")
    if all(isinstance(t, ReversibleTransformation) for t in args):
        return _ReversibleComposition(args, inplace)
    return _Composition(args, inplace)


class _Composition(Transformation):
    def __init__(self, transformations: Sequence[Transformation], inplace: bool) -> None:
        self._transformations, self._inplace = tuple(transformations), inplace
        self.preserves_computation = all(t.preserves_computation for t in transformations)

    @property
    def signature(self) -> int:
        signatures = (t.signature for t in self._transformations)
        return hash((type(self), self._inplace, *signatures))

    @property
    def report(self) -> Report | None:
        """The reports of all transformations, in order."""
        reports = [t.report for t in self._transformations if t.report is not None]
        if not reports:
            return None
        names = ", ".join(report.name for report in reports)
        sites = tuple(site for report in reports for site in report.sites)
        return Report(names, sites, reports[0].nodes_before, reports[-1].nodes_after)

    def transform(self, graph_module: GraphModule) -> GraphModule:
        if not self._inplace:
            graph_module = DeepCopy().transform(graph_module)
        for transformation in self._transformations:
            graph_module = transformation(graph_module, lint_and_recompile=False)
        return graph_module


class _ReversibleComposition(_Composition, ReversibleTransformation):
    def reverse(self, graph_module: GraphModule) -> GraphModule:
        if not self._inplace:
            graph_module = DeepCopy().reverse(graph_module)
        for transformation in reversed(self._transformations):
            graph_module = transformation(graph_module, lint_and_recompile=False, reverse=True)
        return graph_module
