"""Modules that modules are swapped for. The names are those of ``torch.ao.quantization.quantization_mappings``.

Mappings to modules of PyTorch's quantised types are left out: there are none here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.utils.parametrize import type_before_parametrizations

from corsac.quantization import intrinsic, qat, reference
from corsac.quantization.fake_quantize import (
    default_fixed_qparams_range_0to1_fake_quant,
    default_fixed_qparams_range_neg1to1_fake_quant,
)
from corsac.quantization.intrinsic import qat as intrinsic_qat

__all__ = [
    "DEFAULT_MODULE_TO_ACT_POST_PROCESS",
    "DEFAULT_QAT_MODULE_MAPPINGS",
    "DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS",
    "get_default_qat_module_mappings",
    "get_default_static_quant_reference_module_mappings",
    "get_embedding_qat_module_mappings",
]

#: Reference modules of modules.
DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS: dict[Callable[..., Any], Any] = {
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
