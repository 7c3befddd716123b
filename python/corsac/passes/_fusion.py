"""Folding of batch norms into adjacent layers."""

from __future__ import annotations

from dataclasses import replace

from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget
from corsac.passes._registry import registered
from corsac.passes._report import Report
from corsac.passes._target import drop_unused, run_pass
from corsac.passes._weights import FoldedLayers, FoldRefusal


@registered
def fuse_conv_bn(
    target: GraphModule, *, linear: bool = False, budget: Budget | None = None
) -> Report:
    """Fold batch norms in evaluation mode into the weights of adjacent layers.

    These are convolutions, transposed convolutions and linear layers before the batch norm, and
    convolutions without padding and linear layers after it; modules, or functions of ``torch`` and
    ``torch.nn.functional`` whose weights are attributes.

    The layers are replaced by new ones; the old modules and tensors are not changed, so that a model
    that shares them with ``target`` computes the same as before. Inputs are taken to have a batch
    dimension, and weights not to change afterwards. The rank of the input of a batch norm is that of
    ``node.meta["tensor_meta"]``, if it is there.

    Args:
        target: the module to change.
        linear: whether to fold also into ``Linear`` layers with inputs of unknown rank. The rank must
            be two: batch and features.
        budget: largest number of batch norms to fold; see :class:`Budget`.

    The report lists every batch norm, with the reason if it stays: there is no such layer beside it,
    the layer is used or called elsewhere or its weights are read, one of the two is in training mode
    or has hooks, the batch norm keeps no running statistics, the program writes to a tensor that is
    read.
    """
    if not isinstance(target, GraphModule):
        raise TypeError(
            "fuse_conv_bn changes weights: expected a corsac.fx.GraphModule, got "
            f"{type(target).__qualname__}: trace it with corsac.fx.symbolic_trace, or convert it with "
            "corsac.fx.from_torch"
        )
    return fold_into_layers(target, linear=linear, budget=budget)[0]


def fold_into_layers(
    target: GraphModule,
    *,
    linear: bool,
    budget: Budget | None = None,
    refusal: FoldRefusal | None = None,
    name: str = "conv-bn fusion",
) -> tuple[Report, set[str]]:
    """:func:`fuse_conv_bn` with further reasons to keep batch norms; also returns the names of the new modules and
    parameters."""
    folded = FoldedLayers(target, refusal)
    attributes = {node.target for node in target.graph.find_nodes(op="get_attr")}
    report = run_pass("conv-bn fusion", target, budget=budget, make=folded.fold, linear=linear)
    folded.install(target)
    left = {node.target for node in target.graph.find_nodes(op="get_attr")}
    drop_unused(target, [*(site.target for site in report.applied), *(attributes - left)])
    return replace(report, name=name), {*folded.layers, *folded.parameters}
