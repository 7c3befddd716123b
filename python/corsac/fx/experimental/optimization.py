"""Optimisations for inference, under the names of ``torch.fx.experimental.optimization``."""

from __future__ import annotations

import copy

from torch import nn

from corsac import _core
from corsac.fx._module_attributes import get_submodule
from corsac.fx._symbolic_trace import Tracer
from corsac.fx.experimental._inference import optimize_for_inference
from corsac.fx.experimental._mkldnn_autotuner import gen_mkl_autotuner
from corsac.fx.experimental._mkldnn_layout import (
    MklSubgraph,
    UnionFind,
    mkldnn_supported,
    mkldnn_supported_unknown,
    use_mkl_length,
)
from corsac.fx.experimental._mkldnn_modules import (
    matches_module_pattern,
    mkldnn_map,
    modules_to_mkldnn,
    replace_node_module,
    reset_modules,
)
from corsac.fx.experimental._program import program_of
from corsac.fx.graph_module import GraphModule
from corsac.fx.passes.shape_prop import ShapeProp  # noqa: F401
from corsac.passes._budget import Budget
from corsac.passes._extract import extract_subgraph
from corsac.passes._fusion import fold_into_layers
from corsac.passes._report import Report, Site
from corsac.passes._weights import deep_copy, install

__all__ = [
    "MklSubgraph",
    "UnionFind",
    "extract_subgraph",
    "fuse",
    "gen_mkl_autotuner",
    "matches_module_pattern",
    "mkldnn_map",
    "mkldnn_supported",
    "mkldnn_supported_unknown",
    "modules_to_mkldnn",
    "optimize_for_inference",
    "remove_dropout",
    "replace_node_module",
    "reset_modules",
    "use_mkl_length",
]


def _parent_name(target: str) -> tuple[str, str]:
    """The path of the module that contains ``target`` (a module, parameter or buffer), and the name in it."""
    path, _, name = target.rpartition(".")
    return path, name


def fuse(model: nn.Module, inplace: bool = False, no_trace: bool = False) -> nn.Module:
    """Fold batch norms into the convolutions and linear layers beside them, for inference.

    Where folding would change the computation, the batch norm is kept: :func:`corsac.passes.fuse_conv_bn`
    reports why. As in torch.fx, inputs are assumed to have a batch dimension, and those of linear layers
    beside a batch norm two dimensions, unless ``node.meta["tensor_meta"]`` differs.

    Args:
        model: a model in evaluation mode. It is not changed.
        inplace: whether the result may share unchanged weights with ``model``; they are copied otherwise.
        no_trace: whether to use the graph of ``model``, if it is a :class:`GraphModule`, instead of tracing
            it.

    Raises:
        AssertionError: a layer or its batch norm is in training mode.

    Returns:
        A module with a :class:`corsac.passes.Report` of all batch norms as ``meta["report"]``.
    """
    if no_trace and isinstance(model, GraphModule):
        graph = copy.deepcopy(model.graph)
    else:
        _, graph = program_of(model, Tracer())
    fused = GraphModule(model, graph)
    report, made = fold_into_layers(fused, linear=True, budget=Budget())
    for site in report.kept:
        if site.other is not None and site.reason.endswith("is in training mode"):
            raise AssertionError(
                f"batch norms are folded for evaluation only, but at {site.node} {site.reason}: "
                "call model.eval() first"
            )
    if fused.graph.find_nodes(op="get_attr"):
        # Modules whose weights are no longer used.
        fused.delete_all_unused_submodules()
    if not inplace:
        _copy_shared(fused, made)
    fused.meta["report"] = report
    return fused


def _copy_shared(gm: GraphModule, own: set[str]) -> None:
    """Copy the modules and attributes that the graph uses, except for ``own``."""
    memo: dict[int, object] = {}
    for node in gm.graph.find_nodes(op="call_module"):
        if node.target not in own:
            own.add(node.target)
            module = get_submodule(gm, node.target)
            install(gm, node.target, deep_copy(module, memo))
    copies = {id(copied) for copied in memo.values()}
    for node in gm.graph.find_nodes(op="get_attr"):
        path, name = _parent_name(node.target)
        owner = get_submodule(gm, path)
        value = getattr(owner, name)
        if id(value) in copies or any(f"{node.target}.".startswith(f"{p}.") for p in own):
            continue
        copied = copy.deepcopy(value, memo)
        copies.add(id(copied))
        if name in owner._buffers:
            owner._buffers[name] = copied
        else:
            setattr(owner, name, copied)


def remove_dropout(model: nn.Module) -> nn.Module:
    """The model without its ``nn.Dropout`` modules, whatever mode they are in. Weights are shared with
    ``model``.

    Dropouts with hooks are kept, and those in training mode whose input or result is written to, since
    without the dropout these would be one tensor.

    Returns:
        A module with a :class:`corsac.passes.Report` of all dropouts as ``meta["report"]``.

    See :func:`corsac.passes.remove_dropout` for other kinds of dropout.
    """
    gm = GraphModule(*program_of(model, Tracer()))
    modules = dict(gm.named_modules())
    calls = gm.graph.find_nodes(op="call_module")
    dropouts = [node for node in calls if isinstance(modules[node.target], nn.Dropout)]
    before, sites = len(gm.graph.nodes), []
    reasons = _reasons_to_stay(gm) if dropouts else {}
    for node in dropouts:
        if len(node.args) != 1:
            raise AssertionError(f"Expected 1 arg for Dropout, got {len(node.args)}")
        reason = reasons.get(node.name)
        if reason is not None:
            sites.append(Site(node.name, node.target, None, reason))
            continue
        sites.append(Site(node.name, node.target, str(node.args[0]), None))
        node.replace_all_uses_with(node.args[0])
        gm.graph.erase_node(node)
    gm = GraphModule(gm, gm.graph)
    gm.meta["report"] = Report("dropout", tuple(sites), before, len(gm.graph.nodes))
    return gm


def _reasons_to_stay(gm: GraphModule) -> dict[str, str]:
    """Reasons why dropouts cannot be removed, by node, found on a copy of the graph."""
    graph = copy.deepcopy(gm.graph)
    graph.owning_module = gm
    sites = _core.run_pass("dropout", graph, in_training=True)
    return {node: reason for node, _, _, reason in sites if reason is not None}
