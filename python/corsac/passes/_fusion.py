"""Folding batch norms into the convolutions before them."""

from __future__ import annotations

from corsac import _core
from corsac.fx import Graph
from corsac.fx.graph_module import GraphModule
from corsac.passes._report import Report
from corsac.passes._target import run
from corsac.passes._weights import FoldedLayers, drop_unused, install


def fuse_conv_bn(target: GraphModule, *, linear: bool = False) -> Report:
    """Fold batch norms in evaluation mode into the weights of the convolutions before them.

    The layers are replaced by new ones; the modules that they were are not changed, so that a
    model that shares them with ``target`` computes what it did. Inputs are taken to have a batch
    dimension, and weights not to change afterwards.

    Args:
        target: the module to change.
        linear: whether to fold into ``Linear`` layers too, whose inputs must then have two
            dimensions: batch and features.

    The report lists every batch norm; those that stay with the reason: it does not follow a
    convolution, the convolution is used or called elsewhere or its weights are read, one of the two
    is in training mode or has hooks, the batch norm keeps no running statistics.
    """
    if not isinstance(target, GraphModule):
        raise TypeError(
            "fuse_conv_bn changes weights: expected a corsac.fx.GraphModule, got "
            f"{type(target).__qualname__}"
        )
    folded = FoldedLayers(target)

    def transform(graph: Graph) -> list[tuple[str, str, str | None, str | None]]:
        sites = _core.fold_batch_norms(graph, folded.fold, linear=linear)
        for path, layer in folded.layers.items():
            install(target, path, layer)
        drop_unused(target, [norm for _, norm, _, reason in sites if reason is None])
        return sites

    return run("conv-bn fusion", target, transform)
