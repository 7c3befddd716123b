"""Rows of backends: patterns of operators without a weight, by families."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from corsac.quantization import _dtypes
from corsac.quantization.backend_config.backend_config import (
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    ObservationType,
)

Types = list[DTypeConfig]
Rows = list[BackendPatternConfig]

SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
OWN = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
NOT_OBSERVED = ObservationType.INPUT_OUTPUT_NOT_OBSERVED


def row(
    pattern: Any,
    types: Types,
    root: type[nn.Module] | None = None,
    reference: type[nn.Module] | None = None,
    *,
    qat: type[nn.Module] | None = None,
    fuser: Callable[..., nn.Module] | None = None,
    fused: type[nn.Module] | None = None,
    observed: ObservationType = OWN,
    inputs: dict[str, int] | None = None,
    by_tensors: dict[int, ObservationType] | None = None,
) -> BackendPatternConfig:
    """A pattern with types; its root module, the reference module for that, and its module for training."""
    config = BackendPatternConfig(pattern).set_observation_type(observed).set_dtype_configs(types)
    config.root_module = root
    config.reference_quantized_module = reference
    config.qat_module = qat
    config.fuser_method = fuser
    config.fused_module = fused
    config._input_type_to_index = inputs or {}
    config._num_tensor_args_to_observation_type = by_tensors or {}
    return config


def rows(patterns: Iterable[Any], types: Types, observed: ObservationType) -> Rows:
    """Rows that differ in their patterns only."""
    return [row(pattern, types, observed=observed) for pattern in patterns]


def binary(
    types: Types, operators: Iterable[Any] = (operator.add, torch.add, operator.mul, torch.mul)
) -> Rows:
    """Operators of two values, with ReLU or without it; with a number, the result shares the observer."""
    by_tensors = {0: OWN, 1: SHARED, 2: OWN}
    return [
        row(pattern, types, by_tensors=dict(by_tensors))
        for function in operators
        for pattern in (
            (function, nn.ReLU),
            (function, F.relu),
            (function, torch.relu),
            function,
        )
    ]


def matmul(types: Types) -> Rows:
    return [row(torch.matmul, types)]


def addmm(types: Types) -> Rows:
    return [row(torch.addmm, types, inputs={"bias": 0, "input": 1, "weight": 2})]


def cat(types: Types) -> Rows:
    return rows([torch.cat], types, SHARED)


def layer_norm(types: Types) -> Rows:
    return [
        row(nn.LayerNorm, types),
        row(F.layer_norm, types, inputs={"weight": 2, "bias": 3}),
    ]


def default(types: Types) -> Rows:
    """Activations and norms with observers of their own."""
    operators = (
        nn.ELU,
        nn.LeakyReLU,
        nn.Hardswish,
        nn.InstanceNorm1d,
        nn.InstanceNorm2d,
        nn.InstanceNorm3d,
        nn.Dropout,
        nn.PReLU,
        F.elu,
        F.hardswish,
        F.leaky_relu,
        F.dropout,
    )
    return [
        *rows(operators, types, OWN),
        row(F.group_norm, types, inputs={"weight": 2, "bias": 3}),
        row(F.instance_norm, types, inputs={"weight": 3, "bias": 4}),
    ]


_UINT8 = {
    "dtype": _dtypes.quint8,
    "quant_min_lower_bound": 0,
    "quant_max_upper_bound": 255,
}
_0_TO_1 = DTypeWithConstraints(**_UINT8, scale_exact_match=1.0 / 256.0, zero_point_exact_match=0)
_NEG1_TO_1 = DTypeWithConstraints(
    **_UINT8, scale_exact_match=2.0 / 256.0, zero_point_exact_match=128
)
#: Operators with results in a known range.
_FIXED_QPARAMS_OP_TO_CONSTRAINTS: dict[Any, DTypeWithConstraints] = {
    **dict.fromkeys(
        (
            nn.Hardsigmoid,
            F.hardsigmoid,
            "hardsigmoid",
            "hardsigmoid_",
            nn.Sigmoid,
            torch.sigmoid,
            "sigmoid",
            "sigmoid_",
            nn.Softmax,
        ),
        _0_TO_1,
    ),
    **dict.fromkeys((nn.Tanh, torch.tanh, "tanh", "tanh_"), _NEG1_TO_1),
}


def _add_fixed_qparams_to_dtype_configs(types: Types, limits: DTypeWithConstraints) -> Types:
    """Copies of types, with the scale and the zero point of an operator where the type is the same."""
    found = copy.deepcopy(types)
    for config in found:
        for own in (config.input_dtype_with_constraints, config.output_dtype_with_constraints):
            if own.dtype != limits.dtype:
                continue
            if own.scale_min_lower_bound is not None or own.scale_max_upper_bound is not None:
                raise ValueError(
                    f"an operator with a known range of results has no limits of its scale, got {config}"
                )
            for name in (
                "quant_min_lower_bound",
                "quant_max_upper_bound",
                "scale_exact_match",
                "zero_point_exact_match",
            ):
                setattr(own, name, getattr(limits, name))
    return found


def fixed(types: Types) -> Rows:
    """Operators with results in a known range."""
    return [
        row(pattern, _add_fixed_qparams_to_dtype_configs(types, limits))
        for pattern, limits in _FIXED_QPARAMS_OP_TO_CONSTRAINTS.items()
    ]


def sharing(types: Types) -> Rows:
    """Operators that keep values, or most of them: their result has the parameters of their input."""
    operators = (
        nn.AdaptiveAvgPool1d,
        nn.AdaptiveAvgPool2d,
        nn.AdaptiveAvgPool3d,
        nn.AvgPool1d,
        nn.AvgPool2d,
        nn.AvgPool3d,
        nn.Hardtanh,
        nn.Identity,
        nn.MaxPool1d,
        nn.MaxPool2d,
        nn.MaxPool3d,
        nn.PixelShuffle,
        nn.PixelUnshuffle,
        nn.ReLU,
        nn.ReLU6,
        torch.adaptive_avg_pool1d,
        F.adaptive_avg_pool2d,
        F.adaptive_avg_pool3d,
        F.hardtanh,
        F.hardtanh_,
        F.interpolate,
        F.max_pool1d,
        F.max_pool2d,
        F.max_pool3d,
        F.pixel_shuffle,
        F.pixel_unshuffle,
        F.relu,
        F.relu6,
        torch.avg_pool1d,
        F.avg_pool2d,
        F.avg_pool3d,
        torch.clamp,
        torch.flatten,
        torch.mean,
        torch.narrow,
        torch.repeat_interleave,
        torch.transpose,
        torch.squeeze,
        torch.stack,
        torch.unsqueeze,
        operator.floordiv,
        *[
            "contiguous",
            "clamp",
            "detach",
            "detach_",
            "mean",
            "permute",
            "repeat",
            "repeat_interleave",
            "reshape",
            "resize_",
            "relu",
            "relu_",
            "squeeze",
            "squeeze_",
            "transpose",
            "unsqueeze",
            "unsqueeze_",
            "view",
        ],
    )
    return rows(operators, types, SHARED)


def executorch_sharing(types: Types) -> Rows:
    """The operators of ExecuTorch the result of which has the parameters of their input."""
    operators = (
        nn.Flatten,
        F.adaptive_avg_pool2d,
        F.elu,
        F.hardtanh,
        F.max_pool2d,
        F.pad,
        F.relu,
        F.relu6,
        F.leaky_relu,
        F.leaky_relu_,
        nn.AdaptiveAvgPool2d,
        nn.ConstantPad2d,
        nn.ELU,
        nn.MaxPool2d,
        nn.ReLU6,
        nn.Hardtanh,
        nn.LeakyReLU,
        torch.clamp,
        torch.flatten,
        torch.mean,
        torch.permute,
        torch.permute_copy,
        torch.squeeze,
        *[
            "clamp",
            "mean",
            "permute",
            "reshape",
            "relu",
            "relu_",
            "squeeze",
            "squeeze_",
            "leaky_relu",
        ],
    )
    return rows(operators, types, SHARED)


def executorch_binary(types: Types) -> Rows:
    return binary(
        types,
        (operator.add, torch.add, operator.sub, torch.sub, operator.mul, torch.mul),
    )


def executorch_cat(types: Types) -> Rows:
    return rows([torch.cat, torch.concat, torch.concatenate], types, SHARED)


def tensor_facts(types: Types) -> Rows:
    """Operators that return facts about a tensor."""
    return rows(["shape", "size"], types, NOT_OBSERVED)
