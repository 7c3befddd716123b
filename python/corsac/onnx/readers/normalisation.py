"""Normalisation."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from corsac.onnx import functions
from corsac.onnx._emitter import Emitter
from corsac.onnx._model_reader import dtype_of
from corsac.onnx._registry import MICROSOFT, reads
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Size, Value
from corsac.onnx.readers.elementwise import like


def _as_buffer(value: Value) -> Value:
    value.role = "buffer"
    return value


@reads("BatchNormalization", since=7)
def batch_normalization(
    g: Emitter,
    input: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
) -> Any:
    if not spatial:
        raise Unsupported("statistics of single elements (spatial = 0)")
    if not training_mode:
        running = _as_buffer(mean), _as_buffer(variance)
        return g.call(
            F.batch_norm, input, *running, scale, bias, training=False, eps=_short(epsilon)
        )
    axes = [0, *range(2, input.rank)]
    own_mean = g.call(torch.mean, input, axes)
    shape = [1, -1] + [1] * (input.rank - 2)
    apart = g.call(torch.sub, input, g.call(torch.reshape, own_mean, shape))
    own_variance = g.call(torch.mean, g.call(torch.square, apart), axes)
    result = g.call(
        F.batch_norm,
        input,
        own_mean,
        own_variance,
        scale,
        bias,
        training=False,
        eps=_short(epsilon),
    )
    running = [
        g.call(torch.add, g.call(torch.mul, old, momentum), g.call(torch.mul, new, 1 - momentum))
        for old, new in ((mean, own_mean), (variance, own_variance))
    ]
    return result, *running


def _short(number: float) -> float:
    """A number of single precision as the shortest decimal that stands for it."""
    return float(f"{number:.7g}")


@reads("InstanceNormalization", since=6)
def instance_normalization(
    g: Emitter, input: Value, scale: Value, bias: Value, *, epsilon: float = 1e-5
) -> Value:
    if 1 in input.shape[2:] and all(own == 1 for own in input.shape[2:]):
        return g.call(F.group_norm, input, scale.shape[0], scale, bias, _short(epsilon))
    return g.call(F.instance_norm, input, None, None, scale, bias, True, 0.1, _short(epsilon))


@reads("LayerNormalization", since=17)
@reads("LayerNormalization", since=1)
def layer_normalization(
    g: Emitter,
    input: Value,
    scale: Value,
    bias: Value | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:
    axis %= input.rank
    sizes = g.shape(input)[axis:]
    fixed = not any(isinstance(own, Size) for own in sizes)
    many = sum(bool(own) for own in g.outputs) > 1
    if (
        fixed
        and list(scale.shape) == sizes
        and (bias is None or bias.shape == scale.shape)
        and not many
    ):
        return g.call(F.layer_norm, input, sizes, scale, bias, _short(epsilon))
    axes = list(range(axis, input.rank))
    wide = like(g, input, dtype_of(stash_type))
    mean = g.call(torch.mean, wide, axes, True)
    apart = g.call(torch.sub, wide, mean)
    variance = g.call(torch.mean, g.call(torch.square, apart), axes, True)
    inverse = g.call(torch.rsqrt, g.call(torch.add, variance, epsilon))
    normal = like(g, g.call(torch.mul, apart, inverse), input.dtype)
    result = g.call(torch.mul, normal, scale)
    if bias is not None:
        result = g.call(torch.add, result, bias)
    return result, mean, inverse


@reads("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    g: Emitter, input: Value, skip: Value, gamma: Value, beta: Value | None = None,
    bias: Value | None = None, *, epsilon: float = 1e-12,
) -> Any:  # fmt: skip
    total = g.call(torch.add, input, skip)
    if bias is not None:
        total = g.call(torch.add, total, bias)
    result = g.call(F.layer_norm, total, [gamma.shape[0]], gamma, beta, _short(epsilon))
    return result, None, None, total


@reads("RMSNormalization", since=23)
@reads("SimplifiedLayerNormalization", since=1)
def rms_normalization(
    g: Emitter,
    input: Value,
    scale: Value,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    axis %= input.rank
    sizes = g.shape(input)[axis:]
    if not any(isinstance(own, Size) for own in sizes) and list(scale.shape) == sizes:
        return g.call(F.rms_norm, input, sizes, scale, _short(epsilon))
    wide = like(g, input, dtype_of(stash_type))
    mean = g.call(torch.mean, g.call(torch.square, wide), list(range(axis, input.rank)), True)
    normal = g.call(torch.mul, wide, g.call(torch.rsqrt, g.call(torch.add, mean, epsilon)))
    return g.call(torch.mul, like(g, normal, input.dtype), scale)


@reads("GroupNormalization", since=18)
def group_normalization(
    g: Emitter,
    input: Value,
    scale: Value,
    bias: Value,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    if scale.shape[0] != input.shape[1]:
        # Version 18 has a scale for each group.
        times = (input.shape[1] or 0) // num_groups
        scale, bias = (g.call(torch.repeat_interleave, own, times) for own in (scale, bias))
    return g.call(F.group_norm, input, num_groups, scale, bias, _short(epsilon))


@reads("LRN")
def lrn(
    g: Emitter,
    input: Value,
    *,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 1.0,
) -> Value:
    squares = g.call(torch.unsqueeze, g.call(torch.square, input), 1)
    inner = input.rank - 2
    flat = [0] * (2 * inner) + [(size - 1) // 2, size - 1 - (size - 1) // 2]
    padded = g.call(F.pad, squares, flat)
    window = [size] + [1] * inner
    ones = [1] * (inner + 1)
    sums = g.call(torch.squeeze, g.call(functions.window_sums, padded, window, ones, ones), 1)
    scaled = g.call(torch.add, g.call(torch.mul, sums, alpha / size), bias)
    return g.call(torch.div, input, g.call(torch.pow, scaled, beta))
