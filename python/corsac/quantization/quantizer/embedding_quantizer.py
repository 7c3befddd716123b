"""Tables of embeddings with weights of 8 bits."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F

from corsac.quantization.observer import PerChannelMinMaxObserver
from corsac.quantization.quantizer.quantizer import (
    Q_ANNOTATION_KEY,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
)
from corsac.quantization.quantizer.utils import (
    OperatorConfig,
    OperatorPatternType,
    QuantizationConfig,
)

__all__ = ["EmbeddingQuantizer", "get_embedding_operators_config"]


def get_embedding_operators_config() -> OperatorConfig:
    """Tables of ``uint8`` with a scale and a real zero point for each row."""
    weight = QuantizationSpec(
        dtype=torch.uint8,
        qscheme=torch.per_channel_affine_float_qparams,
        ch_axis=0,
        observer_or_fake_quant_ctr=PerChannelMinMaxObserver.with_args(eps=2**-12),
    )
    patterns: list[OperatorPatternType] = [[torch.nn.Embedding], [F.embedding]]
    return OperatorConfig(QuantizationConfig(None, None, weight, None), copy.copy(patterns))


class EmbeddingQuantizer(Quantizer):
    """Quantises the tables of all embeddings."""

    @classmethod
    def get_supported_quantization_configs(cls) -> list[QuantizationConfig]:
        return list({config for config, _ in cls.get_supported_operators()})

    @classmethod
    def get_supported_operator_for_quantization_config(
        cls, quantization_config: QuantizationConfig
    ) -> list[OperatorPatternType]:
        return next(
            (
                operators
                for config, operators in cls.get_supported_operators()
                if config == quantization_config
            ),
            [],
        )

    def annotate(self, model: Any) -> Any:
        weight = get_embedding_operators_config().config.weight
        for node in model.graph.nodes:
            if node.target == torch.ops.aten.embedding.default:
                node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation({node.args[0]: weight})
        return model

    def validate(self, model: torch.nn.Module) -> None:
        pass

    @classmethod
    def get_supported_operators(cls) -> list[OperatorConfig]:
        return [get_embedding_operators_config()]
