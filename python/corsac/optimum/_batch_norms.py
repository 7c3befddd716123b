"""Folds batch norms into neighbouring layers."""

from __future__ import annotations

from typing import Any

from torch import nn

from corsac import _core
from corsac.fx.graph_module import GraphModule
from corsac.optimum._transformation import Transformation, report_of
from corsac.passes._budget import current_budget
from corsac.passes._weights import FoldedLayers, drop_unused


class _Fusion(Transformation):
    """Folds batch norms of one class into layers of one class."""

    preserves_computation = True

    def __init_subclass__(
        cls, norm: type[nn.Module], layer: type[nn.Module], before: bool, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls._norm, cls._layer, cls._before = norm, layer, before

    _norm: type[nn.Module]
    _layer: type[nn.Module]
    #: Whether batch norms before the layer are folded too.
    _before: bool

    def transform(self, graph_module: GraphModule) -> GraphModule:
        nodes = len(graph_module.graph.nodes)
        folded = _Folded(graph_module, self)
        sites = _core.fold_batch_norms(
            graph_module.graph, folded.fold, linear=True, budget=current_budget(None)
        )
        folded.install(graph_module)
        drop_unused(graph_module, [norm for _, norm, _, reason in sites if reason is None])
        name = f"{self._norm.__name__} in {self._layer.__name__}"
        self._report = report_of(name, sites, graph_module, nodes)
        return graph_module

    def refusal(self, norm: object, layer: object, after: bool) -> str | None:
        """The reason if this transformation skips a batch norm that the general pass would fold."""
        if type(norm) is not self._norm or type(layer) is not self._layer:
            return f"{self._norm.__name__} is folded into {self._layer.__name__} only"
        if not after and not self._before:
            return f"{self._norm.__name__} is folded into the layer before it only"
        return None


class _Folded(FoldedLayers):
    """Folds the layers that a transformation accepts."""

    def __init__(self, root: GraphModule, fusion: _Fusion) -> None:
        super().__init__(root)
        self._fusion = fusion

    def refusal(self, plan: dict[str, Any]) -> str | None:
        norm, layer = self._module(plan["norm_module"]), self._module(plan["layer_module"])
        return self._fusion.refusal(norm, layer, plan["after"])

    def _module(self, path: str | None) -> object:
        return None if path is None else self._root.get_submodule(path)


class FuseBatchNorm2dInConv2d(_Fusion, norm=nn.BatchNorm2d, layer=nn.Conv2d, before=False):
    """Folds ``BatchNorm2d`` in evaluation mode into the ``Conv2d`` before it.

    Skipped: convolutions whose result has other users, that are called elsewhere or whose weights are read,
    and pairs of which one is in training mode or has hooks. The folded convolution is a new module.
    """


class FuseBatchNorm1dInLinear(_Fusion, norm=nn.BatchNorm1d, layer=nn.Linear, before=True):
    """Folds ``BatchNorm1d`` in evaluation mode into the ``Linear`` before it, or after it.

    Inputs are assumed to have two dimensions, batch and features, unless ``node.meta["tensor_meta"]``
    differs. Skipped: pairs where the result of the first has other users, the layer is called elsewhere or
    its weights are read, or one of the two is in training mode or has hooks. The folded layer is a new
    module.
    """
