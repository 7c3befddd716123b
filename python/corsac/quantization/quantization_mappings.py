"""Modules that modules are swapped for. The names are those of ``torch.ao.quantization.quantization_mappings``.

Mappings to sparse modules, and to functions of PyTorch's quantised types, are left out: there are none here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.utils.parametrize import type_before_parametrizations

from corsac.quantization import intrinsic, qat, quantizable, reference
from corsac.quantization._kinds import same_place
from corsac.quantization.fake_quantize import (
    default_fixed_qparams_range_0to1_fake_quant,
    default_fixed_qparams_range_neg1to1_fake_quant,
)
from corsac.quantization.intrinsic import qat as intrinsic_qat
from corsac.quantization.qat import dynamic as qat_dynamic
from corsac.quantization.quantized import dynamic, functional_modules, fused, static
from corsac.quantization.stubs import DeQuantStub, QuantStub

__all__ = [
    "DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS",
    "DEFAULT_MODULE_TO_ACT_POST_PROCESS",
    "DEFAULT_QAT_MODULE_MAPPINGS",
    "DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS",
    "DEFAULT_STATIC_QUANT_MODULE_MAPPINGS",
    "get_default_compare_output_module_list",
    "get_default_dynamic_quant_module_mappings",
    "get_default_qat_module_mappings",
    "get_default_qconfig_propagation_list",
    "get_default_static_quant_module_mappings",
    "get_default_static_quant_reference_module_mappings",
    "get_dynamic_quant_module_class",
    "get_embedding_qat_module_mappings",
    "get_embedding_static_quant_module_mappings",
    "get_static_quant_module_class",
    "no_observer_set",
]

#: Reference modules of modules.
DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS: dict[Callable[..., Any], Any] = {
    QuantStub: static.Quantize,
    DeQuantStub: static.DeQuantize,
    **{
        getattr(nn, name): getattr(reference, name)
        for name in (
            "Linear",
            "Conv1d",
            "Conv2d",
            "Conv3d",
            "ConvTranspose1d",
            "ConvTranspose2d",
            "ConvTranspose3d",
            "Embedding",
            "EmbeddingBag",
            "GRUCell",
            "LSTMCell",
            "RNNCell",
            "LSTM",
        )
    },
}

#: Modules of statically quantised models.
DEFAULT_STATIC_QUANT_MODULE_MAPPINGS: dict[Callable[..., Any], Any] = {
    QuantStub: static.Quantize,
    DeQuantStub: static.DeQuantize,
    NonDynamicallyQuantizableLinear: static.Linear,
    functional_modules.FloatFunctional: functional_modules.QFunctional,
    **{
        getattr(nn, name): getattr(static, name)
        for name in (
            "BatchNorm2d",
            "BatchNorm3d",
            "Dropout",
            "Conv1d",
            "Conv2d",
            "Conv3d",
            "ConvTranspose1d",
            "ConvTranspose2d",
            "ConvTranspose3d",
            "ELU",
            "Embedding",
            "EmbeddingBag",
            "GroupNorm",
            "Hardswish",
            "InstanceNorm1d",
            "InstanceNorm2d",
            "InstanceNorm3d",
            "LayerNorm",
            "LeakyReLU",
            "Linear",
            "ReLU6",
            "PReLU",
        )
    },
    **{
        getattr(intrinsic, name): getattr(fused, name)
        for name in (
            "BNReLU2d",
            "BNReLU3d",
            "ConvReLU1d",
            "ConvReLU2d",
            "ConvReLU3d",
            "ConvAdd2d",
            "ConvAddReLU2d",
            "LinearReLU",
            "LinearLeakyReLU",
            "LinearTanh",
        )
    },
    intrinsic_qat.ConvBn1d: static.Conv1d,
    intrinsic_qat.ConvBn2d: static.Conv2d,
    intrinsic_qat.ConvBn3d: static.Conv3d,
    intrinsic_qat.ConvBnReLU1d: fused.ConvReLU1d,
    intrinsic_qat.ConvBnReLU2d: fused.ConvReLU2d,
    intrinsic_qat.ConvBnReLU3d: fused.ConvReLU3d,
    intrinsic_qat.ConvReLU2d: fused.ConvReLU2d,
    intrinsic_qat.ConvReLU3d: fused.ConvReLU3d,
    intrinsic_qat.LinearReLU: fused.LinearReLU,
    intrinsic_qat.LinearBn1d: static.Linear,
    qat.Linear: static.Linear,
    qat.Conv2d: static.Conv2d,
    qat.Conv3d: static.Conv3d,
}

#: Modules of dynamically quantised models.
DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS: dict[Callable[..., Any], Any] = {
    nn.Linear: dynamic.Linear,
    qat_dynamic.Linear: dynamic.Linear,
    NonDynamicallyQuantizableLinear: dynamic.Linear,
    intrinsic.LinearReLU: dynamic.LinearReLU,
    nn.LSTM: dynamic.LSTM,
    nn.GRU: dynamic.GRU,
    nn.LSTMCell: dynamic.LSTMCell,
    nn.GRUCell: dynamic.GRUCell,
    nn.RNNCell: dynamic.RNNCell,
    nn.EmbeddingBag: static.EmbeddingBag,
    nn.Embedding: static.Embedding,
}

#: Modules for training of modules.
DEFAULT_QAT_MODULE_MAPPINGS: dict[Callable[..., Any], Any] = {
    nn.Conv2d: qat.Conv2d,
    nn.Conv3d: qat.Conv3d,
    nn.Linear: qat.Linear,
    NonDynamicallyQuantizableLinear: qat.Linear,
    **{
        getattr(intrinsic, name): getattr(intrinsic_qat, name)
        for name in (
            "ConvBn1d",
            "ConvBn2d",
            "ConvBn3d",
            "ConvBnReLU1d",
            "ConvBnReLU2d",
            "ConvBnReLU3d",
            "ConvReLU2d",
            "ConvReLU3d",
            "LinearReLU",
            "LinearBn1d",
        )
    },
}

#: Fake quantisers of modules with results in a known range.
DEFAULT_MODULE_TO_ACT_POST_PROCESS: dict[Callable[..., Any], Callable[..., Any]] = {
    nn.Hardsigmoid: default_fixed_qparams_range_0to1_fake_quant,
    nn.Sigmoid: default_fixed_qparams_range_0to1_fake_quant,
    nn.Softmax: default_fixed_qparams_range_0to1_fake_quant,
    nn.Tanh: default_fixed_qparams_range_neg1to1_fake_quant,
}


_ALL = (
    DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
    DEFAULT_QAT_MODULE_MAPPINGS,
    DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
)


#: Modules that stay floats in static quantisation, with all that is in them, unless they are custom modules.
LEFT_AS_FLOATS = frozenset({nn.RNN, nn.LSTM, nn.GRU, nn.MultiheadAttention})

#: The observed classes of modules that have observers in them, and the quantised ones of those.
OBSERVED_MODULES: dict[type[nn.Module], Any] = {
    nn.LSTM: quantizable.LSTM,
    nn.MultiheadAttention: quantizable.MultiheadAttention,
}
OBSERVED_TO_QUANTIZED: dict[type[nn.Module], Any] = {
    quantizable.LSTM: static.LSTM,
    quantizable.MultiheadAttention: static.MultiheadAttention,
}


def own_class(kind: Any) -> Any:
    """The observed or quantised class of this package for one of ``torch.ao``; other classes as they are."""
    packages = {
        "torch.ao.nn.quantizable.modules": OBSERVED_TO_QUANTIZED,
        "torch.ao.nn.quantized.modules": OBSERVED_TO_QUANTIZED.values(),
    }
    for package, classes in packages.items():
        if kind.__module__.startswith(package):
            return next((own for own in classes if own.__name__ == kind.__name__), kind)
    return kind


def no_observer_set() -> set[Any]:
    """Modules with observers in them, which are not observed themselves."""
    return set(OBSERVED_TO_QUANTIZED)


def get_default_static_quant_module_mappings() -> dict[Callable[..., Any], Any]:
    return dict(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS)


def get_default_dynamic_quant_module_mappings() -> dict[Callable[..., Any], Any]:
    return dict(DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS)


def get_embedding_static_quant_module_mappings() -> dict[Callable[..., Any], Any]:
    """The modules of statically quantised models, with embeddings that were trained."""
    return {
        **DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
        qat.EmbeddingBag: static.EmbeddingBag,
        qat.Embedding: static.Embedding,
    }


def counterpart(kind: type[nn.Module], mapping: dict[Any, Any]) -> Any:
    """The module class that a class is mapped to, or the class of the same name of ``torch.ao``; None if there is none."""
    found = mapping.get(kind)
    if found is not None or not kind.__module__.startswith("torch.ao."):
        return found
    return next((made for own, made in mapping.items() if same_place(kind, own)), None)


def _class_in(mapping: dict[Any, Any], kind: Any) -> Any:
    found = counterpart(kind, mapping)
    if found is None:
        raise AssertionError(f"no quantised class for {kind.__name__}")
    return found


def get_static_quant_module_class(
    float_module_class: Callable[..., Any],
    additional_static_quant_mapping: dict[Callable[..., Any], Any] | None = None,
    is_reference: bool = False,
) -> Any:
    """The module of statically quantised models for a class; ``AssertionError`` if there is none."""
    own = (
        DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS
        if is_reference
        else DEFAULT_STATIC_QUANT_MODULE_MAPPINGS
    )
    return _class_in({**own, **(additional_static_quant_mapping or {})}, float_module_class)


def get_dynamic_quant_module_class(
    float_module_class: Callable[..., Any],
    additional_dynamic_quant_mapping: dict[Callable[..., Any], Any] | None = None,
) -> Any:
    """The module of dynamically quantised models for a class; ``AssertionError`` if there is none."""
    own = DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS
    return _class_in({**own, **(additional_dynamic_quant_mapping or {})}, float_module_class)


def get_default_qconfig_propagation_list() -> set[Callable[..., Any]]:
    """The classes that are observed."""
    return {nn.Sequential}.union(*_ALL)


def get_default_compare_output_module_list() -> set[Callable[..., Any]]:
    """The classes of which results are compared: those that are observed, and what becomes of them."""
    return get_default_qconfig_propagation_list().union(*(own.values() for own in _ALL))


def get_default_static_quant_reference_module_mappings() -> dict[Callable[..., Any], Any]:
    return dict(DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS)


def get_default_qat_module_mappings() -> dict[Callable[..., Any], Any]:
    return dict(DEFAULT_QAT_MODULE_MAPPINGS)


def get_embedding_qat_module_mappings() -> dict[Callable[..., Any], Any]:
    """The modules for training, with embeddings."""
    return {
        **DEFAULT_QAT_MODULE_MAPPINGS,
        nn.EmbeddingBag: qat.EmbeddingBag,
        nn.Embedding: qat.Embedding,
    }


def _get_special_act_post_process(module: nn.Module) -> Callable[..., Any] | None:
    return DEFAULT_MODULE_TO_ACT_POST_PROCESS.get(type_before_parametrizations(module))


def _has_special_act_post_process(module: nn.Module) -> bool:
    return module.training and type(module) in DEFAULT_MODULE_TO_ACT_POST_PROCESS
