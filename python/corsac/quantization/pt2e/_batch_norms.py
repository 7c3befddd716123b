"""Batch norms folded into the convolutions and linear layers before them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from corsac.quantization._grouped_norms import fold_transposed_weights
from corsac.quantization.pt2e._nodes import (
    BATCH_NORMS,
    CONVOLUTIONS,
    TRANSPOSED,
    argument,
    aten,
    calls,
    constant,
    described,
    is_node,
    set_parameter,
)

_EVALUATED = aten._native_batch_norm_legit_no_training.default


def normalised(node: Any) -> Any:
    """The node with the result of a batch norm: itself, or the first item of what it returns; None if it is unused."""
    if node.target in BATCH_NORMS:
        return node
    users = [*node.users]
    if len(users) == 1 and users[0].op == "call_function" and users[0].args[1:] == (0,):
        return users[0]
    return None


def fold(model: Any) -> None:
    """Fold the batch norms of a graph module that has been exported for inference."""
    graph = model.graph
    norms = [node for node in graph.nodes if calls(node, *BATCH_NORMS, _EVALUATED)]
    if not norms:
        return
    for node in norms:
        layer = node.args[0]
        if not calls(layer, *CONVOLUTIONS, *TRANSPOSED, aten.linear.default):
            continue
        reason = _reason_to_keep(model, node, layer)
        if reason is not None:
            warnings.warn(f"batch norm {described(node)} is not folded: {reason}", stacklevel=4)
        else:
            bias = layer.args[2] if len(layer.args) > 2 else None
            fold_into(model, node, layer, layer.args[1], bias)
    graph.eliminate_dead_code()
    model.recompile()


def _reason_to_keep(model: Any, norm: Any, layer: Any) -> str | None:
    """The reason not to fold a batch norm into the layer before it; None if there is none."""
    if norm.target in BATCH_NORMS and argument(norm, "training"):
        return (
            "it uses the statistics of the batch; export the model in evaluation mode, or use "
            "prepare_qat_pt2e"
        )
    if layer.target is aten.linear.default:
        value = layer.args[0].meta.get("val")
        if isinstance(value, torch.Tensor) and value.dim() > 2:
            return f"linear layer {layer.name} reads {value.dim()} dimensions, expected 2"
    if len(layer.users) > 1:
        return f"{layer.name} has {len(layer.users)} users"
    for own in layer.args[1:3]:
        if is_node(own):
            readers = sum(
                len(one.users)
                for one in model.graph.nodes
                if one.op == "get_attr" and one.target == own.target
            )
            if constant(model, own) is None:
                return f"{own.name} is computed"
            if readers > 1:
                return f"{own.target} has {readers} users"
    if constant(model, argument(norm, "running_mean")) is None:
        return "it has no running statistics"
    return None


def fold_into(model: Any, norm: Any, layer: Any, weight_node: Any, bias_node: Any) -> None:
    """Multiply the weight of ``layer`` by a batch norm, which its users read no longer.

    Args:
        model: the graph module.
        norm: the batch norm.
        layer: the convolution or linear layer.
        weight_node: the node that reads the weight from the model.
        bias_node: the node that reads the bias; None if there is none.
    """
    weight, bias = constant(model, weight_node), constant(model, bias_node)
    assert weight is not None
    own = [
        constant(model, argument(norm, name))
        for name in ("running_mean", "running_var", "weight", "bias")
    ]
    mean, variance, scale, shift = own
    eps = argument(norm, "eps")
    if layer.target is aten.linear.default:
        folded = fuse_linear_bn_weights(weight, bias, mean, variance, eps, scale, shift)
    elif layer.target in TRANSPOSED:
        assert mean is not None and variance is not None
        groups = argument(layer, "groups")
        folded = fold_transposed_weights(groups, weight, bias, mean, variance, eps, scale, shift)
    else:
        folded = fuse_conv_bn_weights(weight, bias, mean, variance, eps, scale, shift)
    set_parameter(model, weight_node.target, folded[0])
    if is_node(bias_node):
        set_parameter(model, bias_node.target, folded[1])
    else:
        path = f"{weight_node.target}_bias"
        set_parameter(model, path, folded[1])
        with model.graph.inserting_before(layer):
            bias_node = model.graph.get_attr(path)
        value = layer.meta.get("val")
        if hasattr(value, "fake_mode"):
            bias_node.meta["val"] = value.fake_mode.from_tensor(folded[1], static_shapes=True)
        layer.args = (*layer.args[:2], bias_node, *layer.args[3:])
    result = normalised(norm)
    if result is not None:
        result.replace_all_uses_with(layer)
        for node in [result] if result is norm else [result, norm]:
            model.graph.erase_node(node)
