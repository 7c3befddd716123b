"""Batch norms folded into transposed convolutions with groups, which PyTorch's functions do not take."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights


def fold_transposed_weights(
    groups: int,
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    eps: float,
    scale: Tensor | None,
    shift: Tensor | None,
) -> tuple[nn.Parameter, nn.Parameter]:
    """Weight and bias of a transposed convolution with the batch norm after it, group by group.

    A weight is ``[input channels, output channels / groups, …]``.
    """
    parts = [
        [None] * groups if one is None else one.chunk(groups)
        for one in (weight, bias, mean, variance, scale, shift)
    ]
    folded = [
        fuse_conv_bn_weights(*own[:4], eps, *own[4:], transpose=True)  # type: ignore[arg-type]
        for own in zip(*parts, strict=True)
    ]
    weights, biases = zip(*folded, strict=True)
    return (
        nn.Parameter(torch.cat(weights), weight.requires_grad),
        nn.Parameter(
            torch.cat(biases), weight.requires_grad if bias is None else bias.requires_grad
        ),
    )


def fold_transposed(convolution: Any, norm: Any) -> Any:
    """A copy of a transposed convolution with the batch norm after it, both in evaluation mode."""
    if convolution.training or norm.training:
        raise AssertionError("expected layers in evaluation mode, got one in training mode")
    made = copy.deepcopy(convolution)
    made.weight, made.bias = fold_transposed_weights(
        made.groups,
        made.weight,
        made.bias,
        norm.running_mean,
        norm.running_var,
        norm.eps,
        norm.weight,
        norm.bias,
    )
    return made
