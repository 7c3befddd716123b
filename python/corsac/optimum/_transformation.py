"""Base classes of transformations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from corsac.fx._packages import expect_ours
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node
from corsac.passes import Budget, Report, Site
from corsac.passes._budget import spending

#: Attributes of a transformation that do not affect its behaviour.
_UNSIGNED = ("_report",)


class Transformation(ABC):
    """A transformation of graph modules. Subclasses define :meth:`transform`; users call the object.

    Attributes:
        preserves_computation: whether results stay the same, up to rounding.
    """

    preserves_computation: bool = False
    _report: Report | None = None

    @abstractmethod
    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Change ``graph_module``, or make another one, and return it."""

    def __call__(
        self,
        graph_module: GraphModule,
        lint_and_recompile: bool = True,
        *,
        budget: Budget | None = None,
    ) -> GraphModule:
        """Transform a module.

        Args:
            graph_module: the module. Most transformations change it in place.
            lint_and_recompile: whether to check the graph and regenerate its code afterwards; False if
                another transformation follows.
            budget: the number of changes allowed; by default that of the enclosing block
                (:func:`corsac.passes.rewrite_budget`).
        """
        expect_ours(graph_module, type(self).__name__)
        with spending(budget):
            return _finished(self.transform(graph_module), lint_and_recompile)

    @property
    def report(self) -> Report | None:
        """Report of the last call, with reasons where nothing was done; None before the first call, and for
        transformations without a report."""
        return self._report

    @property
    def signature(self) -> int:
        """The mark that this transformation leaves on nodes: the same for objects of one class with the same
        attributes, in one process."""
        attributes = {k: v for k, v in vars(self).items() if k not in _UNSIGNED}
        return hash((type(self), *((k, hash(attributes[k])) for k in sorted(attributes))))

    def mark_as_transformed(self, node: Node) -> None:
        """Record that this transformation changed or made ``node``."""
        node.transformations = {*getattr(node, "transformations", ()), self.signature}

    def transformed(self, node: Node) -> bool:
        """Whether this transformation changed or made ``node``."""
        return self.signature in getattr(node, "transformations", ())

    def get_transformed_nodes(self, graph_module: GraphModule) -> list[Node]:
        """The nodes that this transformation changed or made, in order."""
        return [node for node in graph_module.graph.nodes if self.transformed(node)]


class ReversibleTransformation(Transformation):
    """A transformation that can be undone. Subclasses define :meth:`transform` and :meth:`reverse`."""

    @abstractmethod
    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Undo :meth:`transform`, and return the module."""

    def __call__(
        self,
        graph_module: GraphModule,
        lint_and_recompile: bool = True,
        reverse: bool = False,
        *,
        budget: Budget | None = None,
    ) -> GraphModule:
        """Transform a module, or undo the transformation.

        Args:
            graph_module: the module. Most transformations change it in place.
            lint_and_recompile: whether to check the graph and regenerate its code afterwards; False if
                another transformation follows.
            reverse: whether to undo.
            budget: the number of changes allowed; by default that of the enclosing block
                (:func:`corsac.passes.rewrite_budget`). Undoing uses none of it.
        """
        expect_ours(graph_module, type(self).__name__)
        change = self.reverse if reverse else self.transform
        with spending(budget):
            return _finished(change(graph_module), lint_and_recompile)

    def mark_as_restored(self, node: Node) -> None:
        """Remove this transformation's mark from ``node``.

        Raises:
            ValueError: the node has no such mark.
        """
        if not self.transformed(node):
            raise ValueError("The node was not transformed by this transformation.")
        node.transformations = node.transformations - {self.signature}


def _finished(graph_module: GraphModule, lint_and_recompile: bool) -> GraphModule:
    if lint_and_recompile:
        graph_module.graph.lint()
        graph_module.recompile()
    return graph_module


def report_of(name: str, sites: list[Any], graph_module: GraphModule, before: int) -> Report:
    """A report from raw sites; ``before`` is the number of nodes before."""
    found = tuple(Site(*site) for site in sites)
    return Report(name, found, before, len(graph_module.graph.nodes))


def remember(node: Node, transformation: Transformation, record: Any) -> None:
    """Store the data to undo a transformation on ``node``, and mark it."""
    records = {**getattr(node, "_undo", {}), transformation.signature: record}
    node._undo = records
    transformation.mark_as_transformed(node)


def recall(node: Node, transformation: ReversibleTransformation) -> Any:
    """The data that :func:`remember` stored; the data and the mark are removed."""
    records = dict(node._undo)
    record = records.pop(transformation.signature)
    node._undo = records
    transformation.mark_as_restored(node)
    return record
