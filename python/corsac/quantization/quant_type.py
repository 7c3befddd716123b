"""Kinds of quantisation, as in ``torch.ao.quantization.quant_type``."""

from __future__ import annotations

import enum

__all__ = ["QuantType"]


class QuantType(enum.IntEnum):
    """The way activations and weights get their quantisation parameters."""

    DYNAMIC = 0
    STATIC = 1
    QAT = 2
    WEIGHT_ONLY = 3


def _get_quant_type_to_str(quant_type: QuantType) -> str:
    return QuantType(quant_type).name.lower()


def _quant_type_from_str(name: str) -> QuantType:
    for quant_type in QuantType:
        if quant_type.name.lower() == name:
            return quant_type
    names = ", ".join(repr(kind.name.lower()) for kind in QuantType)
    raise ValueError(f"unknown kind of quantisation {name!r}, expected one of {names}")
