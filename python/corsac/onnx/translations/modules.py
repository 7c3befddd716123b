"""Modules of ``torch.nn``: the translations of their functions, with weights and settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from corsac.onnx._builder import Builder, Tensor
from corsac.onnx._table import translates_module
from corsac.onnx._types import Unsupported, positive_dim
from corsac.onnx.translations import activations as act
from corsac.onnx.translations import normalisation as norm
from corsac.onnx.translations import pooling, resampling, views
from corsac.onnx.translations.attention import multihead_attention
from corsac.onnx.translations.convolutions import CONVOLUTIONS, TRANSPOSED
from corsac.onnx.translations.indexing import embedding
from corsac.onnx.translations.matrices import linear

Function = Callable[..., Any]


def _weight(g: Builder, module: nn.Module, path: str, name: str) -> Tensor | None:
    tensor = getattr(module, name, None)
    return None if tensor is None else g.weight(tensor, f"{path}.{name}")


def _weights(g: Builder, module: nn.Module, path: str, *names: str) -> list[Any]:
    return [_weight(g, module, path, name) for name in names]


# -- with weights ----------------------------------------------------------------------------------


@translates_module(nn.Linear)
def _linear(g: Builder, module: nn.Linear, path: str, input: Tensor) -> Tensor:
    """``input @ weight.T + bias``."""
    return linear(g, input, *_weights(g, module, path, "weight", "bias"))


@translates_module(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def _conv(g: Builder, module: Any, path: str, input: Tensor) -> Tensor:
    """A convolution; for padding modes other than zeros, the input is padded first."""
    weight, bias = _weights(g, module, path, "weight", "bias")
    rank = len(module.kernel_size)
    padding = module.padding
    if module.padding_mode != "zeros":
        amounts = list(module._reversed_padding_repeated_twice)
        pairs = list(zip(amounts[::2], amounts[1::2], strict=True))[::-1]
        sizes = input.shape[input.rank - rank :]
        grown = [size + sum(pair) for size, pair in zip(sizes, pairs, strict=True)]
        out, g.out = g.out, Tensor("", input.dtype, (*input.shape[: input.rank - rank], *grown))
        try:
            input = resampling.pad(g, input, amounts, module.padding_mode)
        finally:
            g.out = out
        padding = 0
    given = (module.stride, padding, module.dilation, module.groups)
    return CONVOLUTIONS[rank](g, input, weight, bias, *given)


@translates_module(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
def _conv_transpose(
    g: Builder, module: Any, path: str, input: Tensor, output_size: Any = None
) -> Tensor:
    """A transposed convolution."""
    if output_size is not None:
        raise Unsupported("no translation of the argument output_size")
    weight, bias = _weights(g, module, path, "weight", "bias")
    given = (module.stride, module.padding, module.output_padding, module.groups, module.dilation)
    return TRANSPOSED[len(module.kernel_size)](g, input, weight, bias, *given)


@translates_module(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
def _batch_norm(g: Builder, module: Any, path: str, input: Tensor) -> Tensor:
    """Normalisation by the running statistics."""
    mean, var, weight, bias = _weights(
        g, module, path, "running_mean", "running_var", "weight", "bias"
    )
    return norm.batch_norm(g, input, mean, var, weight, bias, module.training, 0.0, module.eps)


@translates_module(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
def _instance_norm(g: Builder, module: Any, path: str, input: Tensor) -> Tensor:
    """Normalisation over each channel of each sample."""
    if module.training and module.track_running_stats:
        raise Unsupported("it updates running statistics")
    single = input.rank == module._get_no_batch_dim()
    if single:
        input = g.reshape(input, (1, *input.shape))
    weight, bias = _weights(g, module, path, "weight", "bias")
    if module.track_running_stats:
        mean, var = _weights(g, module, path, "running_mean", "running_var")
        result = norm.instance_norm(g, input, mean, var, weight, bias, False, 0.0, module.eps)
    else:
        result = norm.instance_norm(g, input, None, None, weight, bias, True, 0.0, module.eps)
    return g.reshape(result, input.shape[1:]) if single else result


@translates_module(nn.LayerNorm)
def _layer_norm(g: Builder, module: nn.LayerNorm, path: str, input: Tensor) -> Tensor:
    """Normalisation over the last dimensions."""
    weights = _weights(g, module, path, "weight", "bias")
    return norm.layer_norm(g, input, module.normalized_shape, *weights, module.eps)


@translates_module(nn.RMSNorm)
def _rms_norm(g: Builder, module: nn.RMSNorm, path: str, x: Tensor) -> Tensor:
    """Normalisation by the root of the mean square."""
    weight = _weight(g, module, path, "weight")
    return norm.rms_norm(g, x, module.normalized_shape, weight, module.eps)


@translates_module(nn.GroupNorm)
def _group_norm(g: Builder, module: nn.GroupNorm, path: str, input: Tensor) -> Tensor:
    """Normalisation over groups of channels."""
    weights = _weights(g, module, path, "weight", "bias")
    return norm.group_norm(g, input, module.num_groups, *weights, module.eps)


@translates_module(nn.Embedding)
def _embedding(g: Builder, module: nn.Embedding, path: str, input: Tensor) -> Tensor:
    """Rows of a table, by index."""
    weight = g.weight(module.weight, f"{path}.weight")
    return embedding(g, input, weight, max_norm=module.max_norm)


@translates_module(nn.PReLU)
def _prelu(g: Builder, module: nn.PReLU, path: str, input: Tensor) -> Tensor:
    """The input, times a learned slope below zero."""
    return act.prelu(g, input, g.weight(module.weight, f"{path}.weight"))


translates_module(nn.MultiheadAttention)(multihead_attention)


# -- without weights -------------------------------------------------------------------------------


def _plain(function: Function, *settings: str) -> Function:
    """Make the translation of a module that passes some of its attributes to a function, by name."""

    def translate(g: Builder, module: nn.Module, path: str, input: Tensor) -> Any:
        return function(g, input, *(getattr(module, name) for name in settings))

    translate.__doc__ = function.__doc__
    return translate


for _cls, _function, _settings in (
    (nn.ReLU, act.relu, ()),
    (nn.ReLU6, act.relu6, ()),
    (nn.SiLU, act.silu, ()),
    (nn.Mish, act.mish, ()),
    (nn.SELU, act.selu, ()),
    (nn.Hardsigmoid, act.hardsigmoid, ()),
    (nn.Hardswish, act.hardswish, ()),
    (nn.Softsign, act.softsign, ()),
    (nn.Tanhshrink, act.tanhshrink, ()),
    (nn.LogSigmoid, act.logsigmoid, ()),
    (nn.ELU, act.elu, ("alpha",)),
    (nn.CELU, act.celu, ("alpha",)),
    (nn.LeakyReLU, act.leaky_relu, ("negative_slope",)),
    (nn.Hardtanh, act.hardtanh, ("min_val", "max_val")),
    (nn.Threshold, act.threshold, ("threshold", "value")),
    (nn.RReLU, act.rrelu, ("lower", "upper", "training")),
    (nn.Softplus, act.softplus, ("beta", "threshold")),
    (nn.Softshrink, act.softshrink, ("lambd",)),
    (nn.Hardshrink, act.hardshrink, ("lambd",)),
    (nn.GLU, act.glu, ("dim",)),
    (nn.Softmax, act.softmax, ("dim",)),
    (nn.LogSoftmax, act.log_softmax, ("dim",)),
    (nn.Softmin, act.softmin, ("dim",)),
    (nn.Dropout, act.dropout, ("p", "training")),
    (nn.Dropout1d, act.dropout, ("p", "training")),
    (nn.Dropout2d, act.dropout, ("p", "training")),
    (nn.Dropout3d, act.dropout, ("p", "training")),
    (nn.AlphaDropout, act.dropout, ("p", "training")),
    (nn.FeatureAlphaDropout, act.dropout, ("p", "training")),
    (nn.Identity, views.same, ()),
    (nn.Flatten, views.reshape, ()),
    (nn.Unflatten, views.reshape, ()),
    (nn.PixelShuffle, views.pixel_shuffle, ("upscale_factor",)),
    (nn.PixelUnshuffle, views.pixel_unshuffle, ("downscale_factor",)),
    (nn.ChannelShuffle, views.channel_shuffle, ("groups",)),
    (nn.LocalResponseNorm, norm.local_response_norm, ("size", "alpha", "beta", "k")),
):
    translates_module(_cls)(_plain(_function, *_settings))

for _rank, _max, _avg, _adaptive_max, _adaptive_avg in (
    (1, nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveMaxPool1d, nn.AdaptiveAvgPool1d),
    (2, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d),
    (3, nn.MaxPool3d, nn.AvgPool3d, nn.AdaptiveMaxPool3d, nn.AdaptiveAvgPool3d),
):
    _window = ("kernel_size", "stride", "padding")
    _rest = ("dilation", "ceil_mode", "return_indices")
    translates_module(_max)(_plain(pooling.MAX_POOLS[_rank], *_window, *_rest))
    _rest = ("ceil_mode", "count_include_pad", *(("divisor_override",) if _rank > 1 else ()))
    translates_module(_avg)(_plain(pooling.AVG_POOLS[_rank], *_window, *_rest))
    _settings = ("output_size", "return_indices")
    translates_module(_adaptive_max)(_plain(pooling.ADAPTIVE_MAX_POOLS[_rank], *_settings))
    translates_module(_adaptive_avg)(_plain(pooling.ADAPTIVE_AVG_POOLS[_rank], "output_size"))


@translates_module(nn.Sigmoid)
def _sigmoid(g: Builder, module: nn.Sigmoid, path: str, input: Tensor) -> Tensor:
    """The logistic function."""
    return g.op("Sigmoid", input)


@translates_module(nn.Tanh)
def _tanh(g: Builder, module: nn.Tanh, path: str, input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return g.op("Tanh", input)


@translates_module(nn.GELU)
def _gelu(g: Builder, module: nn.GELU, path: str, input: Tensor) -> Tensor:
    """The input times the normal distribution function."""
    return act.gelu(g, input, approximate=module.approximate)


@translates_module(nn.Softmax2d)
def _softmax2d(g: Builder, module: nn.Softmax2d, path: str, input: Tensor) -> Tensor:
    """Softmax over channels."""
    return g.op("Softmax", input, axis=positive_dim(-3, input.rank))


@translates_module(nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d)
def _upsample(g: Builder, module: nn.Upsample, path: str, input: Tensor) -> Tensor:
    """Resampling to another resolution."""
    given = (module.size, module.scale_factor, module.mode, module.align_corners)
    return resampling.interpolate(g, input, *given, module.recompute_scale_factor)


def _padding(mode: str) -> Function:
    def translate(g: Builder, module: Any, path: str, input: Tensor) -> Tensor:
        """Padding."""
        value = getattr(module, "value", 0)
        return resampling.pad(g, input, module.padding, mode, value)

    return translate


for _mode, _names in (
    ("constant", ("ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "ZeroPad1d", "ZeroPad2d",
                  "ZeroPad3d")),
    ("reflect", ("ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d")),
    ("replicate", ("ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d")),
    ("circular", ("CircularPad1d", "CircularPad2d", "CircularPad3d")),
):  # fmt: skip
    translates_module(*(getattr(torch.nn, _name) for _name in _names))(_padding(_mode))
