"""All optimisations for inference in sequence."""

from __future__ import annotations

import logging
from typing import Any

from torch import nn

from corsac.fx._symbolic_trace import Tracer
from corsac.fx.experimental._mkldnn_layout import (
    find_subgraphs,
    has_layers,
    leave_out,
    run_on_mkldnn,
    use_mkl_length,
)
from corsac.fx.experimental._program import program_of
from corsac.fx.graph_module import GraphModule
from corsac.passes import Budget, Report, Site, remove_dropout
from corsac.passes._budget import current_budget
from corsac.passes._registry import registered

__all__ = ["optimize_for_inference"]

_log = logging.getLogger(__name__)


def optimize_for_inference(
    model: nn.Module,
    pass_config: dict[str, Any] | None = None,
    tracer: type[Tracer] = Tracer,
) -> nn.Module:
    """Optimise a model for inference: a faster module that computes what ``model`` does in evaluation mode.

    1. Batch norms are folded into the layers before them (:func:`fuse`).
    2. Dropouts are removed.
    3. Subgraphs of convolutions, linear layers and the operators between them run on oneDNN: weights in its
       layout, images in channels-last format, sums and activations fused into the preceding convolution.

    Results differ in rounding. Values that are written to while they have other users keep their layout, and
    so do modules with hooks, on devices other than the CPU, and of dtypes other than float32, bfloat16 and
    float16 where the machine supports these; the log (level info) contains the reasons.

    Args:
        model: a model in evaluation mode. It is not changed. Unchanged weights are shared with it if
            ``conv_bn_fuse`` is off.
        pass_config: ``{"conv_bn_fuse": bool, "remove_dropout": bool, "mkldnn_layout_optimize": False |
            {"heuristic": f}}``; ``f`` is called with an :class:`MklSubgraph` and returns whether it is to run
            on oneDNN: :func:`use_mkl_length`, the default, or a result of :func:`gen_mkl_autotuner`.
        tracer: the class of tracer for ``model``.

    Raises:
        AssertionError: a batch norm is in training mode.
        RuntimeError: ``mkldnn_layout_optimize`` has no heuristic.

    Returns:
        A module with a :class:`corsac.passes.Report` on all three as ``meta["report"]``.
    """
    config: dict[str, Any] = {
        "conv_bn_fuse": True,
        "remove_dropout": True,
        "mkldnn_layout_optimize": {"heuristic": use_mkl_length},
        **(pass_config or {}),
    }
    layout = config["mkldnn_layout_optimize"]
    if layout is not False:
        if not isinstance(layout, dict):
            raise RuntimeError("mkldnn_layout_optimize config is not a dict")
        if "heuristic" not in layout:
            raise RuntimeError("Heuristic not found in mkldnn_layout_optimize config")

    gm = GraphModule(*program_of(model, tracer()), type(model).__name__)
    before, sites = len(gm.graph.nodes), []
    if config["conv_bn_fuse"]:
        from corsac.fx.experimental.optimization import fuse

        gm = fuse(gm, no_trace=True)
        sites.extend(gm.meta["report"].sites)
    if config["remove_dropout"]:
        sites.extend(remove_dropout(gm, in_training=True).sites)
    if layout is not False:
        sites.extend(optimize_layout(gm, layout["heuristic"]).sites)
    gm.meta["report"] = Report("inference", tuple(sites), before, len(gm.graph.nodes))
    return gm


@registered
def optimize_layout(
    gm: GraphModule, heuristic: Any = use_mkl_length, *, budget: Budget | None = None
) -> Report:
    """Run subgraphs of convolutions, linear layers and the operators between them on oneDNN, in place.

    Args:
        gm: the module, in evaluation mode.
        heuristic: called with an :class:`MklSubgraph`; returns whether it is to run on oneDNN.
        budget: the number of subgraphs that may be changed; by default that of the enclosing block
            (:func:`corsac.passes.rewrite_budget`).

    Returns:
        The report: the first node of each subgraph, and each supported node outside of all.

    Raises:
        AssertionError: a batch norm is in training mode.
    """
    budget, before = current_budget(budget), len(gm.graph.nodes)
    subgraphs, refused = find_subgraphs(gm)
    for site in refused:
        if site.reason.endswith("is in training mode"):
            raise AssertionError(
                f"models are optimised for evaluation only, but {site.reason}: call model.eval() "
                "first"
            )
        _log.info("%s (%s) runs as it did: %s", site.node, site.target, site.reason)
    accepted, sites = [], list(refused)
    for subgraph in subgraphs:
        first = subgraph.nodes[0]
        label, reason = first._pretty_print_target(first.target), None
        if not (has_layers(gm, subgraph) and heuristic(subgraph)):
            reason = "running its subgraph on oneDNN would not pay"
        elif budget is not None and not budget.take():
            reason = "the budget of changes is used up"
        sites.append(Site(first.name, label, None, reason))
        if reason is None:
            accepted.append(subgraph)
        else:
            leave_out(subgraph)
    conversions = sum(len(s.start_nodes) + len(s.end_nodes) for s in accepted)
    _log.info("mkldnn conversions: %s", conversions)
    run_on_mkldnn(gm, accepted)
    gm.delete_all_unused_submodules()
    gm.graph.lint()
    gm.recompile()
    return Report("oneDNN layout", tuple(sites), before, len(gm.graph.nodes))
