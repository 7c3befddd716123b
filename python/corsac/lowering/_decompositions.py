"""Operators that PyTorch's decompositions leave, as the functions of which they were made.

``ExportedProgram.run_decompositions`` makes operators of functions that give more than programs use: statistics
of a batch norm, indices of a pooling. Backends know the functions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from corsac.fx import Graph, Node

_aten = torch.ops.aten
#: A function with its arguments; None where it is not what an operator was made of.
_Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None
#: The function for the arguments of an operator, by name.
_Rule = Callable[[dict[str, Any]], _Call]


def undo_decompositions(graph: Graph) -> None:
    """Call functions in place of operators, where the graph uses no more than they give."""
    for target, (is_first, rule) in _RULES.items():
        for node in graph.find_nodes(op="call_function", target=target):
            if not is_first or _only_first_is_used(node):
                _undo(graph, node, is_first, rule)


def _undo(graph: Graph, node: Node, is_first: bool, rule: _Rule) -> None:
    made = rule(_arguments(node))
    if made is None:
        return
    node.target, node.args, node.kwargs = made
    if not is_first:
        return
    for item in list(node.users):
        item.replace_all_uses_with(node)
        graph.erase_node(item)
    for key in ("val", "example_value", "tensor_meta"):
        if isinstance(results := node.meta.get(key), (tuple, list)):
            node.meta[key] = results[0]


def _only_first_is_used(node: Node) -> bool:
    return all(
        user.target is operator.getitem and (user.args[1] == 0 or not user.users)
        for user in node.users
    )


def _arguments(node: Node) -> dict[str, Any]:
    """The arguments of an operator by name."""
    parameters = node.target._schema.arguments
    named = {own.name: own.default_value for own in parameters if own.has_default_value()}
    given = zip((own.name for own in parameters), node.args, strict=False)
    return {**named, **dict(given), **node.kwargs}


def _batch_norm(own: dict[str, Any]) -> _Call:
    if own.get("training") or own["running_mean"] is None:
        return None
    args = (own["input"], own["running_mean"], own["running_var"], own["weight"], own["bias"])
    return F.batch_norm, args, {"momentum": own["momentum"], "eps": own["eps"]}


def _instance_norm(own: dict[str, Any]) -> _Call:
    """The norm of one batch, which has all samples as channels."""
    view = own["input"]
    if view.target not in (_aten.view.default, _aten.reshape.default) or view.args[1][0] != 1:
        return None
    named = {name: own[name] for name in ("weight", "bias", "momentum", "eps")}
    return F.instance_norm, (view,), named


def _group_norm(own: dict[str, Any]) -> _Call:
    named = {name: own[name] for name in ("weight", "bias", "eps")}
    return F.group_norm, (own["input"], own["group"]), named


def _max_pool(own: dict[str, Any]) -> _Call:
    named = {name: own[name] for name in ("padding", "dilation", "ceil_mode")}
    return F.max_pool2d, (own["self"], own["kernel_size"], own["stride"] or None), named


def _resampling(mode: str) -> _Rule:
    def rule(own: dict[str, Any]) -> _Call:
        named = {"size": own["output_size"], "scale_factor": own["scale_factors"], "mode": mode}
        if "align_corners" in own:
            named["align_corners"] = own["align_corners"]
        return F.interpolate, (own["input"],), named

    return rule


#: By operator whether the function gives the first of its results, and the function.
_RULES: dict[Any, tuple[bool, _Rule]] = {
    _aten._native_batch_norm_legit_no_training.default: (True, _batch_norm),
    _aten.native_batch_norm.default: (True, _batch_norm),
    _aten._native_batch_norm_legit.no_stats: (True, _instance_norm),
    _aten.native_group_norm.default: (True, _group_norm),
    _aten.max_pool2d_with_indices.default: (True, _max_pool),
    _aten.upsample_nearest1d.vec: (False, _resampling("nearest")),
    _aten.upsample_nearest2d.vec: (False, _resampling("nearest")),
    _aten.upsample_nearest3d.vec: (False, _resampling("nearest")),
    _aten._upsample_nearest_exact1d.vec: (False, _resampling("nearest-exact")),
    _aten._upsample_nearest_exact2d.vec: (False, _resampling("nearest-exact")),
    _aten._upsample_nearest_exact3d.vec: (False, _resampling("nearest-exact")),
    _aten.upsample_linear1d.vec: (False, _resampling("linear")),
    _aten.upsample_bilinear2d.vec: (False, _resampling("bilinear")),
    _aten.upsample_bicubic2d.vec: (False, _resampling("bicubic")),
    _aten.upsample_trilinear3d.vec: (False, _resampling("trilinear")),
}


__all__ = ["undo_decompositions"]
