"""Quantisation configurations: constructors of observers, or of fake quantisers, for activations and weights.

The names are those of ``torch.ao.quantization.qconfig``.
"""

from __future__ import annotations

import warnings
from collections import namedtuple
from functools import partial
from typing import Any

import torch
from torch import nn

from corsac.quantization._dtypes import qint8, quint8
from corsac.quantization._kinds import is_a, same_class
from corsac.quantization.fake_quantize import (
    FakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    default_dynamic_fake_quant,
    default_embedding_fake_quant,
    default_embedding_fake_quant_4bit,
    default_fake_quant,
    default_fused_act_fake_quant,
    default_fused_per_channel_wt_fake_quant,
    default_fused_wt_fake_quant,
    default_per_channel_weight_fake_quant,
    default_weight_fake_quant,
    fused_per_channel_wt_fake_quant_range_neg_127_to_127,
    fused_wt_fake_quant_range_neg_127_to_127,
)
from corsac.quantization.observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    NoopObserver,
    PlaceholderObserver,
    default_debug_observer,
    default_dynamic_quant_observer,
    default_float_qparams_observer,
    default_float_qparams_observer_4bit,
    default_observer,
    default_per_channel_weight_observer,
    default_placeholder_observer,
    default_reuse_input_observer,
    default_weight_observer,
    per_channel_weight_observer_range_neg_127_to_127,
    weight_observer_range_neg_127_to_127,
)

__all__ = [
    "QConfig",
    "QConfigAny",
    "QConfigDynamic",
    "default_activation_only_qconfig",
    "default_debug_qconfig",
    "default_dynamic_qat_qconfig",
    "default_dynamic_qconfig",
    "default_embedding_qat_qconfig",
    "default_embedding_qat_qconfig_4bit",
    "default_per_channel_qconfig",
    "default_per_channel_symmetric_qnnpack_qat_qconfig",
    "default_per_channel_symmetric_qnnpack_qconfig",
    "default_qat_qconfig",
    "default_qat_qconfig_v2",
    "default_qconfig",
    "default_quint8_weight_qconfig",
    "default_reuse_input_qconfig",
    "default_symmetric_qnnpack_qat_qconfig",
    "default_symmetric_qnnpack_qconfig",
    "default_weight_only_qconfig",
    "float16_dynamic_qconfig",
    "float16_static_qconfig",
    "float_qparams_weight_only_qconfig",
    "float_qparams_weight_only_qconfig_4bit",
    "get_default_qat_qconfig",
    "get_default_qat_qconfig_dict",
    "get_default_qconfig",
    "get_default_qconfig_dict",
    "per_channel_dynamic_qconfig",
    "qconfig_equals",
]


def _require_constructors(name: str, *constructors: Any) -> None:
    for constructor in constructors:
        if isinstance(constructor, nn.Module):
            raise ValueError(
                f"{name}: expected a constructor of observers, got an instance of {type(constructor).__name__}; "
                "arguments are given by with_args"
            )


class QConfig(namedtuple("QConfig", ["activation", "weight"])):
    """Constructors of observers, or of fake quantisers, for the activations and the weights of operators.

    Each use makes new observers: ``QConfig(activation=MinMaxObserver.with_args(quant_max=127), weight=...)``.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.qconfig.QConfig.html
    """

    __slots__ = ()

    def __new__(cls, activation: Any, weight: Any) -> QConfig:
        _require_constructors(cls.__name__, activation, weight)
        return super().__new__(cls, activation, weight)


class QConfigDynamic(namedtuple("QConfigDynamic", ["activation", "weight"])):
    """A :class:`QConfig` for dynamic quantisation, deprecated in its favour."""

    __slots__ = ()

    def __new__(cls, activation: Any = nn.Identity, weight: Any = nn.Identity) -> QConfigDynamic:
        warnings.warn(
            "QConfigDynamic is deprecated, use QConfig", category=FutureWarning, stacklevel=2
        )
        _require_constructors(cls.__name__, weight)
        return super().__new__(cls, activation, weight)


QConfigAny = QConfig | None

default_qconfig = QConfig(default_observer, default_weight_observer)
default_debug_qconfig = QConfig(default_debug_observer, default_weight_observer)
default_per_channel_qconfig = QConfig(default_observer, default_per_channel_weight_observer)
default_quint8_weight_qconfig = QConfig(HistogramObserver, MinMaxObserver)
default_reuse_input_qconfig = QConfig(default_reuse_input_observer, NoopObserver)

