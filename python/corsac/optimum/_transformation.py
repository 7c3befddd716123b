"""What a transformation is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from corsac.fx._packages import expect_ours
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node
from corsac.passes import Budget, Report, Site
from corsac.passes._budget import spending

#: Attributes of a transformation that say nothing about what it does.
_UNSIGNED = ("_report",)


class Transformation(ABC):
    """A change of graph modules. Subclasses have :meth:`transform`; users call the object.

    Attributes:
        preserves_computation: whether a module computes the same before and after, up to rounding.
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
            graph_module: what to transform. Most transformations change it in place.
            lint_and_recompile: whether to check the graph and write its code afterwards; off where
                another transformation follows.
            budget: how many changes may be made; by default that of the block
                (:func:`corsac.passes.rewrite_budget`).
        """
        expect_ours(graph_module, type(self).__name__)
        with spending(budget):
            return _finished(self.transform(graph_module), lint_and_recompile)

    @property
    def report(self) -> Report | None:
        """What the last call did, and where it did nothing, why; None before the first call, and
        where a transformation has nothing to report."""
        return self._report

    @property
    def signature(self) -> int:
        """What this transformation marks nodes with: the same for objects of one class with the
        same attributes, in one process."""
        attributes = {k: v for k, v in vars(self).items() if k not in _UNSIGNED}
        return hash((type(self), *((k, hash(attributes[k])) for k in sorted(attributes))))

    def mark_as_transformed(self, node: Node) -> None:
        """Remember that this transformation changed or made ``node``."""
        node.transformations = {*getattr(node, "transformations", ()), self.signature}

    def transformed(self, node: Node) -> bool:
        """Whether this transformation changed or made ``node``."""
        return self.signature in getattr(node, "transformations", ())

    def get_transformed_nodes(self, graph_module: GraphModule) -> list[Node]:
        """The nodes that this transformation changed or made, in order."""
        return [node for node in graph_module.graph.nodes if self.transformed(node)]


class ReversibleTransformation(Transformation):
    """A transformation that can be undone. Subclasses have :meth:`transform` and :meth:`reverse`."""

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
        """Transform a module, or undo that.

        Args:
            graph_module: what to transform. Most transformations change it in place.
            lint_and_recompile: whether to check the graph and write its code afterwards; off where
                another transformation follows.
            reverse: whether to undo.
            budget: how many changes may be made; by default that of the block
                (:func:`corsac.passes.rewrite_budget`). Undoing takes none.
        """
        expect_ours(graph_module, type(self).__name__)
        change = self.reverse if reverse else self.transform
        with spending(budget):
            return _finished(change(graph_module), lint_and_recompile)

    def mark_as_restored(self, node: Node) -> None:
        """Forget that this transformation changed ``node``.

        Raises:
            ValueError: it did not.
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
    """A report of raw sites; ``before`` is how many nodes there were."""
    found = tuple(Site(*site) for site in sites)
    return Report(name, found, before, len(graph_module.graph.nodes))


def remember(node: Node, transformation: Transformation, record: Any) -> None:
    """Keep at ``node`` what is needed to undo a transformation of it."""
    records = {**getattr(node, "_undo", {}), transformation.signature: record}
    node._undo = records
    transformation.mark_as_transformed(node)


def recall(node: Node, transformation: ReversibleTransformation) -> Any:
    """What was kept by :func:`remember`, which is forgotten then."""
    records = dict(node._undo)
    record = records.pop(transformation.signature)
    node._undo = records
    transformation.mark_as_restored(node)
    return record
