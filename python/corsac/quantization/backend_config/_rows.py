"""Rows of backends: patterns with their fused modules, modules for training and reference modules, by families."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from corsac.quantization import _dtypes, intrinsic, qat, reference
from corsac.quantization.backend_config.backend_config import (
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    ObservationType,
)
from corsac.quantization.fuser_method_mappings import (
    _fuse_linear_bn_leaky_relu,
    _sequential_wrapper2,
    fuse_conv_bn,
    fuse_conv_bn_relu,
    fuse_convtranspose_bn,
    fuse_linear_bn,
)
from corsac.quantization.intrinsic import qat as intrinsic_qat
from corsac.quantization.utils import MatchAllNode

Types = list[DTypeConfig]
Rows = list[BackendPatternConfig]

SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
OWN = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
NOT_OBSERVED = ObservationType.INPUT_OUTPUT_NOT_OBSERVED


def row(
    pattern: Any,
    types: Types,
    root: type[nn.Module] | None = None,
    made: type[nn.Module] | None = None,
    *,
    trained: type[nn.Module] | None = None,
    fuser: Callable[..., nn.Module] | None = None,
    fused: type[nn.Module] | None = None,
    observed: ObservationType = OWN,
    inputs: dict[str, int] | None = None,
    by_tensors: dict[int, ObservationType] | None = None,
) -> BackendPatternConfig:
    """A pattern with types; its root module, the reference module made from that, and its module for training."""
    config = BackendPatternConfig(pattern).set_observation_type(observed).set_dtype_configs(types)
    config.root_module = root
    config.reference_quantized_module = made
    config.qat_module = trained
    config.fuser_method = fuser
    config.fused_module = fused
    config._input_type_to_index = inputs or {}
    config._num_tensor_args_to_observation_type = by_tensors or {}
    return config


def rows(patterns: Iterable[Any], types: Types, observed: ObservationType) -> Rows:
    """Rows that differ in their patterns only."""
    return [row(pattern, types, observed=observed) for pattern in patterns]


def _fused_by_two(root: Any, second: Iterable[Any], fused: type[nn.Module], types: Types) -> Rows:
    fuser = _sequential_wrapper2(fused)
    return [row((root, other), types, fuser=fuser, fused=fused) for other in second]


_WEIGHT_AND_BIAS = {"weight": 1, "bias": 2}


def linear(types: Types) -> Rows:
    """The linear layer, and the function."""
    root, made = nn.Linear, reference.Linear
    return [
        row(root, types, root, made, trained=qat.Linear),
        row(qat.Linear, types, root, made),
        row(F.linear, types, inputs=_WEIGHT_AND_BIAS),
    ]


def fused_linear(types: Types) -> Rows:
    """Linear layers and what follows them."""
    root, made = nn.Linear, reference.Linear
    relu, bn = intrinsic.LinearReLU, intrinsic.LinearBn1d
    return [
        *_fused_by_two(root, (nn.ReLU, F.relu), relu, types),
        row(relu, types, root, made, trained=intrinsic_qat.LinearReLU),
        row(intrinsic_qat.LinearReLU, types, root, made),
        *rows([(F.linear, nn.ReLU), (F.linear, F.relu)], types, OWN),
        row((root, nn.BatchNorm1d), types, fuser=fuse_linear_bn, fused=bn),
        row(bn, types, root, made, trained=intrinsic_qat.LinearBn1d),
        row(intrinsic_qat.LinearBn1d, types, root, made),
    ]


def linear_activations(types: Types) -> Rows:
    """oneDNN's linear layers with leaky ReLU and tanh."""
    root, made = nn.Linear, reference.Linear
    found = []
    for module, function, fused in (
        (nn.LeakyReLU, F.leaky_relu, intrinsic.LinearLeakyReLU),
        (nn.Tanh, torch.tanh, intrinsic.LinearTanh),
    ):
        found += [
            *_fused_by_two(root, (module, function), fused, types),
            row(fused, types, root, made),
            *rows([(F.linear, module), (F.linear, function)], types, OWN),
        ]
        if module is nn.LeakyReLU:
            pattern = root, nn.BatchNorm1d, module
            found.append(
                row(
                    pattern,
                    types,
                    fuser=_fuse_linear_bn_leaky_relu,
                    fused=intrinsic.LinearLeakyReLU,
                )
            )
    return found


@dataclass(frozen=True)
class Convolutions:
    """Modules and functions of convolutions of one, two or three dimensions."""

    dimensions: int

    def of(self, package: Any, name: str) -> Any:
        return getattr(package, name.format(self.dimensions))

    def rows(self, types: Types, transposed: bool = True) -> Rows:
        root, made = self.of(nn, "Conv{}d"), self.of(reference, "Conv{}d")
        bn, function = self.of(nn, "BatchNorm{}d"), self.of(F, "conv{}d")
        trained = self.of(qat, "Conv{}d")
        conv_relu, conv_bn, conv_bn_relu = (
            self.of(intrinsic, name) for name in ("ConvReLU{}d", "ConvBn{}d", "ConvBnReLU{}d")
        )
        trained_relu, trained_bn, trained_bn_relu = (
            self.of(intrinsic_qat, name) for name in ("ConvReLU{}d", "ConvBn{}d", "ConvBnReLU{}d")
        )
        found = [
            row(root, types, root, made, trained=trained),
            row(trained, types, root, made),
            row(function, types, inputs=_WEIGHT_AND_BIAS),
            *_fused_by_two(root, (nn.ReLU, F.relu), conv_relu, types),
            row(conv_relu, types, trained=trained_relu),
            row(trained_relu, types, root, made),
            *rows([(function, nn.ReLU), (function, F.relu)], types, OWN),
            row((root, bn), types, fuser=fuse_conv_bn, fused=conv_bn),
            row((root, bn, nn.ReLU), types, fuser=fuse_conv_bn_relu, fused=conv_bn_relu),
            row((root, bn, F.relu), types, root, fuser=fuse_conv_bn_relu, fused=conv_bn_relu),
            row(conv_bn, types, trained=trained_bn),
            row(conv_bn_relu, types, trained=trained_bn_relu),
            row(trained_bn, types, root, made),
            row(trained_bn_relu, types, root, made),
        ]
        if transposed:
            root, made = self.of(nn, "ConvTranspose{}d"), self.of(reference, "ConvTranspose{}d")
            function = self.of(F, "conv_transpose{}d")
            found += [
                row(root, types, root, made),
                row((root, bn), types, root, made, fuser=fuse_convtranspose_bn),
                row(function, types, inputs=_WEIGHT_AND_BIAS),
            ]
        return found


