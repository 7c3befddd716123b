"""Functions that fuse modules. The names are those of ``torch.ao.quantization.fuser_method_mappings``.

A fuser takes ``is_qat`` and modules in the order of the computation. For inference a batch norm is folded into the layer
before it; for training a fused module keeps both.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from corsac.quantization import intrinsic
from corsac.quantization._grouped_norms import fold_transposed
from corsac.quantization._kinds import is_a
from corsac.quantization.utils import MatchAllNode, get_combined_dict

__all__ = [
    "fuse_conv_bn",
    "fuse_conv_bn_relu",
    "fuse_convtranspose_bn",
    "fuse_linear_bn",
    "get_fuser_method",
    "get_fuser_method_new",
]


def _names(*modules: nn.Module) -> str:
    return ", ".join(type(module).__name__ for module in modules)


def _require_one_mode(*modules: nn.Module) -> None:
    if len({module.training for module in modules}) > 1:
        modes = ", ".join("train" if module.training else "eval" for module in modules)
        raise AssertionError(f"{_names(*modules)}: expected one mode, train or eval, got {modes}")


def _require_foldable(layer: nn.Module, bn: Any) -> None:
    channels = layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels
    if bn.num_features != channels:
        raise AssertionError(
            f"{_names(layer, bn)}: expected as many features as the {channels} channels, got {bn.num_features}"
        )
    for setting in ("affine", "track_running_stats"):
        if not getattr(bn, setting):
            raise AssertionError(f"{_names(layer, bn)}: expected a batch norm with {setting}")


def _class_for(layer: nn.Module, classes: dict[type, type], *modules: nn.Module) -> type:
    if type(layer) not in classes:
        mode = "train" if layer.training else "eval"
        raise NotImplementedError(f"no fused module in {mode} mode for {_names(*modules)}")
    return classes[type(layer)]


_CONV_BN = {
    nn.Conv1d: intrinsic.ConvBn1d,
    nn.Conv2d: intrinsic.ConvBn2d,
    nn.Conv3d: intrinsic.ConvBn3d,
}
_CONV_BN_RELU = {
    nn.Conv1d: intrinsic.ConvBnReLU1d,
    nn.Conv2d: intrinsic.ConvBnReLU2d,
    nn.Conv3d: intrinsic.ConvBnReLU3d,
}
_CONV_RELU = {
    nn.Conv1d: intrinsic.ConvReLU1d,
    nn.Conv2d: intrinsic.ConvReLU2d,
    nn.Conv3d: intrinsic.ConvReLU3d,
}


def fuse_conv_bn(is_qat: bool, conv: nn.Module, bn: nn.Module) -> nn.Module:
    """A convolution with a batch norm folded into it, or a ``ConvBn`` module for training.

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """
    _require_one_mode(conv, bn)
    if not is_qat:
        return fuse_conv_bn_eval(conv, bn)
    _require_foldable(conv, bn)
    return _class_for(conv, _CONV_BN, conv, bn)(conv, bn)


def fuse_conv_bn_relu(is_qat: bool, conv: nn.Module, bn: nn.Module, relu: nn.Module) -> nn.Module:
    """A ``ConvReLU`` module with a batch norm folded into it, or a ``ConvBnReLU`` module for training."""
    _require_one_mode(conv, bn, relu)
    if not is_qat:
        fused = _class_for(conv, _CONV_RELU, conv, bn, relu)
        return fused(fuse_conv_bn_eval(conv, bn), relu)
    _require_foldable(conv, bn)
    return _class_for(conv, _CONV_BN_RELU, conv, bn, relu)(conv, bn, relu)


def fuse_linear_bn(is_qat: bool, linear: nn.Module, bn: nn.Module) -> nn.Module:
    """A linear layer with a batch norm folded into it, or a ``LinearBn1d`` module for training."""
    _require_one_mode(linear, bn)
    if not is_qat:
        return fuse_linear_bn_eval(linear, bn)
    _require_foldable(linear, bn)
    return intrinsic.LinearBn1d(linear, bn)


def fuse_convtranspose_bn(is_qat: bool, convt: nn.Module, bn: nn.Module) -> nn.Module:
    """A transposed convolution with a batch norm folded into it; not for training."""
    _require_one_mode(convt, bn)
    if is_qat:
        raise NotImplementedError(f"no fused module for training for {_names(convt, bn)}")
    return fold_transposed(convt, bn)


def _fuse_linear_bn_leaky_relu(
    is_qat: bool, linear: nn.Module, bn: nn.Module, leaky_relu: nn.Module
) -> nn.Module:
    """A ``LinearLeakyReLU`` module with a batch norm folded into it; not for training."""
    _require_one_mode(linear, bn, leaky_relu)
    if is_qat:
        raise NotImplementedError(
            f"no fused module for training for {_names(linear, bn, leaky_relu)}"
        )
    return intrinsic.LinearLeakyReLU(fuse_linear_bn_eval(linear, bn), leaky_relu)


def _sequential_wrapper2(sequential: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """A fuser that makes the same module for inference and for training."""

    def fuser_method(is_qat: bool, m1: nn.Module, m2: nn.Module) -> nn.Module:
        return sequential(m1, m2)

    return fuser_method


_DEFAULT_OP_LIST_TO_FUSER_METHOD: dict[tuple[type, ...], Callable[..., nn.Module]] = {
    (nn.Conv1d, nn.BatchNorm1d): fuse_conv_bn,
    (nn.Conv1d, nn.BatchNorm1d, nn.ReLU): fuse_conv_bn_relu,
    (nn.Conv2d, nn.BatchNorm2d): fuse_conv_bn,
    (nn.Conv2d, nn.BatchNorm2d, nn.ReLU): fuse_conv_bn_relu,
    (nn.Conv3d, nn.BatchNorm3d): fuse_conv_bn,
    (nn.Conv3d, nn.BatchNorm3d, nn.ReLU): fuse_conv_bn_relu,
    (nn.Conv1d, nn.ReLU): _sequential_wrapper2(intrinsic.ConvReLU1d),
    (nn.Conv2d, nn.ReLU): _sequential_wrapper2(intrinsic.ConvReLU2d),
    (nn.Conv3d, nn.ReLU): _sequential_wrapper2(intrinsic.ConvReLU3d),
    (nn.Linear, nn.BatchNorm1d): fuse_linear_bn,
    (nn.Linear, nn.ReLU): _sequential_wrapper2(intrinsic.LinearReLU),
    (nn.BatchNorm2d, nn.ReLU): _sequential_wrapper2(intrinsic.BNReLU2d),
    (nn.BatchNorm3d, nn.ReLU): _sequential_wrapper2(intrinsic.BNReLU3d),
    (nn.ConvTranspose1d, nn.BatchNorm1d): fuse_convtranspose_bn,
    (nn.ConvTranspose2d, nn.BatchNorm2d): fuse_convtranspose_bn,
    (nn.ConvTranspose3d, nn.BatchNorm3d): fuse_convtranspose_bn,
}


def get_fuser_method(
    op_list: tuple[type, ...], additional_fuser_method_mapping: dict[Any, Any] | None = None
) -> Callable[..., nn.Module]:
    """The fuser of a tuple of module types; ``AssertionError`` if there is none."""
    fusers = get_combined_dict(
        _DEFAULT_OP_LIST_TO_FUSER_METHOD, additional_fuser_method_mapping or {}
    )
    if fusers.get(op_list) is None:
        raise AssertionError(f"no fuser for {op_list}")
    return fusers[op_list]


def _reverse2(f: Callable[..., Any]) -> Callable[..., Any]:
    """A fuser of (relu, conv) from one of (conv, relu)."""
    return lambda is_qat, x, y: f(is_qat, y, x)


def _reverse3(f: Callable[..., Any]) -> Callable[..., Any]:
    """A fuser of (relu, (bn, conv)) from one of (conv, bn, relu)."""
    return lambda is_qat, x, w: f(is_qat, w[1], w[0], x)


def _get_valid_patterns(op_pattern: Any) -> list[Any]:
    """A pattern, and those that match it with any node in some places, the most specific one first."""
    if isinstance(op_pattern, (tuple, list)):
        return list(itertools.product(*map(_get_valid_patterns, op_pattern)))
    return [op_pattern, MatchAllNode]


def _with_our_match_all(pattern: Any) -> Any:
    """A pattern with :class:`MatchAllNode` for the class of that name of ``torch.ao``."""
    if isinstance(pattern, (tuple, list)):
        return tuple(map(_with_our_match_all, pattern))
    return MatchAllNode if is_a(pattern, "MatchAllNode") and isinstance(pattern, type) else pattern


def get_fuser_method_new(
    op_pattern: Any, fuser_method_mapping: dict[Any, Any]
) -> Callable[..., Any]:
    """The fuser of a pattern in reverse order, in a mapping; ``AssertionError`` if there is none."""
    mapping = {_with_our_match_all(key): fuser for key, fuser in fuser_method_mapping.items()}
    for pattern in _get_valid_patterns(_with_our_match_all(op_pattern)):
        if mapping.get(pattern) is not None:
            return mapping[pattern]
    raise AssertionError(f"no fuser for {op_pattern}")
