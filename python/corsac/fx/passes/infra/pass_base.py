"""The base class and the result of passes."""

from __future__ import annotations

import abc
from collections import namedtuple

from torch import nn

from ...graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(namedtuple("PassResult", ["graph_module", "modified"])):
    """The result of a pass: the module, and whether it was changed."""

    __slots__ = ()

    def __new__(cls, graph_module: nn.Module, modified: bool) -> PassResult:
        return super().__new__(cls, graph_module, modified)


class PassBase(abc.ABC):
    """A pass. Derived classes define :meth:`call`; instances are called like functions."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        """Check the requirements of the pass, run it, and check its result."""
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Run the pass on ``graph_module``, which it may change."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Raise an exception if ``graph_module`` does not meet the requirements of the pass."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Raise an exception if ``graph_module`` does not meet the guarantees of the pass."""