default_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_weight_observer)
per_channel_dynamic_qconfig = QConfig(
    default_dynamic_quant_observer, default_per_channel_weight_observer
)
_float16 = PlaceholderObserver.with_args(dtype=torch.float16)
float16_static_qconfig = QConfig(_float16, _float16)
float16_dynamic_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=torch.float16, is_dynamic=True), _float16
)
float_qparams_weight_only_qconfig = QConfig(
    default_placeholder_observer, default_float_qparams_observer
)
float_qparams_weight_only_qconfig_4bit = QConfig(
    default_placeholder_observer, default_float_qparams_observer_4bit
)

default_qat_qconfig = QConfig(default_fake_quant, default_weight_fake_quant)
default_qat_qconfig_v2 = QConfig(default_fused_act_fake_quant, default_fused_wt_fake_quant)
default_dynamic_qat_qconfig = QConfig(default_dynamic_fake_quant, default_weight_fake_quant)
default_weight_only_qconfig = QConfig(nn.Identity, default_weight_fake_quant)
default_activation_only_qconfig = QConfig(default_fake_quant, nn.Identity)
_float32_noop = NoopObserver.with_args(dtype=torch.float32)
default_embedding_qat_qconfig = QConfig(_float32_noop, default_embedding_fake_quant)
default_embedding_qat_qconfig_4bit = QConfig(_float32_noop, default_embedding_fake_quant_4bit)

# Signed activations; scales of at least 2**-12, so that XNNPACK's requantisation scales are in its range.
_xnnpack_activation = HistogramObserver.with_args(dtype=qint8, reduce_range=False, eps=2**-12)
_xnnpack_qat_activation = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver,
    quant_min=-128,
    quant_max=127,
    dtype=qint8,
    reduce_range=False,
    eps=2**-12,
)
default_symmetric_qnnpack_qconfig = QConfig(
    _xnnpack_activation, weight_observer_range_neg_127_to_127
)
default_per_channel_symmetric_qnnpack_qconfig = QConfig(
    _xnnpack_activation, per_channel_weight_observer_range_neg_127_to_127
)
default_symmetric_qnnpack_qat_qconfig = QConfig(
    _xnnpack_qat_activation, fused_wt_fake_quant_range_neg_127_to_127
)
default_per_channel_symmetric_qnnpack_qat_qconfig = QConfig(
    _xnnpack_qat_activation, fused_per_channel_wt_fake_quant_range_neg_127_to_127
)

_default_fp32_placeholder_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=torch.float32),
    PlaceholderObserver.with_args(dtype=torch.float32),
)
_default_quint8_placeholder_qconfig = QConfig(PlaceholderObserver.with_args(dtype=quint8), None)

#: Backends: the arguments of activations, and whether weights are per channel.
_BACKENDS: dict[str, tuple[dict[str, bool], bool]] = {
    "fbgemm": ({"reduce_range": True}, True),
    "x86": ({"reduce_range": True}, True),
    "qnnpack": ({"reduce_range": False}, False),
    "onednn": ({"reduce_range": False}, True),
}


def _backend(backend: str) -> tuple[dict[str, bool], bool]:
    if backend not in _BACKENDS:
        raise AssertionError(f"expected a backend of {', '.join(_BACKENDS)}, got {backend!r}")
    return _BACKENDS[backend]


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """The configuration for quantisation after training: "x86", "fbgemm", "qnnpack" or "onednn".

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """
    activation, per_channel = _backend(backend)
    if version != 0:
        raise AssertionError(f"expected version 0 of a qconfig, got {version}")
    if backend == "onednn" and not torch.cpu._is_vnni_supported():
        warnings.warn(
            "qconfig of onednn: this processor has no VNNI; int8 sums may saturate, which reduce_range avoids",
            stacklevel=2,
        )
    return QConfig(
        HistogramObserver.with_args(**activation),
        default_per_channel_weight_observer if per_channel else default_weight_observer,
    )


def get_default_qat_qconfig(backend: str = "x86", version: int = 1) -> QConfig:
    """The configuration for training: "x86", "fbgemm", "qnnpack" or "onednn".

    Version 1 observes and rounds in one operator, version 0 in two.

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """
    activation, per_channel = _backend(backend)
    if version not in (0, 1):
        raise AssertionError(f"expected version 0 or 1 of a qconfig, got {version}")
    kind = FusedMovingAvgObsFakeQuantize if version else FakeQuantize
    weights = {
        (0, False): default_weight_fake_quant,
        (0, True): default_per_channel_weight_fake_quant,
        (1, False): default_fused_wt_fake_quant,
        (1, True): default_fused_per_channel_wt_fake_quant,
    }
    arguments = {} if backend == "onednn" else activation
    return QConfig(
        kind.with_args(
            observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, **arguments
        ),
        weights[version, per_channel],
    )


