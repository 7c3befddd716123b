"""Modules of ``torch.nn``: the translations of their functions, with weights and settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from corsac import _core
from corsac.onnx._builder import Builder, Tensor
from corsac.onnx._table import translates_module, translation_of
from corsac.onnx._types import Unsupported, positive_dim
from corsac.onnx.translations import resampling
from corsac.onnx.translations.attention import multihead_attention
from corsac.onnx.translations.convolutions import CONVOLUTIONS
from corsac.onnx.translations.normalisation import instance_norm

Function = Callable[..., Any]


def _with_attributes(
    g: Builder, function: Function, module: nn.Module, path: str, input: Tensor, **given: Any
) -> Any:
    """The value of a function of the input and of the module's attributes with the names of its parameters."""
    code = function.__code__
    for name in code.co_varnames[2 : code.co_argcount + code.co_kwonlyargcount]:
        if name not in given and hasattr(module, name):
            value = getattr(module, name)
            is_weight = isinstance(value, torch.Tensor)
            given[name] = g.weight(value, f"{path}.{name}") if is_weight else value
    return function(g, input, **given)


def _of_function(function: Function) -> Function:
    def translate(g: Builder, module: nn.Module, path: str, input: Tensor) -> Any:
        return _with_attributes(g, function, module, path, input)

    translate.__doc__ = function.__doc__
    return translate


for _name in nn.modules.__all__:
    _function = translation_of(_core.operator_of_module(_name))
    if _function is not None:
        translates_module(getattr(nn, _name))(_of_function(_function))


# -- others, in place of these ---------------------------------------------------------------------


@translates_module(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def _conv(g: Builder, module: Any, path: str, input: Tensor) -> Tensor:
    """A convolution; for padding modes other than zeros, the input is padded first."""
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
    return _with_attributes(g, CONVOLUTIONS[rank], module, path, input, padding=padding)


@translates_module(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
def _instance_norm(g: Builder, module: Any, path: str, input: Tensor) -> Tensor:
    """Normalisation over each channel of each sample."""
    if module.training and module.track_running_stats:
        raise Unsupported("it updates running statistics")
    single = input.rank == module._get_no_batch_dim()
    if single:
        input = g.reshape(input, (1, *input.shape))
    of_input = not module.track_running_stats
    result = _with_attributes(g, instance_norm, module, path, input, use_input_stats=of_input)
    return g.reshape(result, input.shape[1:]) if single else result


translates_module(nn.MultiheadAttention)(multihead_attention)


@translates_module(nn.Softmax2d)
def _softmax2d(g: Builder, module: nn.Softmax2d, path: str, input: Tensor) -> Tensor:
    """Softmax over channels."""
    return g.op("Softmax", input, axis=positive_dim(-3, input.rank))


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
