"""Fused modules with fake-quantised weights, for training. The names are those of ``torch.ao.nn.intrinsic.qat``.

A batch norm is folded into the weight before that is rounded, by its running statistics, so that the rounded weight is
that of inference. In training the scale is taken out of the result again, and the batch norm is applied. See
https://arxiv.org/abs/1806.08342, section 3.2.2.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import init
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from corsac.quantization import intrinsic, qat
from corsac.quantization._kinds import is_a

__all__ = [
    "ConvBn1d",
    "ConvBn2d",
    "ConvBn3d",
    "ConvBnReLU1d",
    "ConvBnReLU2d",
    "ConvBnReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearBn1d",
    "LinearReLU",
    "freeze_bn_stats",
    "update_bn_stats",
]


class _WithReLU:
    """A layer and ReLU; the layer is the other base class."""

    #: The class of the fused module without fake quantisation, and without a batch norm.
    _FUSED_FLOAT_MODULE: ClassVar[type[nn.Module]]

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(super().forward(input))

    def to_float(self) -> nn.Module:
        """The fused module without fake quantisation, with copies of the parameters."""
        return self._FUSED_FLOAT_MODULE(super().to_float(), nn.ReLU()).train(self.training)


class _WithBatchNorm:
    """A layer and a batch norm, ``bn``; the layer is the other base class.

    ``freeze_bn`` stops the statistics of the batch norm, also in training.
    """

    bn: nn.Module
    freeze_bn: bool

    def _add_batch_norm(self, bn: nn.Module, freeze_bn: bool, qconfig: Any) -> None:
        self.bn = bn
        self._set_qconfig(qconfig)
        self.reset_bn_parameters()
        if freeze_bn:
            self.freeze_bn_stats()
        else:
            self.update_bn_stats()

    def reset_running_stats(self) -> None:
        self.bn.reset_running_stats()

    def reset_bn_parameters(self) -> None:
        self.bn.reset_running_stats()
        init.uniform_(self.bn.weight)
        init.zeros_(self.bn.bias)

    def update_bn_stats(self) -> Any:
        self.freeze_bn = False
        self.bn.training = True
        return self

    def freeze_bn_stats(self) -> Any:
        self.freeze_bn = True
        self.bn.training = False
        return self

    def train(self, mode: bool = True) -> Any:
        """Set the mode; that of a frozen batch norm stays."""
        self.training = mode
        if not self.freeze_bn:
            for module in self.children():
                module.train(mode)
        return self

    def _over_channels(self, values: Tensor, dimension: int) -> Tensor:
        """Values per channel, so that they broadcast along a dimension of a weight or a result."""
        shape = [1] * self.weight.dim()
        shape[dimension] = -1
        return values.reshape(shape)

    def _running_std(self) -> Tensor:
        return torch.sqrt(self.bn.running_var + self.bn.eps)

    def _folded_weight(self, factor: Tensor) -> Tensor:
        """The weight times a factor per channel, rounded."""
        return self.weight_fake_quant(self.weight * self._over_channels(factor, 0))

    def _layer(self, input: Tensor, weight: Tensor) -> Tensor:
        """The layer without its bias."""
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        factor = self.bn.weight / self._running_std()
        result = self._layer(input, self._folded_weight(factor)) / self._over_channels(factor, 1)
        if self.bias is not None:
            result = result + self._over_channels(self.bias, 1)
        return self.bn(result)

    def _take(self, layer: nn.Module, bn: nn.Module) -> None:
        """Share the parameters and statistics of a layer and a batch norm."""
        self.weight = layer.weight
        self.bias = layer.bias
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            setattr(self.bn, name, getattr(bn, name))

    def _fold(self, layer: nn.Module, fuse: Any) -> nn.Module:
        """``layer`` with the weight and the bias of this one and its batch norm."""
        bn = self.bn
        layer.weight, layer.bias = fuse(
            self.weight, self.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
        )
        return layer.train(self.training)


class LinearReLU(_WithReLU, qat.Linear, intrinsic._FusedModule):
    """Linear, ReLU.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.intrinsic.qat.LinearReLU.html
    """

    _FLOAT_MODULE = _FUSED_FLOAT_MODULE = intrinsic.LinearReLU


class LinearBn1d(_WithBatchNorm, qat._FakeQuantizedWeight, nn.Linear, intrinsic._FusedModule):
    """Linear, BatchNorm1d."""

    _FLOAT_MODULE = intrinsic.LinearBn1d

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        eps: float = 1e-05,
        momentum: float = 0.1,
        freeze_bn: bool = False,
        qconfig: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias)
        self._add_batch_norm(nn.BatchNorm1d(out_features, eps, momentum), freeze_bn, qconfig)

    def _layer(self, input: Tensor, weight: Tensor) -> Tensor:
        return F.linear(input, weight, weight.new_zeros(self.out_features))

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: bool = False) -> LinearBn1d:
        """The module for training of a fused module with a ``qconfig``; parameters are shared."""
        _, qconfig = cls._checked(mod)
        linear, bn = mod[0], mod[1]
        made = cls(
            linear.in_features,
            linear.out_features,
            linear.bias is not None,
            bn.eps,
            bn.momentum,
            False,
            qconfig,
        )
        made._take(linear, bn)
        return made

    def to_float(self) -> nn.Module:
        """A linear layer with the batch norm folded into it."""
        return self._fold(nn.Linear(self.in_features, self.out_features), fuse_linear_bn_weights)


class _ConvBn(_WithBatchNorm, qat._FakeQuantizedWeight):
    """A convolution and a batch norm; the convolution is the other base class."""

    # Version 1 had the parameters of the batch norm as its own.
    _version = 2
    _FLOAT_CONV_MODULE: ClassVar[type[nn.Module]]
    _FLOAT_BN_MODULE: ClassVar[type[nn.Module]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: str | int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool | None = None,
        padding_mode: str = "zeros",
        eps: float = 1e-05,
        momentum: float = 0.1,
        freeze_bn: bool = False,
        qconfig: Any = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            False,
            padding_mode,
        )
        if bias:
            self.bias = nn.Parameter(torch.empty(out_channels))
        bn = self._FLOAT_BN_MODULE(out_channels, eps, momentum)
        self._add_batch_norm(bn, freeze_bn, qconfig)
        self._enable_slow_path_for_better_numerical_stability = False

    def reset_bn_parameters(self) -> None:
        super().reset_bn_parameters()
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in)
            init.uniform_(self.bias, -bound, bound)

    def _layer(self, input: Tensor, weight: Tensor) -> Tensor:
        zeros = torch.zeros(self.out_channels, device=weight.device, dtype=input.dtype)
        return self._conv_forward(input, weight, zeros)

    def forward(self, input: Tensor) -> Tensor:
        if self._enable_slow_path_for_better_numerical_stability:
            return self._forward_slow(input)
        return super().forward(input)

    def _forward_slow(self, input: Tensor) -> Tensor:
        """The result with two convolutions in training, which needs no division by the batch norm's weight.

        With the statistics of the batch, mean and std, of the convolution without its bias, the result is
        ``conv(x, rounded(w * bn.weight / running_std)) * running_std / std + bn.bias - bn.weight * mean / std``.
        """
        bn = self.bn
        if bn.training:
            plain = self._layer(input, self.weight)
            with torch.no_grad():  # updates the running statistics
                bn(plain if self.bias is None else plain + self._over_channels(self.bias, 1))
        running_std = self._running_std()
        result = self._layer(input, self._folded_weight(bn.weight / running_std))
        if bn.training:
            dimensions = [0, *range(2, self.weight.dim())]
            mean = plain.mean(dimensions)
            variance = torch.square(plain - self._over_channels(mean, 1)).mean(dimensions)
            std = torch.sqrt(variance + bn.eps)
            result *= self._over_channels(running_std / std, 1)
        else:
            mean = bn.running_mean - (0 if self.bias is None else self.bias)
            std = running_std
        result += self._over_channels(bn.bias - bn.weight * mean / std, 1)
        if self.bias is not None:  # distributed training expects that each parameter has a gradient
            result += self._over_channels(self.bias - self.bias, 1)
        return result

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: bool = False) -> Any:
        """The module for training of a fused module with a ``qconfig``; parameters are shared."""
        _, qconfig = cls._checked(mod)
        conv, bn = mod[0], mod[1]
        made = cls(
            conv.in_channels,
            conv.out_channels,
            conv.kernel_size,
            conv.stride,
            conv.padding,
            conv.dilation,
            conv.groups,
            conv.bias is not None,
            conv.padding_mode,
            bn.eps,
            bn.momentum,
            False,
            qconfig,
        )
        made._take(conv, bn)
        return made

    def to_float(self) -> nn.Module:
        """A convolution with the batch norm folded into it."""
        return self._fold(qat._float_conv(self), fuse_conv_bn_weights)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        if local_metadata.get("version") in (None, 1):
            for new, old in (
                ("bn.weight", "gamma"),
                ("bn.bias", "beta"),
                ("bn.running_mean", "running_mean"),
                ("bn.running_var", "running_var"),
                ("bn.num_batches_tracked", "num_batches_tracked"),
            ):
                if prefix + old in state_dict:
                    state_dict[prefix + new] = state_dict.pop(prefix + old)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class ConvBn1d(_ConvBn, nn.Conv1d, intrinsic._FusedModule):
    """Conv1d, BatchNorm1d.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.intrinsic.qat.ConvBn1d.html
    """

    _FLOAT_MODULE: ClassVar[type[nn.Module]] = intrinsic.ConvBn1d
    _FLOAT_CONV_MODULE = nn.Conv1d
    _FLOAT_BN_MODULE = nn.BatchNorm1d


class ConvBnReLU1d(_WithReLU, ConvBn1d):
    """Conv1d, BatchNorm1d, ReLU.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.intrinsic.qat.ConvBnReLU1d.html
    """

    _FLOAT_MODULE = intrinsic.ConvBnReLU1d
    _FUSED_FLOAT_MODULE = intrinsic.ConvReLU1d


class ConvReLU1d(_WithReLU, qat.Conv1d, intrinsic._FusedModule):
    """Conv1d, ReLU."""

    _FLOAT_MODULE = _FUSED_FLOAT_MODULE = intrinsic.ConvReLU1d


class ConvBn2d(_ConvBn, nn.Conv2d, intrinsic._FusedModule):
    """Conv2d, BatchNorm2d.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.intrinsic.qat.ConvBn2d.html
    """

    _FLOAT_MODULE: ClassVar[type[nn.Module]] = intrinsic.ConvBn2d
    _FLOAT_CONV_MODULE = nn.Conv2d
    _FLOAT_BN_MODULE = nn.BatchNorm2d


class ConvBnReLU2d(_WithReLU, ConvBn2d):
    """Conv2d, BatchNorm2d, ReLU.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.intrinsic.qat.ConvBnReLU2d.html
    """

    _FLOAT_MODULE = intrinsic.ConvBnReLU2d
    _FUSED_FLOAT_MODULE = intrinsic.ConvReLU2d


class ConvReLU2d(_WithReLU, qat.Conv2d, intrinsic._FusedModule):
    """Conv2d, ReLU."""

    _FLOAT_MODULE = _FUSED_FLOAT_MODULE = intrinsic.ConvReLU2d


class ConvBn3d(_ConvBn, nn.Conv3d, intrinsic._FusedModule):
    """Conv3d, BatchNorm3d.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.intrinsic.qat.ConvBn3d.html
    """

    _FLOAT_MODULE: ClassVar[type[nn.Module]] = intrinsic.ConvBn3d
    _FLOAT_CONV_MODULE = nn.Conv3d
    _FLOAT_BN_MODULE = nn.BatchNorm3d


class ConvBnReLU3d(_WithReLU, ConvBn3d):
    """Conv3d, BatchNorm3d, ReLU.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.intrinsic.qat.ConvBnReLU3d.html
    """

    _FLOAT_MODULE = intrinsic.ConvBnReLU3d
    _FUSED_FLOAT_MODULE = intrinsic.ConvReLU3d


class ConvReLU3d(_WithReLU, qat.Conv3d, intrinsic._FusedModule):
    """Conv3d, ReLU."""

    _FLOAT_MODULE = _FUSED_FLOAT_MODULE = intrinsic.ConvReLU3d


def update_bn_stats(mod: nn.Module) -> None:
    """Let the statistics of a batch norm change in training: ``model.apply(update_bn_stats)``."""
    if _has_batch_norm(mod):
        mod.update_bn_stats()


def freeze_bn_stats(mod: nn.Module) -> None:
    """Stop the statistics of a batch norm, also in training: ``model.apply(freeze_bn_stats)``."""
    if _has_batch_norm(mod):
        mod.freeze_bn_stats()


def _has_batch_norm(mod: nn.Module) -> bool:
    # LinearBn1d, and the base class of convolutions here and in torch.ao.
    return is_a(mod, "_ConvBn", "_ConvBnNd", "LinearBn1d") and hasattr(mod, "freeze_bn_stats")