def get_default_qconfig_dict(backend: str = "x86", version: int = 0) -> dict[str, Any]:
    """``get_default_qconfig_mapping(...).to_dict()``, deprecated."""
    from corsac.quantization.qconfig_mapping import get_default_qconfig_mapping

    warnings.warn(
        "get_default_qconfig_dict is deprecated, use get_default_qconfig_mapping",
        category=FutureWarning,
        stacklevel=2,
    )
    return get_default_qconfig_mapping(backend, version).to_dict()


def get_default_qat_qconfig_dict(backend: str = "x86", version: int = 1) -> dict[str, Any]:
    """``get_default_qat_qconfig_mapping(...).to_dict()``, deprecated."""
    from corsac.quantization.qconfig_mapping import get_default_qat_qconfig_mapping

    warnings.warn(
        "get_default_qat_qconfig_dict is deprecated, use get_default_qat_qconfig_mapping",
        category=FutureWarning,
        stacklevel=2,
    )
    return get_default_qat_qconfig_mapping(backend, version).to_dict()


def _constructor_equals(left: Any, right: Any) -> bool:
    """Whether two constructors make equal observers; those of this package and of ``torch.ao`` may."""
    wrapped = [is_a(one, "_PartialWrapper") for one in (left, right)]
    if not all(wrapped):
        return not any(wrapped) and same_class(left, right)
    if not (isinstance(left.p, partial) and isinstance(right.p, partial)):
        return _constructor_equals(left.p, right.p)
    ours, theirs = left.p.keywords, right.p.keywords
    return (
        same_class(left.p.func, right.p.func)
        and left.p.args == right.p.args
        and ours.keys() == theirs.keys()
        and all(
            _constructor_equals(value, theirs[name])
            if name == "observer"
            else value == theirs[name]
            for name, value in ours.items()
        )
    )


def qconfig_equals(q1: Any, q2: Any) -> bool:
    """Whether two configurations, or None, make equal observers. One may be of ``torch.ao``."""
    if q1 is None or q2 is None:
        return q1 is q2
    try:
        return _constructor_equals(q1.activation, q2.activation) and _constructor_equals(
            q1.weight, q2.weight
        )
    except AttributeError:
        return bool(q1 == q2)


def _assert_valid_qconfig(qconfig: Any, mod: nn.Module) -> None:
    """Raise ``AssertionError`` for weights per channel of a transposed convolution."""
    transposed = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    if qconfig is None or qconfig.weight is None or not isinstance(mod, transposed):
        return
    if is_a(qconfig.weight(), "PerChannelMinMaxObserver", "MovingAveragePerChannelMinMaxObserver"):
        raise AssertionError(
            f"{type(mod).__name__}: expected a weight observer per tensor, got one per channel"
        )


def _add_module_to_qconfig_obs_ctr(qconfig: Any, module: nn.Module | None) -> Any:
    """The configuration with observers made on the device of a module, looked up when they are made."""
    if module is None or qconfig is None or qconfig._fields != ("activation", "weight"):
        return qconfig

    def factory_kwargs() -> dict[str, Any] | None:
        for tensor in (*module.parameters(), *module.buffers()):
            return {"device": tensor.device}
        return None

    def on_device(constructor: Any) -> Any:
        try:
            constructor.with_args(factory_kwargs=None)()
            return constructor.with_callable_args(factory_kwargs=factory_kwargs)
        except (AttributeError, TypeError):  # not an observer, or without that argument
            return constructor

    return QConfig(on_device(qconfig.activation), on_device(qconfig.weight))


def _activation_is_memoryless(qconfig: Any) -> bool:
    """Whether activations are observed by moving averages that keep the last batch only."""
    activation = qconfig.activation()
    observer = getattr(activation, "activation_post_process", activation)
    return getattr(observer, "averaging_constant", None) == 1


def _is_reuse_input_qconfig(qconfig: Any) -> bool:
    """Whether an operator's output has the parameters of its input."""
    return (
        qconfig is not None
        and is_a(qconfig.activation(), "ReuseInputObserver")
        and is_a(qconfig.weight(), "NoopObserver")
    )