def convolutions(types: Types) -> Rows:
    """Convolutions and what follows them."""
    return [found for dimensions in (1, 2, 3) for found in Convolutions(dimensions).rows(types)]


def convolution_2d(types: Types) -> Rows:
    """Convolutions of two dimensions, without transposed ones."""
    return Convolutions(2).rows(types, transposed=False)


def convolution_sums(types: Types) -> Rows:
    """oneDNN's convolutions to which another value is added, before ReLU or not."""
    return [
        *_sums(types, intrinsic.ConvAdd2d, None),
        row(intrinsic.ConvAdd2d, types, nn.Conv2d, reference.Conv2d),
        *_sums(types, intrinsic.ConvAddReLU2d, nn.ReLU),
        row(intrinsic.ConvAddReLU2d, types, nn.Conv2d, reference.Conv2d),
    ]


def _sums(types: Types, fused: type[nn.Module], relu: type[nn.Module] | None) -> Rows:
    """Sums with the convolution on the left, then on the right; with a batch norm, then without one."""
    return [
        _sum(types, fused, relu, side, with_bn, add)
        for side in (0, 1)
        for with_bn in (True, False)
        for add in (torch.add, operator.add)
    ]


def _sum(
    types: Types,
    fused: type[nn.Module],
    relu: type[nn.Module] | None,
    side: int,
    with_bn: bool,
    add: Callable[..., Any],
) -> BackendPatternConfig:
    def parts(matched: tuple[Any, ...]) -> tuple[Any, Any, Any, Any, Any]:
        """The ReLU, the sum, the batch norm, the convolution, and the other summand, of a match."""
        outer, matched = (None, matched) if relu is None else matched
        conv, bn = matched[1 + side], None
        if with_bn:
            bn, conv = conv
        return outer, matched[0], bn, conv, matched[2 - side]

    def fuse(is_qat: bool, *matched: Any) -> nn.Module:
        outer, inner, bn, conv, _ = parts(matched)
        if bn is not None:
            if is_qat:
                raise NotImplementedError(
                    "no fused module for training for Conv2d, BatchNorm2d, add"
                )
            conv = fuse_conv_bn_eval(conv, bn)
        return fused(conv, inner) if relu is None else fused(conv, inner, outer)

    sides = [MatchAllNode, MatchAllNode]
    sides[side] = (nn.BatchNorm2d, nn.Conv2d) if with_bn else nn.Conv2d
    pattern = (add, *sides)
    config = row(None, types, fuser=fuse, fused=fused)
    return (
        config._set_pattern_complex_format(pattern if relu is None else (relu, pattern))
        ._set_root_node_getter(lambda matched: parts(matched)[3])
        ._set_extra_inputs_getter(lambda matched: [parts(matched)[4]])
    )


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


def batch_norm(types: Types) -> Rows:
    """Batch norms that are not folded into a convolution, with ReLU or without it."""
    pairs = ((nn.BatchNorm2d, intrinsic.BNReLU2d), (nn.BatchNorm3d, intrinsic.BNReLU3d))
    return [
        *(
            found
            for bn, fused in pairs
            for found in (*_fused_by_two(bn, (nn.ReLU, F.relu), fused, types), row(bn, types))
        ),
        *rows([fused for _, fused in pairs], types, OWN),
    ]


def batch_norm_2d(types: Types) -> Rows:
    return [row(nn.BatchNorm2d, types)]


def recurrent(types: Types) -> Rows:
    """Recurrent layers and cells."""
    return [
        row(getattr(nn, name), types, getattr(nn, name), getattr(reference, name, None))
        for name in ("GRUCell", "LSTMCell", "RNNCell", "LSTM", "GRU")
    ]


def embeddings(types: Types, function: bool = False) -> Rows:
    """Embeddings and bags of them."""
    found = []
    for name in ("Embedding", "EmbeddingBag"):
        root, trained, made = (getattr(package, name) for package in (nn, qat, reference))
        found += [row(root, types, root, made, trained=trained), row(trained, types, root, made)]
        if function and name == "Embedding":
            found.append(row(F.embedding, types, inputs={"weight": 1}))
    return found


def executorch_embeddings(types: Types) -> Rows:
    return embeddings(types, function=True)


def tensor_facts(types: Types) -> Rows:
    """Operators that return facts about a tensor."""
    return rows(["shape", "size"], types, NOT_OBSERVED)
