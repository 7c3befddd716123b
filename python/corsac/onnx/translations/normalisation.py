"""Normalisation, in evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from corsac.onnx._builder import Builder, Missing, Tensor
from corsac.onnx._table import translates
from corsac.onnx._types import Unsupported

_OF_TRAINING = "statistics that only training needs have no translation"


def _same_dtype(input: Tensor, *others: Tensor | None) -> None:
    if any(other is not None and other.dtype != input.dtype for other in others):
        raise Unsupported("operands of different dtypes")


def _filled(g: Builder, value: float, size: Any, dtype: torch.dtype) -> Tensor:
    if not isinstance(size, int):
        raise Unsupported("a number of channels that is not known")
    return g.known(torch.full((size,), value, dtype=dtype))


@translates("batch_norm")
def batch_norm(
    g: Builder,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Normalisation by the running statistics."""
    if running_mean is None and running_var is None:
        return _by_batch(g, input, weight, bias, eps)
    if training or running_mean is None or running_var is None:
        raise Unsupported("it updates running statistics")
    _same_dtype(input, running_mean, running_var, weight, bias)
    channels = input.shape[1]
    weight = _filled(g, 1.0, channels, input.dtype) if weight is None else weight
    bias = _filled(g, 0.0, channels, input.dtype) if bias is None else bias
    return g.op(
        "BatchNormalization", input, weight, bias, running_mean, running_var, epsilon=eps,
        shape=input.shape,
    )  # fmt: skip


def _by_batch(
    g: Builder, input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """Normalisation by the statistics of the batch."""
    _same_dtype(input, weight, bias)
    axes = [axis for axis in range(input.rank) if axis != 1]
    apart = g.op("Sub", input, g.reduce("ReduceMean", input, axes), shape=input.shape)
    variance = g.reduce("ReduceMean", g.op("Mul", apart, apart), axes)
    root = g.op("Sqrt", g.op("Add", variance, g.scalar(eps, input.dtype)))
    return _scaled(g, g.op("Div", apart, root, shape=input.shape), weight, bias)


@translates("_native_batch_norm_legit_no_training")
def batch_norm_no_training(
    g: Builder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> Any:
    """Normalisation by the running statistics."""
    result = batch_norm(g, input, running_mean, running_var, weight, bias, eps=eps)
    return result, Missing(_OF_TRAINING), Missing(_OF_TRAINING)


@translates("layer_norm")
def layer_norm(
    g: Builder,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """Normalisation over the last dimensions."""
    _same_dtype(input, weight, bias)
    shape = list(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else [
        normalized_shape
    ]  # fmt: skip
    if weight is None:
        if not all(isinstance(size, int) for size in shape):
            raise Unsupported("a shape that is not known")
        weight = g.known(torch.ones(shape, dtype=input.dtype))
    return g.op(
        "LayerNormalization", input, weight, bias, axis=-len(shape), epsilon=eps,
        shape=input.shape,
    )  # fmt: skip


@translates("native_layer_norm")
def native_layer_norm(
    g: Builder,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Any:
    """Normalisation over the last dimensions."""
    result = layer_norm(g, input, normalized_shape, weight, bias, eps)
    return result, Missing(_OF_TRAINING), Missing(_OF_TRAINING)


@translates("rms_norm")
def rms_norm(
    g: Builder,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Normalisation by the root of the mean square over the last dimensions."""
    _same_dtype(input, weight)
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    axes = range(input.rank - len(normalized_shape), input.rank)
    square = g.reduce("ReduceMean", g.op("Mul", input, input), axes)
    root = g.op("Sqrt", g.op("Add", square, g.scalar(eps, input.dtype)))
    result = g.op("Mul", input, g.op("Reciprocal", root), shape=input.shape)
    return result if weight is None else g.op("Mul", result, weight, shape=input.shape)


@translates("group_norm")
def group_norm(
    g: Builder,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Normalisation over groups of channels."""
    _same_dtype(input, weight, bias)
    rest = math.prod(input.shape[1:])
    if not isinstance(rest, int):
        raise Unsupported("groups of a size that is not known")
    grouped = g.reshape(input, (input.shape[0], num_groups, rest // num_groups))
    ones, zeros = (_filled(g, value, num_groups, input.dtype) for value in (1.0, 0.0))
    normal = g.op(
        "InstanceNormalization", grouped, ones, zeros, epsilon=eps, shape=grouped.shape
    )  # fmt: skip
    return _scaled(g, g.reshape(normal, input.shape), weight, bias)


@translates("native_group_norm")
def native_group_norm(
    g: Builder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> Any:
    """Normalisation over groups of channels."""
    result = group_norm(g, input, group, weight, bias, eps)
    return result, Missing(_OF_TRAINING), Missing(_OF_TRAINING)


def _scaled(g: Builder, input: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """The input times a weight plus a bias, for each channel."""
    shape = [1] * input.rank
    shape[1] = input.shape[1]
    if weight is not None:
        input = g.op("Mul", input, g.reshape(weight, shape), shape=input.shape)
    return input if bias is None else g.op("Add", input, g.reshape(bias, shape), shape=input.shape)


@translates("instance_norm")
def instance_norm(
    g: Builder,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Normalisation over each channel of each sample."""
    if not use_input_stats:
        return batch_norm(g, input, running_mean, running_var, weight, bias, False, momentum, eps)
    if running_mean is not None or running_var is not None:
        raise Unsupported("it updates running statistics")
    _same_dtype(input, weight, bias)
    channels = input.shape[1]
    weight = _filled(g, 1.0, channels, input.dtype) if weight is None else weight
    bias = _filled(g, 0.0, channels, input.dtype) if bias is None else bias
    return g.op("InstanceNormalization", input, weight, bias, epsilon=eps, shape=input.shape)


@translates("local_response_norm")
def local_response_norm(
    g: Builder, input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Normalisation by the squares of neighbouring channels."""
    if input.rank < 3:
        raise Unsupported("no channels")
    # The mean over neighbouring channels is average pooling along the channels.
    batch, channels, *rest = input.shape
    flat = g.reshape(g.op("Mul", input, input), (batch, 1, channels, math.prod(rest)))
    before, behind = size // 2, (size - 1) // 2
    mean = g.op(
        "AveragePool", flat, kernel_shape=[size, 1], pads=[before, 0, behind, 0],
        strides=[1, 1], count_include_pad=1, shape=flat.shape,
    )  # fmt: skip
    around = g.op("Mul", g.reshape(mean, input.shape), g.scalar(alpha, input.dtype))
    scale = g.op("Pow", g.op("Add", around, g.scalar(k, input.dtype)), g.scalar(beta, input.dtype))
    return g.op("Div", input, scale)
