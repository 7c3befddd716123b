"""Rows of backends: layers with their fused modules, modules for training and reference modules, by families."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from corsac.quantization import intrinsic, qat, reference
from corsac.quantization.backend_config._rows import OWN, Rows, Types, row, rows
from corsac.quantization.backend_config.backend_config import BackendPatternConfig
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


def _fused_by_two(root: Any, second: Iterable[Any], fused: type[nn.Module], types: Types) -> Rows:
    fuser = _sequential_wrapper2(fused)
    return [row((root, other), types, fuser=fuser, fused=fused) for other in second]


_WEIGHT_AND_BIAS = {"weight": 1, "bias": 2}


def linear(types: Types) -> Rows:
    """The linear layer, and the function."""
    root, ref = nn.Linear, reference.Linear
    return [
        row(root, types, root, ref, qat=qat.Linear),
        row(qat.Linear, types, root, ref),
        row(F.linear, types, inputs=_WEIGHT_AND_BIAS),
    ]


def fused_linear(types: Types) -> Rows:
    """Linear layers and what follows them."""
    root, ref = nn.Linear, reference.Linear
    relu, bn = intrinsic.LinearReLU, intrinsic.LinearBn1d
    return [
        *_fused_by_two(root, (nn.ReLU, F.relu), relu, types),
        row(relu, types, root, ref, qat=intrinsic_qat.LinearReLU),
        row(intrinsic_qat.LinearReLU, types, root, ref),
        *rows([(F.linear, nn.ReLU), (F.linear, F.relu)], types, OWN),
        row((root, nn.BatchNorm1d), types, fuser=fuse_linear_bn, fused=bn),
        row(bn, types, root, ref, qat=intrinsic_qat.LinearBn1d),
        row(intrinsic_qat.LinearBn1d, types, root, ref),
    ]


def linear_activations(types: Types) -> Rows:
    """oneDNN's linear layers with leaky ReLU and tanh."""
    root, ref = nn.Linear, reference.Linear
    found = []
    for module, function, fused in (
        (nn.LeakyReLU, F.leaky_relu, intrinsic.LinearLeakyReLU),
        (nn.Tanh, torch.tanh, intrinsic.LinearTanh),
    ):
        found += [
            *_fused_by_two(root, (module, function), fused, types),
            row(fused, types, root, ref),
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
        root, ref = self.of(nn, "Conv{}d"), self.of(reference, "Conv{}d")
        bn, function = self.of(nn, "BatchNorm{}d"), self.of(F, "conv{}d")
        qat_conv = self.of(qat, "Conv{}d")
        conv_relu, conv_bn, conv_bn_relu = (
            self.of(intrinsic, name) for name in ("ConvReLU{}d", "ConvBn{}d", "ConvBnReLU{}d")
        )
        qat_relu, qat_bn, qat_bn_relu = (
            self.of(intrinsic_qat, name) for name in ("ConvReLU{}d", "ConvBn{}d", "ConvBnReLU{}d")
        )
        found = [
            row(root, types, root, ref, qat=qat_conv),
            row(qat_conv, types, root, ref),
            row(function, types, inputs=_WEIGHT_AND_BIAS),
            *_fused_by_two(root, (nn.ReLU, F.relu), conv_relu, types),
            row(conv_relu, types, qat=qat_relu),
            row(qat_relu, types, root, ref),
            *rows([(function, nn.ReLU), (function, F.relu)], types, OWN),
            row((root, bn), types, fuser=fuse_conv_bn, fused=conv_bn),
            row((root, bn, nn.ReLU), types, fuser=fuse_conv_bn_relu, fused=conv_bn_relu),
            row((root, bn, F.relu), types, root, fuser=fuse_conv_bn_relu, fused=conv_bn_relu),
            row(conv_bn, types, qat=qat_bn),
            row(conv_bn_relu, types, qat=qat_bn_relu),
            row(qat_bn, types, root, ref),
            row(qat_bn_relu, types, root, ref),
        ]
        if transposed:
            root, ref = self.of(nn, "ConvTranspose{}d"), self.of(reference, "ConvTranspose{}d")
            function = self.of(F, "conv_transpose{}d")
            found += [
                row(root, types, root, ref),
                row((root, bn), types, root, ref, fuser=fuse_convtranspose_bn),
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
        root, layer, ref = (getattr(package, name) for package in (nn, qat, reference))
        found += [row(root, types, root, ref, qat=layer), row(layer, types, root, ref)]
        if function and name == "Embedding":
            found.append(row(F.embedding, types, inputs={"weight": 1}))
    return found


def executorch_embeddings(types: Types) -> Rows:
    return embeddings(types, function=True)
