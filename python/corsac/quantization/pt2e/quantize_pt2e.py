"""The names of ``torchao.quantization.pt2e.quantize_pt2e``: those of :mod:`corsac.quantization.quantize_pt2e`."""

from __future__ import annotations

from corsac.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

__all__ = ["convert_pt2e", "prepare_pt2e", "prepare_qat_pt2e"]
