"""Data types of quantised values.

PyTorch's quantised types (``torch.quint8``, ...) say the number of bits and the signedness; values are kept in the plain
type of the same bits. Where PyTorch no longer has a quantised type, its name here is a plain type.
"""

from __future__ import annotations

from typing import Any

import torch

quint8 = getattr(torch, "quint8", torch.uint8)
qint8 = getattr(torch, "qint8", torch.int8)
qint32 = getattr(torch, "qint32", torch.int32)
quint4x2 = getattr(torch, "quint4x2", torch.uint4)
quint2x4 = getattr(torch, "quint2x4", torch.uint2)

UINT8 = frozenset({quint8, torch.uint8})
INT8 = frozenset({qint8, torch.int8})
INT32 = frozenset({qint32, torch.int32})

#: Plain types in which the values of a quantised type are kept.
UNDERLYING: dict[torch.dtype, torch.dtype] = {
    **{
        dtype: dtype
        for dtype in (
            torch.uint8,
            torch.int8,
            torch.uint16,
            torch.int16,
            torch.int32,
            torch.float8_e5m2,
            torch.float8_e4m3fn,
        )
    },
    quint8: torch.uint8,
    qint8: torch.int8,
    qint32: torch.int32,
    quint4x2: torch.uint8,
    quint2x4: torch.uint8,
}

#: Plain types that are names of quantised ones.
_QUANTISED = {torch.int8: qint8, torch.uint8: quint8, torch.int32: qint32}


def quantised(dtype: Any) -> Any:
    """The quantised type of a plain type of integers; other types, and None, as they are."""
    return _QUANTISED.get(dtype, dtype)


#: Types that an observer may have.
OBSERVED = (
    qint8,
    quint8,
    quint4x2,
    qint32,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.float8_e5m2,
    torch.float8_e4m3fn,
    torch.uint16,
)

#: Types of which both weights and activations of static quantisation may be.
STATIC = frozenset(OBSERVED) - {torch.uint16}


def full_range(dtype: torch.dtype) -> tuple[int, int]:
    """The smallest and the largest value of a type; those of four bits for types that are not of 8, 16 or 32 bits."""
    plain = UNDERLYING.get(dtype)
    if plain is None or plain.is_floating_point or dtype in (quint4x2, quint2x4):
        return 0, 15
    limits = torch.iinfo(plain)
    return limits.min, limits.max
