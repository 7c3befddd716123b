"""The names of ``torchao.quantization.pt2e.quantizer.x86_inductor_quantizer``."""

from __future__ import annotations

from corsac.quantization.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
    get_x86_inductor_linear_dynamic_fp16_config,
)

__all__ = [
    "X86InductorQuantizer",
    "get_default_x86_inductor_quantization_config",
    "get_x86_inductor_linear_dynamic_fp16_config",
]
