"""Quantisation in one call, :func:`corsac.quantize`.

Layers are replaced where they are, so that any module can be quantised, traceable or not.
"""

from __future__ import annotations

from corsac.quantization.one_call._quantize import quantize
from corsac.quantization.one_call._report import Point, Report, Row

__all__ = ["Point", "Report", "Row", "quantize"]
