"""Folding batch norms into the layers beside them."""

from __future__ import annotations

from corsac import _core
from corsac.fx import Graph
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget, current_budget
from corsac.passes._report import Report
from corsac.passes._target import RawSites, run
from corsac.passes._weights import FoldedLayers, drop_unused


def fuse_conv_bn(
    target: GraphModule, *, linear: bool = False, budget: Budget | None = None
) -> Report:
    """Fold batch norms in evaluation mode into the weights of the layers beside them.

    These are convolutions, transposed convolutions and linear layers before the batch norm, and
    convolutions without padding and linear layers after it; modules, or functions of ``torch`` and
    ``torch.nn.functional`` whose weights are attributes.

    The layers are replaced by new ones; the modules and tensors that they were are not changed, so
    that a model that shares them with ``target`` computes what it did. Inputs are taken to have a
    batch dimension, and weights not to change afterwards. Where ``node.meta["tensor_meta"]`` says
    how many dimensions the input of a batch norm has, that decides.

    Args:
        target: the module to change.
        linear: whether to fold into ``Linear`` layers too of whose inputs it is not known how many
            dimensions they have. They must have two: batch and features.
        budget: how many batch norms may be folded; see :class:`Budget`.

    The report lists every batch norm; those that stay with the reason: there is no such layer
    beside it, the layer is used or called elsewhere or its weights are read, one of the two is in
    training mode or has hooks, the batch norm keeps no running statistics, the program writes to
    what is read.
    """
    if not isinstance(target, GraphModule):
        raise TypeError(
            "fuse_conv_bn changes weights: expected a corsac.fx.GraphModule, got "
            f"{type(target).__qualname__}: trace it with corsac.fx.symbolic_trace, or convert it with "
            "corsac.fx.from_torch"
        )
    return fold_into_layers(target, linear=linear, budget=current_budget(budget))[0]


def fold_into_layers(
    target: GraphModule, *, linear: bool, budget: Budget | None
) -> tuple[Report, set[str]]:
    """What :func:`fuse_conv_bn` does; answers also the names of the new modules and parameters."""
    folded = FoldedLayers(target)
    attributes = {node.target for node in target.graph.find_nodes(op="get_attr")}

    def transform(graph: Graph) -> RawSites:
        sites = _core.fold_batch_norms(graph, folded.fold, linear=linear, budget=budget)
        folded.install(target)
        left = {node.target for node in graph.find_nodes(op="get_attr")}
        gone = [norm for _, norm, _, reason in sites if reason is None]
        drop_unused(target, [*gone, *(attributes - left)])
        return sites

    report = run("conv-bn fusion", target, transform)
    return report, {*folded.layers, *folded.parameters}
