"""Quantisers of exported programs, and what they say of a graph, as in ``torch.ao.quantization.quantizer``."""

from __future__ import annotations

from corsac._lazy import lazy_names

_HOMES = {
    "composable_quantizer": ("ComposableQuantizer",),
    "embedding_quantizer": ("EmbeddingQuantizer",),
    "quantizer": (
        "DerivedQuantizationSpec",
        "EdgeOrNode",
        "FixedQParamsQuantizationSpec",
        "QuantizationAnnotation",
        "QuantizationSpec",
        "QuantizationSpecBase",
        "Quantizer",
        "SharedQuantizationSpec",
    ),
    "utils": (
        "OperatorConfig",
        "OperatorPatternType",
        "QuantizationConfig",
        "annotate_input_qspec_map",
        "annotate_output_qspec",
        "get_bias_qspec",
        "get_input_act_qspec",
        "get_module_name_filter",
        "get_output_act_qspec",
        "get_weight_qspec",
        "is_valid_annotation",
    ),
    "x86_inductor_quantizer": (
        "X86InductorQuantizer",
        "get_default_x86_inductor_quantization_config",
    ),
    "xnnpack_quantizer": ("XNNPACKQuantizer", "get_symmetric_quantization_config"),
}
_MODULES = (
    "composable_quantizer",
    "embedding_quantizer",
    "quantizer",
    "utils",
    "x86_inductor_quantizer",
    "xnnpack_quantizer",
)

__all__ = [name for names in _HOMES.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES)
