"""Folds batch norms into neighbouring layers."""

from __future__ import annotations

from typing import Any

from torch import nn

from corsac.fx.graph_module import GraphModule
from corsac.optimum._transformation import Transformation
from corsac.passes._fusion import fold_into_layers


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
        self._report, _ = fold_into_layers(
            graph_module,
            linear=True,
            refusal=self._refusal,
            name=f"{self._norm.__name__} in {self._layer.__name__}",
        )
        return graph_module

    def _refusal(self, norm: object, layer: object, after: bool) -> str | None:
        """The reason if this transformation skips a batch norm that the general pass would fold."""
        if type(norm) is not self._norm or type(layer) is not self._layer:
            return f"{self._norm.__name__} is folded into {self._layer.__name__} only"
        if not after and not self._before:
            return f"{self._norm.__name__} is folded into the layer before it only"
        return None


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
